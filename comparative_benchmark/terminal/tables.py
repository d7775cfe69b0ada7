"""Tables of results and comparisons, for a terminal."""

import statistics
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from comparative_benchmark.results.compare import Comparison, Fate, compare_to_baseline
from comparative_benchmark.results.records import Record, competitor_of, metrics_of
from comparative_benchmark.results.roofs import shares_of_roof
from comparative_benchmark.roofline.ceilings import Ceilings
from comparative_benchmark.stats.statistics import latency_interval
from comparative_benchmark.terminal.compare_views import (
    HEADINGS,
    latency_text,
    ratio_text,
    table_rows,
)
from openxla.benchmark.artifacts.user_inputs import PREFIX
from openxla.benchmark.testdata import INPUT_DATA_MODEL_DEFAULT

_STYLES = {"ok": "green", "unsupported": "yellow", "unsteady": "yellow", "expected": "yellow"}
_FAILED_STYLE = "red"
_COMPILE_PHASES = ("trace", "lower", "compile")

Identity = tuple[str, str, str, str]


def style_of(status: str) -> str:
    """Returns the colour of a status."""
    return _STYLES.get(status, _FAILED_STYLE)


def results_table(
    records: Sequence[Record], *, baseline: str | None = None, ceilings: Sequence[Ceilings] = ()
) -> Table:
    """Returns a table of results; only a right answer has a time.

    With a baseline there are ratios (candidate / baseline) and verdicts; with the devices'
    ceilings there are shares of the roof.
    """
    table = Table(title=None, pad_edge=False)
    table.add_column("workload", no_wrap=True)
    table.add_column("from")
    table.add_column("backend", no_wrap=True)
    ratios, roofs = _ratios(records, baseline), shares_of_roof(records, ceilings)
    headings = ["latency ms", *([f"x {baseline} (98 %)", "verdict"] if baseline else [])]
    headings += ["compile s", "peak MiB", *(["of roof"] if any(roofs) else []), "rel. error"]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("status")
    previous = None
    for record, roof in zip(records, roofs, strict=True):
        definition, metrics = record["definition"], metrics_of(record)
        label = definition["workload"]["label"]
        if previous not in (None, label):
            table.add_section()
        status = record["status"]
        table.add_row(
            label if label != previous else "",
            definition["framework"].rpartition(".")[2].lower(),
            competitor_of(definition),
            _latency(metrics),
            *(_verdict(definition, ratios, baseline) if baseline else ()),
            _compile_time(definition, metrics),
            _scaled(metrics["host_memory_peak_mb"], 1e6 / 2**20, "{:.0f}"),
            *([roof or "-"] if any(roofs) else ()),
            _error(metrics),
            Text(status, style=style_of(status)),
        )
        previous = label
    return table


