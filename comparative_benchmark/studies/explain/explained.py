"""Selects two results of a file, and builds a printable explanation of their difference."""

import io
import os
import re
from collections.abc import Callable, Sequence

import attrs

from comparative_benchmark.api import load
from comparative_benchmark.api.progress import Progress, Reporter
from comparative_benchmark.api.results import Results
from comparative_benchmark.engine.runner import Observer
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import Case, cases_of
from comparative_benchmark.results.comparing.explanations import Explanation, explain
from comparative_benchmark.results.comparing.roofs import ceilings_of
from comparative_benchmark.results.record import Document, Status
from comparative_benchmark.studies.explain import table
from comparative_benchmark.studies.explain.profiling import NoProfileError, Profiling, profile_of
from comparative_benchmark.terminal.screen import Screen
from openxla.benchmark.text import did_you_mean

_MOST_SHOWN = 12

_WIDTH = 200


def choose(
    document: Document, asked: Sequence[str], *, case: str | None = None, device: str | None = None
) -> tuple[Case, Case]:
    """Returns two results of one workload on one device, the slower one first.

    Args:
      document: content of a results file.
      asked: up to two competitors; missing ones are the fastest, then the slowest.
      case: regular expression to search for in names of cases; None if there is one workload.
      device: name of a device; None if there is one.

    Raises:
      UsageError: two such results do not exist; the message lists the choices.
    """
    if len(asked) > 2:
        raise UsageError(f"expected at most two competitors, got {len(asked)}")
    cases = _of_workload(document, case, device)
    measured = [item for item in cases if item.metrics.median_ms is not None]
    chosen = [_named(name, cases) for name in asked]
    measured.sort(key=lambda item: item.metrics.median_ms or 0.0)
    # Add the fastest, then the slowest, until there are two.
    for extreme in (measured[:1] + measured[:0:-1]) if len(chosen) < 2 else ():
        if extreme not in chosen and len(chosen) < 2:
            chosen.append(extreme)
    if len(chosen) < 2 or chosen[0] is chosen[1]:
        labels = ", ".join(_label(item) for item in cases)
        raise UsageError(
            f"{cases[0].label}: two competitors with a latency are required; the file has {labels}"
        )
    first, second = sorted(chosen, key=lambda item: -(item.metrics.median_ms or 0.0))
    if first.machine != second.machine:
        raise UsageError(
            f"{_label(first)} was measured on {first.machine}, {_label(second)} on "
            f"{second.machine}: results of different machines are not compared"
        )
    return first, second


def _of_workload(document: Document, case: str | None, device: str | None) -> list[Case]:
    """Returns the latest results for the selected workload and device."""
    latest = list({item.result.key: item for item in cases_of(document)}.values())
    if not latest:
        raise UsageError("the results file contains no results")
    if case is not None:
        try:
            pattern = re.compile(case)
        except re.error as error:
            raise UsageError(f"--case {case!r} is not a regular expression: {error}") from error
        latest = [item for item in latest if any(map(pattern.search, _names(item)))]
        if not latest:
            names = [name for item in cases_of(document) for name in _names(item)]
            raise UsageError(f"no case in the file matches {case!r}{did_you_mean(case, names)}")
    for noun, option, choices in (
        ("device", "-device", list(dict.fromkeys(item.device for item in latest))),
        ("workload", "--case", list(dict.fromkeys(item.label for item in latest))),
    ):
        if noun == "device" and device is not None:
            latest = [item for item in latest if item.device == device]
            if not latest:
                raise UsageError(
                    f"no results for device {device}; choices are {', '.join(choices)}"
                )
        elif len(choices) > 1:
            listed = "\n".join(f"  {choice}" for choice in choices[:_MOST_SHOWN])
            raise UsageError(
                f"the file contains {len(choices)} {noun}s; choose one with {option}:\n{listed}"
            )
    return latest


def _names(case: Case) -> tuple[str, str, str]:
    definition = case.result.definition
    return (definition.benchmark_name, definition.model, case.label)


