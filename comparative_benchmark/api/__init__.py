"""The suite from Python; `import comparative_benchmark` gives the same names."""

import argparse
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import attrs

from comparative_benchmark.api.measuring import measure
from comparative_benchmark.api.results import Comparisons, Results, compare_results
from comparative_benchmark.results.codec import ResultsFileError, read_document
from comparative_benchmark.results.record import Result
from comparative_benchmark.runs.trial import Trial
from comparative_benchmark.stats.analysis import NOISE_THRESHOLD
from comparative_benchmark.terminal.options import Parser, UsageError
from comparative_benchmark.terminal.run_options import add_run_arguments
from openxla.benchmark.brought import is_model

__all__ = [
    "Comparisons",
    "Progress",
    "Results",
    "ResultsFileError",
    "UsageError",
    "compare",
    "load",
    "run",
]


@attrs.frozen(kw_only=True)
class Progress:
    """What happens during a run.

    Attributes:
      event: `preparing` artifacts, a `note`, `started` for the trials of a workload, or `finished`
        for one trial.
      text: the same in words.
      position, total: of the trial among all, from 1 on; 0 for other events.
      result: of a trial that has finished.
    """

    event: str
    text: str
    position: int = 0
    total: int = 0
    result: Result | None = None


def run(
    name: str,
    *,
    backends: str = "all",
    device: str = "host-cpu",
    output: str | os.PathLike[str] | None = None,
    progress: Callable[[Progress], object] | None = None,
    **options: Any,
) -> Results:
    """Measures cases and returns their results, with those that the file had before.

    Workers are processes of their own, as on the command line; Ctrl-C ends them, keeps what is
    finished in the file, and raises KeyboardInterrupt.

    Args:
      name: regular expression that must match the whole name of a case; or a model of your own:
        `path/to/file.py:callable`, `package.module:callable`, or a Hugging Face directory.
      backends: as `--backend` takes it, e.g. `jax_xla,pt_inductor:inductor+freezing`.
      device: name of a device.
      output: results file, which is added to; a new one in a temporary folder where none is given.
      progress: called with each event.
      options: every other option of `cbs run`, with underscores: `iterations=10`, `processes=5`,
        `baseline="pt_inductor:eager"`, `resume=True`, `suite=["my_models"]`.

    Raises:
      UsageError: something that was asked for cannot be.
      DefinitionError, NoMatchError: the definitions are wrong, or no case has such a name.
    """
    path = Path(output) if output else Path(tempfile.mkdtemp(prefix="cbs-")) / "results.json"
    named = [name] if is_model(name) else ["-name", name]
    arguments = [*named, "--backend", backends, "-device", device, "-o", str(path)]
    for option, value in options.items():
        arguments += _spelled(option, value)
    parsed = _parser().parse_args(arguments)
    command = ["comparative_benchmark.runs", *arguments]
    measured = measure(parsed, _Teller(progress), command=command)
    return Results(read_document(path), path=path, baseline=measured.baseline)


def load(path: str | os.PathLike[str]) -> Results:
    """Returns the results of a file.

    Raises:
      ResultsFileError: it is not a valid results file; the message says what is wrong, and where.
    """
    return Results(read_document(Path(path)), path=Path(path))


def compare(
    old: Results, new: Results, *, threshold: float = NOISE_THRESHOLD, count_unchanged: bool = False
) -> Comparisons:
    """Returns every case of either side, the new against the old, as `cbs compare` does.

    Args:
      old: the baseline.
      new: the candidate.
      threshold: differences below it are noise.
      count_unchanged: let programs be faster or slower that are the same on both sides.
    """
    return compare_results(old, new, threshold=threshold, count_unchanged=count_unchanged)


class _Teller:
    """A `runner.Observer` that calls back."""

    def __init__(self, callback: Callable[[Progress], object] | None) -> None:
        self._callback = callback

    def preparing(self, what: str) -> None:
        self._tell(Progress(event="preparing", text=f"preparing {what}"))

    def say(self, message: str) -> None:
        self._tell(Progress(event="note", text=message))

    def race_started(self, trials: Sequence[Trial], position: int, total: int) -> None:
        text = f"{trials[0].workload.label}, {len(trials)} of {total} trials"
        self._tell(Progress(event="started", text=text, position=position, total=total))

    def trial_finished(self, result: Result, position: int, total: int) -> None:
        definition = result.definition
        text = f"{result.status.value} {definition.model} {definition.competitor}"
        told = Progress(event="finished", text=text, position=position, total=total, result=result)
        self._tell(told)

    def _tell(self, progress: Progress) -> None:
        if self._callback is not None:
            self._callback(progress)


class _Parser(Parser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="comparative_benchmark.runs", add_help=False)
    add_run_arguments(parser)
    return parser


def _spelled(option: str, value: Any) -> list[str]:
    """Returns an option as it is typed; nothing for what is None or False."""
    name = f"--{option.replace('_', '-')}"
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    values = value if isinstance(value, (list, tuple)) else [value]
    return [word for one in values for word in (name, str(one))]
