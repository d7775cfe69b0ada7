"""Tables of results and comparisons, for a terminal."""

import math
import statistics
import textwrap
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType

import attrs
from rich.text import Text

from comparative_benchmark.analysis.roofline.ceilings import Ceilings
from comparative_benchmark.analysis.stats.analysis import Interval, Verdict, latency_interval
from comparative_benchmark.results.case import Case, latest
from comparative_benchmark.results.comparing.compare import (
    Comparison,
    Fate,
    against_baseline,
    compare_to_baseline,
)
from comparative_benchmark.results.comparing.comparison import interval_of
from comparative_benchmark.results.comparing.roofs import shares_of_roof
from comparative_benchmark.results.record import (
    AGREED,
    Compile,
    IntervalRecord,
    Metrics,
    Program,
    Result,
    ResultKey,
    Status,
    Throughput,
)
from comparative_benchmark.terminal.compare_views import (
    HEADINGS,
    latency_text,
    speedup_text,
    table_rows,
)
from comparative_benchmark.terminal.screen import NO_LIMIT, Column, FittedTable, fitted
from comparative_benchmark.terminal.subjects import rerun_command

EXPECTED = "expected"
_STYLES = {
    "ok": "green",
    AGREED: "green",
    "unsupported": "yellow",
    "unsteady": "yellow",
    EXPECTED: "yellow",
}
_FAILED_STYLE = "red"
_VERDICT_STYLES = {Verdict.FASTER: "green", Verdict.SLOWER: "red", Verdict.UNCLEAR: "yellow"}
# Ranks of `cbs compare` columns: the highest is dropped first. Others are always shown.
_COMPARISON_RANKS = {
    "baseline ms": 3,
    "candidate ms": 2,
    "p": 5,
    "measured": 6,
    "compile": 7,
    "memory": 8,
    "why": 1,
}
_RIGHT = ("baseline ms", "candidate ms", "speed-up (98 %)", "p", "compile", "memory")
_LEAST_REASON = 24
_NARROW_VERDICT = 12
_MOST_UNSUPPORTED_ROWS = 2
# Narrowest relative interval shown: narrower ones would require too many digits.
_NO_WIDTH = 1e-4


def style_of(status: str) -> str:
    """Returns the colour of a status."""
    return _STYLES.get(status, _FAILED_STYLE)


def status_text(result: Result, expected: Mapping[ResultKey, str] = MappingProxyType({})) -> Text:
    """Returns the outcome of a trial, in its colour; a known failure is `expected`."""
    status = EXPECTED if result.key in expected else result.word
    return Text(status, style=style_of(status))


def results_table(
    cases: Sequence[Case],
    *,
    baseline: str | None = None,
    ceilings: Sequence[Ceilings] = (),
    expected: Mapping[ResultKey, str] = MappingProxyType({}),
    width: int = NO_LIMIT,
) -> FittedTable:
    """Returns a table of results with as many columns as fit; wrong outputs have no latency.

    With a baseline there are speed-ups and verdicts; with the devices' ceilings there are shares of
    the roof.
    """
    twice = Counter((case.label + case.place, case.competitor) for case in cases)
    names = [
        f"{case.competitor} ({case.framework})"
        if twice[case.label + case.place, case.competitor] > 1
        else case.competitor
        for case in cases
    ]
    latencies = [latency_cell(case) for case in cases]
    statuses = [status_text(case.result, expected) for case in cases]
    failed = [case.status is not Status.OK or case.result.key in expected for case in cases]
    columns = [
        Column(
            heading="backend", cells=[case.competitor for case in cases], without={"from": names}
        ),
        Column(heading="from", cells=[case.framework for case in cases], rank=8),
        Column(
            heading="latency ms",
            cells=latencies,
            right=True,
            without={
                "status": [
                    status if has_failed else latency
                    for status, has_failed, latency in zip(statuses, failed, latencies, strict=True)
                ]
            },
        ),
    ]
    if baseline:
        speedups, verdicts = zip(*ratio_cells(cases, baseline), strict=True) if cases else ((), ())
        stacked = [Text(textwrap.fill(v.plain, _NARROW_VERDICT), style=v.style) for v in verdicts]
        columns += [
            Column(heading="speed-up (98 %)", cells=speedups, right=True),
            Column(heading="verdict", cells=verdicts, right=True, without={"compile s": stacked}),
        ]
    metrics = [case.metrics for case in cases]
    columns += [
        Column(heading="compile s", cells=list(map(_compile_time, cases)), rank=3, right=True),
        Column(
            heading="peak MiB",
            cells=[_mebibytes(item.host_memory_peak_mb) for item in metrics],
            rank=5,
            right=True,
        ),
    ]
    roofs = shares_of_roof([case.result for case in cases], ceilings)
    if any(roofs):
        cells = [roof or "-" for roof in roofs]
        columns.append(Column(heading="of roof", cells=cells, rank=6, right=True))
    columns.append(
        Column(heading="rel. error", cells=list(map(_error, metrics)), rank=4, right=True)
    )
    if any(item.accuracy for item in metrics):
        cells = list(map(accuracy_cell, metrics))
        columns.append(Column(heading="accuracy", cells=cells, rank=7, right=True))
    columns.append(Column(heading="status", cells=statuses, rank=2))
    return by_workload(columns, cases, width)