def compile_table(records: Sequence[Record]) -> Table:
    """Returns what `--compile-only` measured: medians over the processes, cold and warm.

    A phase that the stack can not tell apart has no time of its own.
    """
    table = Table(pad_edge=False)
    for heading in ("workload", "from", "backend"):
        table.add_column(heading, no_wrap=True)
    for heading in ("cold s (95 %)", "warm s", "trace", "lower", "compile", "hits", "peak MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("program", no_wrap=True)
    table.add_column("status")
    for record in records:
        definition, metrics = record["definition"], metrics_of(record)
        compiled, program = metrics["compile"], metrics["program"]
        cold = [item for item in compiled["processes"] if item["cold"]]
        warm = [item for item in compiled["processes"] if not item["cold"]]
        hits = [item["cache_hits"] for item in warm if item["cache_hits"] is not None]
        status = record["status"]
        table.add_row(
            definition["workload"]["label"],
            definition["framework"].rpartition(".")[2].lower(),
            competitor_of(definition),
            _seconds_with_interval(compiled["cold_ms"]),
            _median_s(compiled["warm_ms"]),
            *(_median_s([item[f"{name}_ms"] for item in cold]) for name in _COMPILE_PHASES),
            digits(statistics.median(hits)) if hits else "-",
            _scaled(metrics["host_memory_peak_mb"], 1e6 / 2**20, "{:.0f}"),
            _program(program),
            Text(status, style=style_of(status)),
        )
    return table


def package_differences(records: Sequence[Record]) -> list[str]:
    """Returns lines that say in what the packages of the environments of a run differ."""
    found: dict[str, dict[str, str]] = {}
    for record in records:
        if environment := record["definition"].get("environment"):
            found.setdefault(environment["name"], {}).update(record["versions"])
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


def problem(record: Record, suites: Sequence[str]) -> Text:
    """Says what happened to which trial, in which phase, and what to type next."""
    definition, status = record["definition"], record["status"]
    backend = f"{definition['backend']}:{definition['compiler']}"
    environment = definition.get("environment")
    text = Text()
    text.append(status, style=style_of(status))
    what = f"{definition['model']}  {competitor_of(definition)}"
    text.append(f"  {what}  in {record['phase']}: {record['reason']}")
    if status == "unsupported":
        return text
    if record["log_file"]:
        text.append(f"\n    log:   {record['log_file']}")
    name = definition["benchmark_name"]
    # A user's own inputs are in no catalogue: the model's usual ones are replaced by them.
    is_given = definition["input_data"].startswith(PREFIX)
    if is_given:
        name = f"models/{definition['model']}/inputs/{INPUT_DATA_MODEL_DEFAULT}"
    text.append(
        f"\n    again: cbs run --backend {backend} -name '{name}' "
        f"-device {definition['device']} -o again.json --verbose"
        + (f" --inputs {definition['input_source']}" if is_given else "")
        + "".join(f" --suite {suite}" for suite in suites)
        + (f" --env {environment['name']}={environment['python']}" if environment else "")
    )
    return text


def _latency(metrics: Record) -> str:
    median = metrics.get("median_latency_ms")
    if median is None:
        return "-"
    processes = [
        [value for block in process["blocks"] for value in block["latencies_ms"]]
        for process in metrics.get("processes", [])
    ]
    if len(processes) > 1:
        return latency_text(latency_interval(processes, seed=0))
    spread = metrics.get("mad_latency_ms") or 0.0
    return f"{digits(median)} ± {digits(spread, 1)}"


def _compile_time(definition: Record, metrics: Record) -> str:
    if definition["compiler"] == "eager":
        return "none"
    cold = _scaled(metrics["compile_time_ms"], 1e-3, "{:.2f}")
    warm = [value for value in metrics.get("warm_compile_time_ms", []) if value is not None]
    return f"{cold} / {statistics.median(warm) / 1e3:.2f}" if warm else cold


def _median_s(times_ms: Sequence[float | None]) -> str:
    known = [value for value in times_ms if value is not None]
    return digits(statistics.median(known) / 1e3) if known else "-"


def _seconds_with_interval(times_ms: Sequence[float]) -> str:
    if len(times_ms) < 3 or not all(value > 0 for value in times_ms):
        return _median_s(times_ms)
    return latency_text(latency_interval([[value / 1e3] for value in times_ms], seed=0))


def _program(program: Record) -> str:
    size, digest = program.get("artifact_size_bytes"), program.get("artifact_sha256")
    parts = [f"{size / 1024:.0f} KiB" if size else "", f"sha256 {digest[:8]}" if digest else ""]
    return " ".join(filter(None, parts)) or "-"


def _error(metrics: Record) -> str:
    verification: dict[str, Any] | None = metrics["final_verification"] or metrics["verification"]
    error = verification["relative_rmse"] if verification else None
    if verification and verification.get("sqnr_db") is not None:
        return f"{verification['sqnr_db']:.0f} dB"
    return "-" if error is None else f"{error:.1e}"


def _scaled(value: float | None, factor: float, form: str) -> str:
    return "-" if value is None else form.format(value * factor)


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Returns the table of `cbs compare`."""
    table = Table(pad_edge=False)
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=heading != "why")
    for row in table_rows(comparisons):
        table.add_row(*row)
    return table


def _identity(definition: Record) -> Identity:
    return (
        definition["workload"]["digest"],
        definition["framework"].rpartition(".")[2].lower(),
        competitor_of(definition),
        definition["device"],
    )


def _ratios(records: Sequence[Record], baseline: str | None) -> dict[Identity, Comparison]:
    comparisons = compare_to_baseline(records, baseline) if baseline else []
    return {
        (
            item.workload,
            item.framework.rpartition(".")[2].lower(),
            item.competitor,
            item.device,
        ): item
        for item in comparisons
    }


def _verdict(
    definition: Record, ratios: dict[Identity, Comparison], baseline: str | None
) -> tuple[str, str]:
    if competitor_of(definition) == baseline:
        return "1", "baseline"
    comparison = ratios.get(_identity(definition))
    if comparison is None or comparison.ratio is None:
        # Not to be ranked beside the others, e.g. since it computes in another precision.
        apart = comparison is not None and comparison.fate is Fate.INCOMPARABLE
        return "-", comparison.verdict.value if comparison and apart else "-"
    return ratio_text(comparison.ratio), comparison.verdict.value
