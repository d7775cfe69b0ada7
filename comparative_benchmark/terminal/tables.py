"""Tables of results and comparisons, for a terminal."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import attrs
from rich import box
from rich.table import Table
from rich.text import Text

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.compare import Comparison, Fate, compare_to_baseline
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
from comparative_benchmark.results.roofs import shares_of_roof
from comparative_benchmark.roofline.ceilings import Ceilings
from comparative_benchmark.stats.analysis import Interval, latency_interval
from comparative_benchmark.terminal import again
from comparative_benchmark.terminal.compare_views import (
    HEADINGS,
    latency_text,
    speedup_text,
    table_rows,
)

EXPECTED = "expected"
_STYLES = {
    "ok": "green",
    AGREED: "green",
    "unsupported": "yellow",
    "unsteady": "yellow",
    EXPECTED: "yellow",
}
_FAILED_STYLE = "red"
# Narrowest interval shown, as a share: below it there are more digits than anybody reads.
_NO_WIDTH = 1e-4


def style_of(status: str) -> str:
    """Returns the colour of a status."""
    return _STYLES.get(status, _FAILED_STYLE)


def status_text(result: Result, expected: Mapping[ResultKey, str] = MappingProxyType({})) -> Text:
    """Returns how a trial ended, in its colour; a failure that is known is `expected`."""
    status = EXPECTED if result.key in expected else result.word
    return Text(status, style=style_of(status))


def results_table(
    cases: Sequence[Case],
    *,
    baseline: str | None = None,
    ceilings: Sequence[Ceilings] = (),
    expected: Mapping[ResultKey, str] = MappingProxyType({}),
) -> Table:
    """Returns a table of results; only a right answer has a time.

    With a baseline there are ratios (candidate / baseline) and verdicts; with the devices'
    ceilings there are shares of the roof.
    """
    table = ruled_table()
    table.add_column("workload", no_wrap=True)
    table.add_column("from")
    table.add_column("backend", no_wrap=True)
    ratios = ratio_cells(cases, baseline)
    roofs = shares_of_roof([case.result for case in cases], ceilings)
    headings = ["latency ms"]
    if baseline:
        headings += [f"speed-up over {baseline} (98 %)", "verdict"]
    headings += ["compile s", "peak MiB", *(["of roof"] if any(roofs) else []), "rel. error"]
    trained = any(case.metrics.accuracy for case in cases)
    headings += ["accuracy"] if trained else []
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status")
    previous = None
    for case, roof, cells in zip(cases, roofs, ratios, strict=True):
        metrics = case.metrics
        if previous not in (None, case.label):
            table.add_section()
        table.add_row(
            case.label if case.label != previous else "",
            case.framework,
            case.competitor,
            latency_cell(case),
            *cells,
            _compile_time(case),
            _mebibytes(metrics.host_memory_peak_mb),
            *([roof or "-"] if any(roofs) else ()),
            _error(metrics),
            *([accuracy_cell(metrics)] if trained else ()),
            status_text(case.result, expected),
        )
        previous = case.label
    return table


def compile_table(
    cases: Sequence[Case], expected: Mapping[ResultKey, str] = MappingProxyType({})
) -> Table:
    """Returns what `--compile-only` measured: medians over the processes, cold and warm.

    A phase that the stack cannot tell apart has no time of its own.
    """
    table = ruled_table()
    for heading in ("workload", "from", "backend"):
        table.add_column(heading, no_wrap=True)
    for heading in ("cold s (95 %)", "warm s", "trace", "lower", "compile", "hits", "peak MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("program", no_wrap=True)
    table.add_column("status")
    for case in cases:
        metrics = case.metrics
        compiled = metrics.compile or Compile(cold_ms=(), warm_ms=())
        cold = [item for item in compiled.processes if item.cold]
        hits = [item.cache_hits for item in compiled.processes if not item.cold]
        known_hits = [count for count in hits if count is not None]
        table.add_row(
            case.label,
            case.framework,
            case.competitor,
            _seconds_with_interval(compiled.cold_ms),
            _median_s(compiled.warm_ms),
            _median_s([item.trace_ms for item in cold]),
            _median_s([item.lower_ms for item in cold]),
            _median_s([item.compile_ms for item in cold]),
            digits(statistics.median(known_hits)) if known_hits else "-",
            _mebibytes(metrics.host_memory_peak_mb),
            _program(metrics.program),
            status_text(case.result, expected),
        )
    return table


def package_differences(results: Iterable[Result]) -> list[str]:
    """Returns lines that say in what the packages of the environments of a run differ."""
    found: dict[str, dict[str, str]] = {}
    for result in results:
        if environment := result.definition.environment:
            found.setdefault(environment.name, {}).update(result.versions)
    if len(found) < 2:
        return []
    every = {package for versions in found.values() for package in versions}
    names = [
        name for name in sorted(every) if len({other.get(name) for other in found.values()}) > 1
    ]
    if not names:
        return [f"{', '.join(found)}: the same versions of all packages that were imported"]
    return [
        f"{environment}: "
        + ", ".join(f"{name} {versions.get(name, 'not imported')}" for name in names)
        for environment, versions in found.items()
    ]


def digits(value: float, significant: int = 3) -> str:
    """Returns a number with so many significant digits, never in exponent form."""
    if value == 0:
        return "0"
    text = f"{value:.{significant}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def problem(
    result: Result,
    suites: Sequence[str],
    expected: Mapping[ResultKey, str] = MappingProxyType({}),
) -> Text:
    """Says what happened to which trial, in which phase, and what to type next."""
    definition, reason = result.definition, expected.get(result.key) or result.reason
    text = status_text(result, expected)
    text = Text.assemble(text, f"  {definition.model}  {definition.competitor}  ")
    text.append(f"in {result.phase}: {reason}")
    if result.status is Status.UNSUPPORTED:
        return text
    if result.log_file:
        text.append(f"\n    log:   {result.log_file}")
    text.append(f"\n    again: {again.command(result, '--verbose', suites=suites)}")
    return text


def latency_cell(case: Case) -> str:
    """Returns the latency with the interval over its processes; of one process, with its spread.

    For a script that told rates it is the rate.
    """
    metrics = case.metrics
    if metrics.median_ms is None:
        return "-"
    if metrics.throughput and metrics.throughput.rate:
        return f"{rate_text(metrics.throughput)} {metrics.throughput.units}"
    processes = [process.latencies_ms for process in metrics.processes or ()]
    if len(processes) > 1:
        return latency_text(latency_interval(processes))
    return f"{digits(metrics.median_ms)} ± {digits(metrics.mad_latency_ms or 0.0, 1)}"


def rate_text(throughput: Throughput) -> str:
    """Returns e.g. `637.1 (636.0-638.2)`; without the interval where there is one replicate."""
    return _figure_text(throughput.rate, throughput.rate_interval)


def script_name(result: Result) -> str:
    """Returns the name of a script, with that of the environment where several race."""
    definition = result.definition
    where = f"@{definition.environment.name}" if definition.environment else ""
    return f"{definition.model}{where}"


def share_text(throughput: Throughput) -> str:
    """Returns e.g. `0.93 (0.91-0.95)`: what a process keeps of its rate alone beside the others."""
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
    """Returns what a program reached at its model's task, and what the float64 model does."""
    found = metrics.accuracy
    if not found:
        return "-"
    return f"{found} ({attrs.evolve(found, value=found.reference)})"


