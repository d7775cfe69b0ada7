"""Command-line options: names, values, and selection of cases."""

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from comparative_benchmark.terminal.streams import without_secrets
from openxla.benchmark.text import did_you_mean, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    # Commands that run no case start without the vocabulary of cases.
    from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec

EXIT_OK, EXIT_FAILED, EXIT_WRONG, EXIT_MISSING, EXIT_INTERRUPTED = 0, 1, 2, 3, 130
# The results so far are fine, but the budget ran out; `--resume` continues.
EXIT_UNFINISHED = 4
# The exit code that shells report for a program ended by SIGPIPE.
EXIT_NO_READER = 141
# Descriptions for users, in the reference documentation.
EXIT_CODES = {
    EXIT_OK: "success",
    EXIT_FAILED: "something failed, or the command line is invalid",
    EXIT_WRONG: "an output is wrong, a comparison found a regression, or a check found a fault",
    EXIT_MISSING: "nothing could be measured, or data is missing",
    EXIT_UNFINISHED: "no failures, but the budget ran out: `--resume` continues",
    EXIT_INTERRUPTED: "interrupted by Ctrl-C or SIGTERM; finished results are kept",
    EXIT_NO_READER: "the reader closed the output, as in `cbs list | head`",
}


class UsageError(Exception):
    """An argument is invalid; the message lists valid ones."""


class _Help(argparse.HelpFormatter):
    """Shows one spelling of each option: `--trial-budget`, but not `--trial_budget`."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        given = action.option_strings
        dashed = [name for name in given if name.replace("_", "-") == name]
        shown = [name for name in given if name in dashed or name.replace("_", "-") not in dashed]
        action.option_strings = shown
        try:
            return super()._format_action_invocation(action)
        finally:
            action.option_strings = given


class HelpWithExamples(_Help, argparse.RawDescriptionHelpFormatter):
    """Keeps line breaks in examples."""


class Parser(argparse.ArgumentParser):
    """Reports an error in one line, with the nearest correct word and the command that helps.

    Exits with 1 if argparse would exit with 2, which means that an output was wrong.
    """

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**{"formatter_class": _Help, **keywords})

    def error(self, message: str) -> NoReturn:
        """Prints the message, and exits."""
        said = printable(without_secrets(" ".join(message.split("\n"))))
        self.exit(EXIT_FAILED, f"{self.prog}: {said}\nusage: {self.prog} --help\n")

    def refuse_unknown(self, words: "Sequence[str]") -> None:
        """Exits if there are words that no option took."""
        if words:
            option = words[0].partition("=")[0]
            what = "unknown option" if option.startswith("-") else "unexpected argument"
            near = did_you_mean(option, self._option_string_actions)
            self.error(f"{what} {option}{near}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            what = did_you_mean(str(value), choices) or f"; choices are {', '.join(choices)}"
            name = str(action.metavar or action.dest).lower()
            said = "/".join(action.option_strings) or name
            raise argparse.ArgumentError(None, f"unknown {said} {value!r}{what}")


def check_place(path: Path, what: str) -> None:
    """Creates the folder of an output file, and checks that the file can be written.

    Raises:
      UsageError: it cannot, or a directory has its name; this is better known before hours of
        measurements.
    """
    import tempfile

    if path.is_dir():
        raise UsageError(f"{what} {path} cannot be written: it is a directory")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be written: {error}") from error


def set_root(root: Path | None) -> None:
    """Sets the artifact root of this process and its workers, unless it is None."""
    from openxla.benchmark.root import ROOT_DIR_VARIABLE

    if root is not None:
        os.environ[ROOT_DIR_VARIABLE] = str(root.absolute())


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
      NoMatchError, DefinitionError: see `catalog` and `locked_cases`.
    """
    from openxla.benchmark.artifacts import lock_file
    from openxla.benchmark.comparative_suite import catalog

    if test == "train":
        cases = _training_cases(suites)
    else:
        cases = lock_file.with_urls(catalog.all_benchmarks(suites))
    try:
        return catalog.select(cases, name=name, tags=tags, framework=framework)
    except re.error as error:
        raise UsageError(f"-name {name!r} is not a regular expression: {error}") from error


def _training_cases(suites: "Sequence[str]") -> "list[BenchmarkCase]":
    """Returns the suite's own training cases, and those of further modules."""
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