def by_workload(columns: Sequence[Column], cases: Sequence[Case], width: int) -> FittedTable:
    """Returns a table with a row for each case, grouped by workload."""
    labels = [case.label + case.place for case in cases]
    return fitted(columns, width, groups=labels, group_heading="workload")


def compile_table(
    cases: Sequence[Case],
    expected: Mapping[ResultKey, str] = MappingProxyType({}),
    *,
    width: int = NO_LIMIT,
) -> FittedTable:
    """Returns the results of `--compile-only`: medians over the processes, cold and warm.

    A phase that the stack cannot measure separately has no time.
    """
    metrics = [case.metrics for case in cases]
    compiled = [item.compile or Compile(cold_ms=(), warm_ms=()) for item in metrics]
    cold = [[item for item in one.processes if item.cold] for one in compiled]

    def column(heading: str, cells: Iterable[str], rank: int) -> Column:
        return Column(heading=heading, cells=list(cells), rank=rank, right=True)

    columns = [
        Column(heading="backend", cells=[case.competitor for case in cases]),
        Column(heading="from", cells=[case.framework for case in cases], rank=9),
        column("cold s (95 %)", (_seconds_with_interval(one.cold_ms) for one in compiled), 0),
        column("warm s", (_median_s(one.warm_ms) for one in compiled), 0),
        column("trace", (_median_s([i.trace_ms for i in items]) for items in cold), 3),
        column("lower", (_median_s([i.lower_ms for i in items]) for items in cold), 3),
        column("compile", (_median_s([i.compile_ms for i in items]) for items in cold), 3),
        column("hits", map(_hits, compiled), 4),
        column("peak MiB", (_mebibytes(item.host_memory_peak_mb) for item in metrics), 5),
        Column(heading="program", cells=[_program(item.program) for item in metrics], rank=6),
        Column(
            heading="status", cells=[status_text(case.result, expected) for case in cases], rank=1
        ),
    ]
    return by_workload(columns, cases, width)


def _hits(compiled: Compile) -> str:
    counts = [item.cache_hits for item in compiled.processes if not item.cold]
    known = [count for count in counts if count is not None]
    return digits(statistics.median(known)) if known else "-"


def package_differences(results: Iterable[Result]) -> list[str]:
    """Returns lines about package differences between the environments of a run."""
    by_name: dict[str, dict[str, str]] = {}
    for result in results:
        if environment := result.definition.environment:
            by_name.setdefault(environment.name, {}).update(result.versions)
    if len(by_name) < 2:
        return []
    every = {package for versions in by_name.values() for package in versions}
    names = [
        name for name in sorted(every) if len({other.get(name) for other in by_name.values()}) > 1
    ]
    if not names:
        return [f"{', '.join(by_name)}: same versions of all imported packages"]
    return [
        f"{environment}: "
        + ", ".join(f"{name} {versions.get(name, 'not imported')}" for name in names)
        for environment, versions in by_name.items()
    ]


def digits(value: float, significant: int = 3) -> str:
    """Returns a number with `significant` significant digits, never in exponent form."""
    if value == 0:
        return "0"
    text = f"{value:.{significant}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def problems(
    results: Iterable[Result],
    suites: Sequence[str],
    expected: Mapping[ResultKey, str] = MappingProxyType({}),
) -> list[Text]:
    """Returns the failed trials, each with its phase, reason and the command to repeat it.

    If preparation failed for the same reason, the trials of a model share one text.
    """
    groups: defaultdict[object, list[Result]] = defaultdict(list)
    for result in results:
        alike = (result.definition.model, result.status, result.reason)
        groups[alike if result.phase == "prepare" else result.key].append(result)
    texts = []
    for group in groups.values():
        result, names = group[0], ", ".join(each.definition.competitor for each in group)
        reason = expected.get(result.key) or result.reason
        model = f"  {result.definition.model}  {names}  "
        text = Text.assemble(status_text(result, expected), model, f"in {result.phase}: {reason}")
        if result.status is not Status.UNSUPPORTED:
            log = f"\n    log:   {result.log_file}" if result.log_file else ""
            text.append(f"{log}\n    again: {rerun_command(result, '--verbose', suites=suites)}")
        texts.append(text)
    return texts