def _mebibytes(megabytes: float | None) -> str:
    return "-" if megabytes is None else f"{megabytes * 1e6 / 2**20:.0f}"


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Returns the table of `cbs compare`."""
    table = ruled_table()
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=heading != "why")
    for row in table_rows(comparisons):
        table.add_row(*row)
    return table


def ratio_cells(cases: Sequence[Case], baseline: str | None) -> list[tuple[str, ...]]:
    """Returns speed-up and verdict of each case; nothing without a baseline."""
    if baseline is None:
        return [()] * len(cases)
    found = {
        (item.workload, item.competitor, item.framework, item.device): item
        for item in compare_to_baseline(cases, baseline)
    }
    return [_verdict(case, found.get((case.workload, *case.runner)), baseline) for case in cases]


def _verdict(case: Case, comparison: Comparison | None, baseline: str) -> tuple[str, str]:
    if case.competitor == baseline:
        return "1" if case.status is Status.OK else "-", "baseline"
    if comparison is None or comparison.ratio is None:
        # Not to be ranked beside the others, e.g. since it computes in another precision.
        apart = comparison is not None and comparison.fate is Fate.INCOMPARABLE
        return "-", comparison.verdict.value if comparison and apart else "-"
    return speedup_text(comparison.ratio), comparison.word


def ruled_table() -> Table:
    """Returns an empty table with lines between its sections and none between its columns."""
    return Table(box=box.HORIZONTALS, pad_edge=False)
