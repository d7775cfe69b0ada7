"""The selection of cases from the catalogue and from suites of others, and of devices."""

import re
from typing import TYPE_CHECKING

from comparative_benchmark.errors import UsageError
from openxla.benchmark.text import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    # Commands that run no case start without the vocabulary of cases.
    from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec


def select(
    name: str | None,
    *,
    test: str = "eval",
    tags: "Sequence[str]" = (),
    framework: str | None = None,
    suites: "Sequence[str]" = (),
) -> "list[BenchmarkCase]":
    """Returns cases of the catalogue and of further suites.

    Args:
      name: regular expression for the whole name, or part of a name; None for all.
      test: `eval` for cases that compute outputs, `train` for those that take training steps.
      tags: required tags.
      framework: framework of the model, or several separated by commas.
      suites: modules with ALL_BENCHMARKS, and absolute folders of definitions.

    Raises:
      UsageError: the expression is malformed.
      NoMatchError, DefinitionError: see `catalog` and `manifests.with_urls`.
    """
    from openxla.benchmark.artifacts import manifests
    from openxla.benchmark.comparative_suite import catalog

    if test == "train":
        cases = _training_cases(suites)
    else:
        cases = manifests.with_urls(catalog.all_benchmarks(suites))
    try:
        return catalog.select(cases, name=name, tags=tags, framework=framework)
    except re.error as error:
        raise UsageError(f"-name {name!r} is not a regular expression: {error}") from error


def _training_cases(suites: "Sequence[str]") -> "list[BenchmarkCase]":
    """Returns the training cases of the suite and of further modules."""
    from openxla.benchmark.comparative_suite import catalog, training_cases
    from openxla.benchmark.workloads import training_of

    others = [case for case in catalog.further_benchmarks(suites) if training_of(case)]
    return [*training_cases.all_cases(), *others]


def find_device(name: str) -> "DeviceSpec":
    """Returns the device of that name.

    Raises:
      UsageError: the device is unknown.
    """
    from openxla.benchmark import devices, synonyms

    name = synonyms.device(name)
    for device in devices.ALL_DEVICES:
        if device.name == name:
            return device
    known = ", ".join(map(str, devices.ALL_DEVICES))
    near = did_you_mean(name, map(str, devices.ALL_DEVICES))
    raise UsageError(f"unknown device {name!r}; choices are {known}{near}")