def _named(asked: str, cases: Sequence[Case]) -> Case:
    """Returns a competitor's result.

    Competitors are `backend` or `backend:compiler`, with or without `/framework`.
    """
    name, _, framework = asked.partition("/")
    candidates = [case for case in cases if not framework or case.framework == framework]
    exact = [case for case in candidates if case.competitor == name]
    chosen = exact or [case for case in candidates if case.competitor.partition(":")[0] == name]
    if len(chosen) != 1:
        number = "more than one competitor" if chosen else "no competitor"
        labels = ", ".join(map(_label, chosen or cases))
        raise UsageError(f"{asked!r} matches {number} of {cases[0].label}; choices are {labels}")
    [one] = chosen
    if one.metrics.median_ms is None:
        status = one.why if one.status is not Status.OK else "it was only compiled"
        raise UsageError(f"{_label(one)} has no latency to explain: {status}")
    return one


def _label(case: Case) -> str:
    return f"{case.competitor}/{case.framework}"


@attrs.frozen(kw_only=True, repr=False)
class Explained:
    """Why one competitor is slower than another; prints as the table of `cbs explain`.

    Attributes:
      explanation: the time lost by kind of operator, and both profiles.
      device: device of both competitors.
      has_roof: whether shares of the roof are known.
    """

    explanation: Explanation
    device: str
    has_roof: bool

    def print(self, screen: Screen) -> None:
        """Prints the table and the lines below it."""
        title = f"{self.explanation.workload} on {self.device}"
        screen.print(title, markup=False, style="bold")
        wide = table.table_of(self.explanation)
        fits = screen.measure(wide).maximum <= screen.width
        screen.print(wide if fits else table.table_of(self.explanation, narrow=True))
        for line in table.lines_of(self.explanation):
            screen.print(line)
        if not self.has_roof:
            screen.print("no share of the roof: run `cbs doctor --ceilings` once on this machine")

    def __str__(self) -> str:
        text = io.StringIO()
        self.print(Screen(file=text, width=_WIDTH))
        return text.getvalue()

    __repr__ = __str__


def explained(
    document: Document,
    wanted: Profiling,
    observer: Observer,
    *,
    competitors: Sequence[str] = (),
    case: str | None = None,
    device: str | None = None,
) -> Explained:
    """Explains why the slower of two competitors is slower; takes missing profiles.

    Args:
      document: content of the results file.
      wanted: how to profile.
      observer: receives progress.
      competitors: up to two; missing ones are the slowest and the fastest.
      case: regular expression to search for in names of cases; None if there is one workload.
      device: name of a device; None if there is one.

    Raises:
      UsageError: the results or their cases do not exist.
      NoProfileError: one of them cannot be profiled.
      DefinitionError: see `catalog`.
    """
    cases = choose(document, competitors, case=case, device=device)
    # Profile the slower one first: if that fails, the other profile is useless.
    slow, fast = ((item.result, profile_of(item, wanted, observer)) for item in cases)
    ceilings = ceilings_of(cases[0], document.benchmarks)
    return Explained(
        explanation=explain(slow, fast, ceilings),
        device=cases[0].device,
        has_roof=ceilings is not None,
    )


def explain_results(
    results: Results | str | os.PathLike[str],
    *competitors: str,
    case: str | None = None,
    device: str | None = None,
    again: bool = False,
    suite: Sequence[str] = (),
    timeout: float = 1800.0,
    progress: Callable[[Progress], object] | None = None,
) -> Explained:
    """Returns why one competitor of a results file is slower than another, as `cbs explain` does.

    Competitors without a stored profile are profiled in a new worker.

    Args:
      results: results of a file, or its path.
      competitors: up to two, e.g. `pt_inductor:eager`; by default the slowest and the fastest.
      case: regular expression to search for in names of cases; None if there is one workload.
      device: name of a device; None if there is one.
      again: profile again, even if profiles are stored.
      suite: additional modules with ALL_BENCHMARKS.
      timeout: seconds to profile one competitor.
      progress: called with each event.

    Raises:
      UsageError: the results do not exist, or they cannot be profiled.
      ResultsFileError: the file is not a valid results file.
    """
    loaded = results if isinstance(results, Results) else load(results)
    if loaded.path is None:
        raise UsageError("the results are not in a file; save them: results.save(path)")
    wanted = Profiling(results=loaded.path, again=again, suites=suite, timeout_s=timeout)
    try:
        return explained(
            loaded.document,
            wanted,
            Reporter(progress),
            competitors=competitors,
            case=case,
            device=device,
        )
    except NoProfileError as error:
        raise UsageError(f"no profile: {error}") from error
