"""Selects two results of a file, and explains their difference in a table with notes."""

import io
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence

import attrs
from rich.table import Table
from rich.text import Text

from comparative_benchmark.api import load
from comparative_benchmark.api.progress import Progress, Reporter
from comparative_benchmark.api.results import Results
from comparative_benchmark.engine.runner import Observer
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import Case, cases_of
from comparative_benchmark.results.comparing.comparison import disturbance
from comparative_benchmark.results.comparing.explanations import (
    Explanation,
    Part,
    Row,
    Side,
    explain,
)
from comparative_benchmark.results.comparing.roofs import ceilings_of
from comparative_benchmark.results.record import Document, Status
from comparative_benchmark.studies.explain.profiling import NoProfileError, Profiling, profile_of
from comparative_benchmark.terminal.screen import Screen, ruled_table
from comparative_benchmark.terminal.tables import digits
from openxla.benchmark.comparative_suite.catalog import Expression
from openxla.benchmark.text import did_you_mean

# Limit on graph breaks, fallbacks and remarks per competitor.
_MOST_LINES = 8
# Hide kinds below this share of the slower latency on both sides.
_LEAST_SHARE = 0.002
# Time, calls and share of the roof.
_Cells = tuple[str, str, str]
_EMPTY: _Cells = ("", "", "")
_MOST_SHOWN = 12
# Operators that take a larger share of the latency do not explain it: the profiler has added time.
_MOST_COVER = 1.25
_WIDTH = 200


def choose(
    document: Document, asked: Sequence[str], *, case: str | None = None, device: str | None = None
) -> tuple[Case, Case]:
    """Returns two results of one workload on one device, the slower one first.

    Args:
      document: content of a results file.
      asked: up to two competitors; missing ones are the fastest, then the slowest, of those that
        are ranked and compute in the workload's own type.
      case: regular expression to search for in names of cases; None if there is one workload.
      device: name of a device; None if there is one.

    Raises:
      UsageError: two such results do not exist; the message lists the choices.
    """
    if len(asked) > 2:
        raise UsageError(f"expected at most two competitors, got {len(asked)}")
    cases = _of_workload(document, case, device)
    measured = [item for item in cases if item.metrics.median_ms is not None]
    own = [item for item in measured if item.result.ranked and not item.is_recipe]
    measured = own if len(own) > 1 else measured
    chosen = [_named(name, cases) for name in asked]
    measured.sort(key=lambda item: item.metrics.median_ms or 0.0)
    # Add the fastest, then the slowest, until there are two.
    for extreme in (measured[:1] + measured[:0:-1]) if len(chosen) < 2 else ():
        if extreme not in chosen and len(chosen) < 2:
            chosen.append(extreme)
    if len(chosen) < 2 or chosen[0] is chosen[1]:
        labels = ", ".join(_label(item) for item in cases)
        raise UsageError(
            f"{cases[0].label}: expected two competitors with a latency; the file has {labels}"
        )
    first, second = sorted(chosen, key=lambda item: -(item.metrics.median_ms or 0.0))
    if first.machine != second.machine:
        raise UsageError(
            f"{_label(first)} was measured on {first.machine}, {_label(second)} on "
            f"{second.machine}: results from different machines cannot be compared"
        )
    return first, second


def _of_workload(document: Document, case: str | None, device: str | None) -> list[Case]:
    """Returns the latest results for the selected workload and device."""
    # A compile-only result has no latency, so any other takes its place.
    cases = sorted(cases_of(document), key=lambda item: not item.metrics.compile_only)
    latest = list({item.result.key: item for item in cases}.values())
    if not latest:
        raise UsageError("the results file contains no results")
    if case is not None:
        try:
            pattern = Expression(case)
            latest = [item for item in latest if any(map(pattern.search, _names(item)))]
        except re.error as error:
            raise UsageError(f"--case {case!r} is not a regular expression: {error}") from error
        if not latest:
            names = [name for item in cases for name in _names(item)]
            raise UsageError(f"no case in the file matches {case!r}{did_you_mean(case, names)}")
    devices = list(dict.fromkeys(item.device for item in latest))
    if device is None:
        _require_one("device", "-device", devices)
    else:
        latest = [item for item in latest if item.device == device]
        if not latest:
            raise UsageError(f"no results for device {device}; choices are {', '.join(devices)}")
    # Workloads may have the same label.
    labels = {item.workload: item.label for item in latest}
    _require_one("workload", "--case", list(labels.values()))
    return latest


