"""Competitors whose true ratio is known: a backend against itself, and slowed by a known share."""

import os
from pathlib import Path

import attrs

from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.runs.trial import Competitor, Trial
from gpu_check import delay
from openxla.benchmark import devices
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import DeviceSpec
from openxla.benchmark.workloads import workload_of

_SCRIPTS = str(Path(__file__).resolve().parents[1])


def plain(name: str, backend: str = "jax_xla", compiler: str = "xla") -> Competitor:
    """Returns a backend under another name: two of them can race against each other."""
    found = attrs.evolve(get_backend(backend), name=name)
    return Competitor(backend=found, compiler=found.compiler(compiler))


def slowed(name: str, share: float, backend: str = "jax_xla", compiler: str = "xla") -> Competitor:
    """Returns a backend of which each iteration takes 1 + share of its time."""
    base = get_backend(backend)
    found = attrs.evolve(
        base,
        name=name,
        implementation="gpu_check.slowed:Slowed",
        environment={
            **base.environment,
            # A worker must find this package, which is not installed.
            "PYTHONPATH": os.pathsep.join(filter(None, [_SCRIPTS, os.environ.get("PYTHONPATH")])),
            delay.SHARE_VARIABLE: str(share),
            delay.BASE_VARIABLE: base.implementation,
        },
    )
    return Competitor(backend=found, compiler=found.compiler(compiler))


def trial_of(model: str, competitor: Competitor, device: DeviceSpec = devices.HOST_CPU) -> Trial:
    """Returns the trial of a model of the suite on its default input."""
    cases = (case for case in catalog.all_benchmarks() if case.model.name == model)
    case = next(case for case in cases if case.input_data.name == "INPUT_DATA_MODEL_DEFAULT")
    return Trial(case=case, workload=workload_of(case), competitor=competitor, device=device)