def many_unsupported(
    cases: Sequence[Case], expected: Mapping[ResultKey, str] = MappingProxyType({})
) -> list[Case]:
    """Returns the unsupported cases if there are too many for rows; otherwise nothing."""
    unsupported = [
        case
        for case in cases
        if case.status is Status.UNSUPPORTED and case.result.key not in expected
    ]
    return unsupported if _MOST_UNSUPPORTED_ROWS < len(unsupported) < len(cases) else []


def unsupported_lines(cases: Sequence[Case]) -> list[Text]:
    """Returns one line per reason, with its competitors and workloads."""
    word = Status.UNSUPPORTED.value
    reasons = [(case.result.reason or "", case) for case in cases]
    return _lines_by_reason((word, style_of(word)), reasons)


def unclear_lines(comparisons: Iterable[Comparison]) -> list[Text]:
    """Returns a line per reason for verdicts that are unclear although the interval excludes 1."""
    puzzling = [
        (item.reason, item)
        for item in comparisons
        if item.verdict is Verdict.UNCLEAR and not item.disturbed
        if item.ratio and not item.ratio.low <= 1 <= item.ratio.high
    ]
    return _lines_by_reason((Verdict.UNCLEAR.value, _VERDICT_STYLES[Verdict.UNCLEAR]), puzzling)


def _lines_by_reason(
    word: tuple[str, str], reasons: Sequence[tuple[str, Case | Comparison]]
) -> list[Text]:
    by_reason: defaultdict[str, dict[str, None]] = defaultdict(dict)
    several = len({item.label for _, item in reasons}) > 1
    for reason, item in reasons:
        by_reason[reason][f"{item.competitor}{f' ({item.label})' * several}"] = None
    return [
        Text.assemble(word, f"  {', '.join(names)}: {reason}")
        for reason, names in by_reason.items()
    ]


def latency_cell(case: Case) -> str:
    """Returns the latency with its interval over processes; for one process, with its spread.

    For a script that reports rates, returns the rate.
    """
    metrics = case.metrics
    if metrics.median_ms is None:
        return "-"
    if metrics.throughput and metrics.throughput.rate:
        return f"{rate_text(metrics.throughput)} {metrics.throughput.units}"
    if len(metrics.processes or ()) > 1 and (interval := interval_of(case)):
        return latency_text(interval)
    return f"{digits(metrics.median_ms)} ± {digits(metrics.mad_latency_ms or 0.0, 1)}"


def rate_text(throughput: Throughput) -> str:
    """Returns e.g. `637 (636-638)`; without the interval for a single replicate."""
    return _figure_text(throughput.rate, throughput.rate_interval)


def script_name(result: Result) -> str:
    """Returns the name of a script, with the environment if it has a name."""
    definition = result.definition
    where = f"@{definition.environment.name}" if definition.environment else ""
    return f"{definition.model}{where}"


def share_text(throughput: Throughput) -> str:
    """Returns e.g. `0.93 (0.91-0.95)`: a parallel process's rate, relative to one alone."""
    alone = throughput.alone
    return _figure_text(alone.share, alone.share_interval) if alone else "-"


def _figure_text(figure: float | None, interval: IntervalRecord | None) -> str:
    if figure is None:
        return "-"
    if interval is None or interval.high - interval.low < _NO_WIDTH * figure:
        return f"{figure:.4g}"
    return latency_text(
        Interval(
            estimate=min(max(figure, interval.low), interval.high),
            low=interval.low,
            high=interval.high,
            level=interval.level,
            processes=interval.processes,
        )
    )


def _compile_time(case: Case) -> str:
    if case.result.definition.compiler == "eager":
        return "none"
    cold, warm = case.metrics.compile_time_ms, case.metrics.warm_compile_time_ms
    text = "-" if cold is None else f"{cold / 1e3:.2f}"
    return f"{text} / {statistics.median(warm) / 1e3:.2f}" if warm else text


def _median_s(times_ms: Sequence[float | None]) -> str:
    known = [value for value in times_ms if value is not None]
    return digits(statistics.median(known) / 1e3) if known else "-"


def _seconds_with_interval(times_ms: Sequence[float | None]) -> str:
    known = [value / 1e3 for value in times_ms if value]
    if len(known) < max(3, len(times_ms)):
        return _median_s(times_ms)
    return latency_text(latency_interval([[value] for value in known]))


