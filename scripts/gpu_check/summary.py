"""`summary.md`: findings and tables of all observations, to be read in a minute."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from comparative_benchmark.backends.api import backends
from comparative_benchmark.results.record import CompileProcess, Result
from comparative_benchmark.terminal.compare_views import speedup_text
from comparative_benchmark.terminal.screen import escaped, row
from gpu_check.observations import BASELINE, Observations, cold_and_warm

_DASH = "-"


def as_markdown(seen: Observations) -> str:
    """Returns the summary: facts and findings first, then one section for each kind of result."""
    device = seen.facts.get("GPU") or f"rehearsal on {seen.facts['device']}"
    sections = [(f"# GPU check: {device}", _facts)]
    sections += [("## Findings", _findings), ("## Steps", _steps)]
    for title, items, lines in (
        ("## Correctness", seen.cells, _matrix),
        ("## Measured", seen.results, _measured),
        ("## Verdicts", seen.comparisons, _verdicts),
        ("## Ceilings", seen.ceilings, _ceilings),
        ("## Planted faults", seen.faults, _faults),
        ("## Verdicts on pairs whose ratio is known", seen.pairs, _pairs),
        ("## Tests", seen.tests, _tests),
    ):
        if items:
            sections.append((title, lines))
    return "\n\n".join("\n".join([title, "", *lines(seen)]) for title, lines in sections) + "\n"


def _facts(seen: Observations) -> list[str]:
    return [f"- {name}: {text}" for name, text in seen.facts.items()]


def _findings(seen: Observations) -> list[str]:
    if not seen.findings:
        return ["No findings in the steps that ran."]
    return [f"- {escaped(finding)}" for finding in seen.findings]


def _steps(seen: Observations) -> list[str]:
    rows = [
        (item.step, item.title, item.ending.value, f"{item.seconds:.0f}", item.reason or "")
        for item in seen.outcomes
    ]
    return table(("step", "purpose", "ending", "s", "reason"), rows)


def _matrix(seen: Observations) -> list[str]:
    """Returns one row for each workload, and one column for each competitor and framework."""
    cells = [cell for cell in seen.cells if cell["case"] and not _is_foreign(cell)]
    columns = list(dict.fromkeys(map(_column, cells)))
    rows: dict[str, dict[str, str]] = {}
    for cell in cells:
        rows.setdefault(cell["label"], {})[_column(cell)] = _cell_status(cell)
    body = [(label, *(row.get(name, _DASH) for name in columns)) for label, row in rows.items()]
    caption = (
        "Error of the output against the float64 truth and the largest allowed error, both "
        "relative to the truth's root mean square. Other cells contain their status."
    )
    reasons = {
        (_column(cell), str(cell["reason"])): None
        for cell in cells
        if cell["status"] == "unsupported"
    }
    return [
        caption,
        "",
        *table(("workload", *columns), body),
        *([""] if reasons else []),
        *(f"- {name} is unsupported: {escaped(reason)}" for name, reason in reasons),
    ]


def _is_foreign(cell: Mapping[str, Any]) -> bool:
    """Returns whether the backend takes no models of that framework."""
    backend = backends().get(str(cell["competitor"]).partition(":")[0])
    if cell["status"] != "unsupported" or backend is None:
        return False
    return cell["framework"] not in {framework.value for framework in backend.suite_frameworks}


def _column(cell: Mapping[str, Any]) -> str:
    return f"{cell['competitor']} ({cell['framework']})"


def _cell_status(cell: Mapping[str, Any]) -> str:
    error, allowed = cell["relative_error"], cell["allowed_relative_error"]
    if cell.get("expected"):
        return "expected"
    if cell["status"] != "ok" or error is None:
        return str(cell["status"])
    return f"{error:.1e} of {allowed:.1e}" if allowed else f"{error:.1e}"


def _measured(seen: Observations) -> list[str]:
    headings = (
        *("model", "competitor", "status", "latency ms", "dispatch ms", "device clock ms"),
        *("device memory MB", "cold compile s", "warm compile s", "cache hits cold, warm", "TF32"),
        "share of the roof",
    )
    rows = [
        (*_measured_row(result), share or _DASH)
        for result, share in zip(seen.results, seen.shares, strict=True)
    ]
    return table(headings, rows)


def _measured_row(result: Result) -> tuple[str, ...]:
    metrics = result.measured
    cold, warm = cold_and_warm(result)
    return (
        result.definition.model,
        result.definition.competitor,
        result.status.value,
        _number(metrics.median_ms),
        _number(_median(metrics.dispatch_ms or ())),
        _number(_median(metrics.device_latencies_ms or ())),
        _number(metrics.device_memory_peak_mb),
        _number(_median([_compile_s(item) for item in cold])),
        _number(_median([_compile_s(item) for item in warm])),
        f"{_hits(cold)}, {_hits(warm)}",
        _switch(metrics.program.notes.get("tf32")),
    )


def _switch(value: object) -> str:
    return "on" if value is True else "off" if value is False else _DASH


def _verdicts(seen: Observations) -> list[str]:
    rows = [
        (item.label, item.competitor, speedup_text(item.ratio), item.word, item.reason)
        for item in seen.comparisons
    ]
    headings = ("workload", "competitor", f"speed-up over {BASELINE} (98 %)", "verdict", "reason")
    return table(headings, rows)


def _ceilings(seen: Observations) -> list[str]:
    ceilings = seen.ceilings
    if ceilings is None:
        return []
    rows = [
        (
            f"product {item.data_type}",
            f"{item.library} {item.version}",
            f"{item.gflops:.4g} GFLOP/s",
        )
        for item in ceilings.gemms
    ]
    rows += [
        ("copy", f"{item.library} {item.version}", f"{item.gb_per_s:.4g} GB/s")
        for item in ceilings.copies
    ]
    skipped = [f"- not measured: {escaped(reason)}" for reason in ceilings.skipped]
    return [*table(("what", "through", "best"), rows), *([""] if skipped else []), *skipped]


def _faults(seen: Observations) -> list[str]:
    rows = [
        (
            item["fault"],
            item["expected"],
            item["status"],
            "right" if item["right"] else "WRONG",
            str(item["reason"] or "")[:300],
        )
        for item in seen.faults
    ]
    return table(("fault", "expected", "actual", "", "reason"), rows)


def _pairs(seen: Observations) -> list[str]:
    rows = [
        (
            kind,
            str(counts["pairs"]),
            str(counts["right"]),
            str(counts["wrong"]),
            _widths(seen, kind),
        )
        for kind, counts in seen.pairs["kinds"].items()
    ]
    headings = ("pairs", "count", "right", "wrong", "half-widths of the 98 % intervals")
    share = seen.pairs["slow_down"]
    caption = (
        f"{seen.pairs['wanted']} pairs of each kind were planned. A slowed program takes "
        f"{share:.0%} longer per iteration. For equal programs, `unclear` is right. For "
        "slowed programs, it is neither right nor wrong."
    )
    return [caption, "", *table(headings, rows)]


def _widths(seen: Observations, kind: str) -> str:
    verdicts = [item for item in seen.pairs["verdicts"] if item["kind"] == kind]
    widths = [item["half_width"] for item in verdicts if item["half_width"] is not None]
    if not widths:
        return _DASH
    return f"median {statistics.median(widths):.2%}, maximum {max(widths):.2%}"


def _tests(seen: Observations) -> list[str]:
    tests = seen.tests
    if tests is None:
        return []
    counts = f"{tests.passed} passed, {len(tests.failed)} failed, {len(tests.skipped)} skipped"
    # Many tests are skipped for one reason.
    reasons = Counter(tests.skipped).items()
    skips = [f"- {count} skipped: {escaped(reason)}" for reason, count in reasons]
    return [counts, "", *(f"- {escaped(text)}" for text in tests.failed), *skips]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a Markdown table; cells may contain any text."""
    return [row(line) for line in (headings, ["---"] * len(headings), *rows)]


def _compile_s(item: CompileProcess) -> float | None:
    phases = (item.trace_ms, item.lower_ms, item.compile_ms)
    times = [value for value in phases if value is not None]
    return sum(times) / 1e3 if times else None


def _hits(compiles: Sequence[CompileProcess]) -> str:
    counts = [item.cache_hits for item in compiles if item.cache_hits is not None]
    return str(sum(counts)) if counts else _DASH


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _number(value: float | None) -> str:
    return _DASH if value is None else f"{value:.4g}"