def _require_one(noun: str, option: str, choices: Sequence[str]) -> None:
    if len(choices) > 1:
        listed = "\n".join(f"  {choice}" for choice in choices[:_MOST_SHOWN])
        raise UsageError(
            f"the file contains results for {len(choices)} {noun}s; "
            f"choose one with {option}:\n{listed}"
        )


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
        raise UsageError(f"{asked!r} matches {number} for {cases[0].label}; choices are {labels}")
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
      disturbed: whether other processes disturbed the race.
    """

    explanation: Explanation
    device: str
    has_roof: bool
    disturbed: bool = False

    def print(self, screen: Screen) -> None:
        """Prints the table and the lines below it."""
        title = f"{self.explanation.workload} on {self.device}"
        screen.print(title, markup=False, style="bold")
        wide = table_of(self.explanation)
        fits = screen.measure(wide).maximum <= screen.width
        screen.print(wide if fits else table_of(self.explanation, narrow=True))
        for line in lines_of(self.explanation):
            screen.print(line)
        if self.disturbed:
            screen.print(
                "other processes disturbed the race: distrust the latencies", style="yellow"
            )
        if not self.has_roof:
            screen.print("roof shares are unknown; run `cbs doctor --ceilings` on this machine")

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
        disturbed=bool(disturbance(*(item.metrics for item in cases))),
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
        raise UsageError("the results are not in a file; save them with results.save(path)")
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


def table_of(explanation: Explanation, *, narrow: bool = False, most_operators: int = 3) -> Table:
    """Returns kinds of operators by time lost, each with its longest operators on both sides.

    Args:
      explanation: the explanation to show.
      narrow: omit numbers of calls, and shares of the whole difference.
      most_operators: limit per kind and competitor.
    """
    slow, fast = explanation.slow, explanation.fast
    parts = [part for row in explanation.rows for part in (row.slow, row.fast) if part]
    with_roof = any(part.of_roof is not None for part in parts)
    shown = _Columns(calls=not narrow, roof=with_roof)
    table = ruled_table()
    table.add_column("operators", no_wrap=not narrow)
    for heading in ("lost ms", *(() if narrow else ("share",))):
        table.add_column(heading, justify="right", no_wrap=True)
    for side in (slow, fast):
        for heading in shown.of(f"{side.competitor} ms", "calls", "of roof"):
            table.add_column(heading, justify="right", no_wrap=not narrow)
    for row in _worth_showing(explanation):
        share = () if narrow else (_part_of(row.lost_ms, explanation.lost_ms),)
        halves = [_part(part, spread=not narrow) for part in (row.slow, row.fast)]
        cells = (*shown.of(*halves[0]), *shown.of(*halves[1]))
        table.add_row(row.kind, _signed(row.lost_ms), *share, *cells)
        for name, of_slow, of_fast in _operators(row, most_operators):
            cells = (*shown.of(*of_slow), *shown.of(*of_fast))
            table.add_row(f"  {name}", "", *("" for _ in share), *cells, style="dim")
    table.add_section()
    latencies = [shown.of(digits(side.latency_ms), "", "") for side in (slow, fast)]
    empty = () if narrow else ("",)
    table.add_row(
        "measured latency", _signed(explanation.lost_ms), *(*empty, *latencies[0], *latencies[1])
    )
    return table


@attrs.frozen(kw_only=True)
class _Columns:
    """Columns of a competitor to show next to its time."""

    calls: bool
    roof: bool

    def of(self, ms: str, calls: str, roof: str) -> tuple[str, ...]:
        return (ms, *((calls,) if self.calls else ()), *((roof,) if self.roof else ()))


def lines_of(explanation: Explanation) -> Iterator[Text]:
    """Yields the lines below the table."""
    yield _verdict(explanation)
    for side in (explanation.slow, explanation.fast):
        yield from _of_side(side)


def as_json(explanation: Explanation) -> str:
    """Returns the whole explanation as JSON."""
    fields = attrs.asdict(explanation)
    for name, side in (("slow", explanation.slow), ("fast", explanation.fast)):
        fields[name]["cover"] = side.cover
    return json.dumps({"lost_ms": explanation.lost_ms, **fields}, indent=1, allow_nan=False)


def _worth_showing(explanation: Explanation) -> Iterator[Row]:
    least = _LEAST_SHARE * explanation.slow.latency_ms
    for row in explanation.rows:
        parts = [part for part in (row.slow, row.fast) if part]
        if row.lost_ms is None or any(abs(part.ms) >= least for part in parts):
            yield row


def _verdict(explanation: Explanation) -> Text:
    slow, fast = explanation.slow, explanation.fast
    text = Text(
        f"{fast.competitor} is {digits(slow.latency_ms / fast.latency_ms)} times as fast as "
        f"{slow.competitor}, which takes {digits(explanation.lost_ms)} ms longer"
    )
    worst = [row for row in explanation.rows if (row.lost_ms or 0.0) > 0 and row.is_beyond_spread]
    worst = worst[:2]
    if any((side.cover or 0.0) > _MOST_COVER for side in (slow, fast)):
        text.append("; operators take longer in the profile than the whole program without it, so ")
        text.append("they do not explain the difference")
    elif worst and explanation.lost_ms > 0:
        most = " and ".join(f"{row.kind} ({_signed(row.lost_ms)} ms)" for row in worst)
        text.append(f"; largest difference{'s' if len(worst) > 1 else ''}: {most}")
    return text


def _of_side(side: Side) -> Iterator[Text]:
    profile = side.profile
    if profile.disturbed:
        yield Text(f"{side.competitor}: {profile.disturbed}; profile again with --again", "yellow")
    if side.cover is None:
        text = f"{len(profile.operators)} operators, times unknown"
    else:
        text = (
            f"{digits(side.told_ms or 0.0)} ms in operators during profiling, "
            f"{side.cover:.0%} of the latency"
        )
        if profile.repeats:
            text += f" (median of {1 + len(profile.repeats)} profiles; the table shows their range)"
        if side.cover > 1:
            text += ": the profiler adds time, so `between operators` is too low"
    yield Text(f"{side.competitor} ({profile.stack}): {text}", style="bold")
    for title, lines in (
        ("graph break", profile.breaks),
        ("fallback", profile.fallbacks),
        ("fused", profile.fusions),
        ("note", profile.remarks),
    ):
        for line in lines[:_MOST_LINES]:
            yield Text(f"  {title}: {line}")
        if len(lines) > _MOST_LINES:
            yield Text(f"  {title}: {len(lines) - _MOST_LINES} more (--json prints all)")


def _part(part: Part | None, *, spread: bool) -> _Cells:
    if part is None:
        return "-", "", ""
    roof = "" if part.of_roof is None else _share(part.of_roof)
    ms = digits(part.ms)
    if spread and part.lowest_ms < part.highest_ms:
        ms += f" ({digits(part.lowest_ms)} to {digits(part.highest_ms)})"
    return ms, digits(part.calls) if part.calls else "", roof


def _operators(row: Row, most: int) -> Iterator[tuple[str, _Cells, _Cells]]:
    """Yields the longest operators of both sides, one line each, because they differ."""
    for part, is_slow in ((row.slow, True), (row.fast, False)):
        for shown in part.operators[:most] if part else ():
            cells = (
                "-" if shown.ms is None else digits(shown.ms),
                digits(shown.calls),
                "" if shown.of_roof is None else _share(shown.of_roof),
            )
            name = _short(f"{shown.name} ({shown.does})" if shown.does else shown.name)
            yield (name, cells, _EMPTY) if is_slow else (name, _EMPTY, cells)


def _short(name: str, most: int = 60) -> str:
    clean = " ".join(name.split())
    return clean if len(clean) <= most else f"{clean[: most - 3]}..."


def _signed(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"{'+' if ms >= 0 else '-'}{digits(abs(ms))}"


def _part_of(lost_ms: float | None, all_ms: float) -> str:
    return "" if lost_ms is None or all_ms <= 0 else f"{lost_ms / all_ms:.0%}"


def _share(share: float) -> str:
    return f"{share:{'.0%' if share >= 0.1 else '.1%'}}"