def _program(program: Program) -> str:
    size, digest = program.artifact_size_bytes, program.artifact_sha256
    parts = [f"{size / 1024:.0f} KiB" if size else "", f"sha256 {digest[:8]}" if digest else ""]
    return " ".join(filter(None, parts)) or "-"


def _error(metrics: Metrics) -> str:
    verdict = metrics.verdict
    if verdict is None:
        return "-"
    if verdict.sqnr_db is not None:
        return f"{verdict.sqnr_db:.0f} dB"
    if verdict.judged == "integers":
        return "integers"
    return "-" if verdict.relative_rmse is None else f"{verdict.relative_rmse:.1e}"


def accuracy_cell(metrics: Metrics) -> str:
    """Returns a program's score on the model's task, and the float64 model's score."""
    accuracy = metrics.accuracy
    if not accuracy:
        return "-"
    return f"{accuracy} ({attrs.evolve(accuracy, value=accuracy.reference)})"


def _mebibytes(megabytes: float | None) -> str:
    return "-" if megabytes is None else f"{megabytes * 1e6 / 2**20:.0f}"


def comparison_table(comparisons: Sequence[Comparison], *, width: int = NO_LIMIT) -> FittedTable:
    """Returns the table of `cbs compare`, with as many columns as fit."""
    rows = table_rows(comparisons)
    cells = dict(zip(HEADINGS, zip(*rows, strict=True), strict=True)) if rows else {}
    by_heading = {heading: list(cells.get(heading, ())) for heading in HEADINGS}
    labels = by_heading.pop("workload")
    columns = [
        Column(
            heading=heading,
            cells=list(map(_coloured, comparisons)) if heading == "verdict" else column,
            rank=_COMPARISON_RANKS.get(heading, 0),
            right=heading in _RIGHT,
            least=_LEAST_REASON if heading == "why" else None,
        )
        for heading, column in by_heading.items()
    ]
    return fitted(columns, width, groups=labels, group_heading="workload")


def ratio_cells(cases: Sequence[Case], baseline: str) -> list[tuple[str, Text]]:
    """Returns speed-up and verdict of each case.

    If the baseline is not ranked, the fastest ranked competitor replaces it. Earlier
    results of the same case have neither.
    """
    replaced = replacements(cases, baseline)
    cells: dict[int, tuple[str, Text]] = {}
    for race, group in _races(cases).items():
        name = replaced[race].competitor if race in replaced else baseline
        for case, item in zip(group, against_baseline(group, name), strict=True):
            cells[id(case)] = _verdict(case, item, name)
    return [cells.get(id(case), ("-", Text("-"))) for case in cases]


def replacements(cases: Sequence[Case], baseline: str) -> dict[Hashable, Case]:
    """Returns the fastest ranked case of each workload in which the baseline has none."""
    fastest = {}
    for race, group in _races(cases).items():
        good = [case for case in group if case.result.ranked and not case.is_recipe]
        good = [case for case in good if case.metrics.median_ms is not None]
        if len(good) > 1 and all(case.competitor != baseline for case in good):
            fastest[race] = min(good, key=lambda case: case.metrics.median_ms or math.inf)
    return fastest


def comparisons(cases: Sequence[Case], baseline: str) -> list[Comparison]:
    """Returns the comparisons with the baseline, or with the competitor that replaces it."""
    replaced = replacements(cases, baseline)
    found = []
    for race, group in _races(cases).items():
        name = replaced[race].competitor if race in replaced else baseline
        found += compare_to_baseline(group, name)
    return found


def _races(cases: Sequence[Case]) -> Mapping[Hashable, list[Case]]:
    """Returns the latest results by workload, device and measured quantity."""
    groups: defaultdict[Hashable, list[Case]] = defaultdict(list)
    for case in latest(cases):
        groups[case.workload, case.device, case.quantity].append(case)
    return groups


def _verdict(case: Case, comparison: Comparison | None, baseline: str) -> tuple[str, Text]:
    if case.competitor == baseline:
        return "1" if case.status is Status.OK else "-", Text("baseline", style="dim")
    if comparison is None or comparison.ratio is None:
        # Not ranked with the others, e.g. because it computes in another precision.
        apart = comparison is not None and comparison.fate is Fate.INCOMPARABLE
        return "-", Text(comparison.verdict.value if comparison and apart else "-")
    return speedup_text(comparison.ratio), _coloured(comparison)


def _coloured(comparison: Comparison) -> Text:
    return Text(comparison.word, style=_VERDICT_STYLES.get(comparison.verdict, ""))
