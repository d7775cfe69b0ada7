"""Speeds relative to stored results, with confidence intervals, and their total score."""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import attrs
from rich.table import Table
from rich.text import Text

from comparative_benchmark.analysis.stats.analysis import (
    NOISE_THRESHOLD,
    Interval,
    LogRatio,
    mean_ratio,
)
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare import (
    Comparison,
    compare_documents,
    summarize_comparisons,
)
from comparative_benchmark.results.comparing.comparison import compared
from comparative_benchmark.results.comparing.comparison import exit_code as exit_code_of
from comparative_benchmark.results.record import Document, Result, Throughput
from comparative_benchmark.terminal.compare_views import ratio_text, speedup_text
from comparative_benchmark.terminal.screen import ruled_table
from comparative_benchmark.terminal.tables import script_name


@attrs.frozen(kw_only=True)
class Scored:
    """A benchmark in two files.

    Attributes:
      name: its name.
      old_rate, new_rate: None if it was not measured.
      speed: new over old, with a 98 % confidence interval; None if it cannot be computed.
    """

    name: str
    comparison: Comparison
    old_rate: float | None
    new_rate: float | None
    units: str
    weight: float
    speed: Interval | None


@attrs.frozen(kw_only=True)
class Scores:
    """All benchmarks, and their weighted geometric mean; None if none can be compared."""

    benches: tuple[Scored, ...]
    score: Interval | None


def compare(old: Document, new: Document, *, threshold: float) -> Scores:
    """Returns the speed of each benchmark relative to an older result, and the total score."""
    before, after = _throughputs(old), _throughputs(new)
    comparisons = compare_documents(_only_rates(old), _only_rates(new), threshold=threshold)
    names = {
        (result.definition.workload.label, result.definition.competitor): script_name(result)
        for result in (*old.benchmarks, *new.benchmarks)
    }
    scored = []
    for item in comparisons:
        name = names[item.label, item.competitor]
        known = after.get(name) or before.get(name)
        scored.append(
            Scored(
                name=name,
                comparison=item,
                old_rate=_rate(before.get(name)),
                new_rate=_rate(after.get(name)),
                units=known.units if known else "",
                weight=known.weight if known else 1.0,
                speed=item.ratio and item.ratio.inverse,
            )
        )
    return Scores(benches=tuple(scored), score=_score(scored))


def exit_code(scores: Scores) -> int:
    """Returns the exit code, as for `cbs compare`."""
    return exit_code_of(summarize_comparisons([item.comparison for item in scores.benches]))


def table(scores: Scores) -> Table:
    """Returns the table for a terminal."""
    shown = ruled_table()
    shown.add_column("bench", no_wrap=True)
    for heading in ("old", "new"):
        shown.add_column(heading, justify="right", no_wrap=True)
    shown.add_column("units", no_wrap=True)
    shown.add_column("speed (98 %)", justify="right", no_wrap=True)
    shown.add_column("weight", justify="right", no_wrap=True)
    shown.add_column("verdict")
    shown.add_column("why")
    for item in scores.benches:
        shown.add_row(
            item.name,
            _number(item.old_rate),
            _number(item.new_rate),
            item.units,
            ratio_text(item.speed),
            f"{item.weight:.2f}",
            Text(item.comparison.word),
            item.comparison.reason,
        )
    return shown


def lines(scores: Scores) -> list[str]:
    """Returns the lines below the table."""
    compared = sum(item.speed is not None for item in scores.benches)
    text = ratio_text(scores.score) if scores.score else "none"
    count = f"{compared} of {len(scores.benches)} benchmarks compared"
    return [f"Score relative to the baseline: {text} ({count})"]


def race_lines(results: Sequence[Result]) -> list[str]:
    """Returns a line with the relative speed of each environment after a benchmark's first one."""
    sides: defaultdict[str, list[Result]] = defaultdict(list)
    for result in results:
        sides[result.definition.model].append(result)
    lines = []
    for first, *others in sides.values():
        for other in others:
            item = compared(Case(result=first), Case(result=other), threshold=NOISE_THRESHOLD)
            speed = f"{speedup_text(item.ratio)} x the speed of {script_name(first)}"
            verdict = f"{speed}: {item.word}" if item.ratio else item.reason
            lines.append(f"{script_name(other)}: {verdict}")
    return lines


def as_document(scores: Scores) -> dict[str, Any]:
    """Returns all scores as JSON values."""

    def interval(value: Interval | None) -> dict[str, Any] | None:
        return attrs.asdict(value) if value else None

    return {
        "benchmarks": {
            item.name: {
                "old_rate": item.old_rate,
                "new_rate": item.new_rate,
                "units": item.units,
                "weight": item.weight,
                "speed": interval(item.speed),
                "verdict": item.comparison.verdict.value,
                "reason": item.comparison.reason,
            }
            for item in scores.benches
        },
        "score": interval(scores.score),
    }


def _throughputs(document: Document) -> dict[str, Throughput]:
    return {
        script_name(result): result.measured.throughput
        for result in document.benchmarks
        if isinstance(result.measured.throughput, Throughput)
    }


def _only_rates(document: Document) -> Document:
    rated = tuple(r for r in document.benchmarks if isinstance(r.measured.throughput, Throughput))
    return attrs.evolve(document, benchmarks=rated)


def _rate(throughput: Throughput | None) -> float | None:
    return throughput.rate if throughput else None


def _score(scored: Sequence[Scored]) -> Interval | None:
    """Returns the weighted geometric mean of speeds.

    Each logarithm and its errors are scaled by weight over mean weight, so that their plain mean is
    the weighted one.
    """
    ratios = [
        (item.comparison.log_ratio, item.weight)
        for item in scored
        if item.comparison.log_ratio is not None and item.weight > 0
    ]
    total = math.fsum(weight for _, weight in ratios)
    if not ratios:
        return None
    scaled = [_scaled(ratio, weight * len(ratios) / total) for ratio, weight in ratios]
    return mean_ratio([[ratio] for ratio in scaled]).inverse


def _scaled(ratio: LogRatio, factor: float) -> LogRatio:
    return attrs.evolve(
        ratio,
        estimate=ratio.estimate * factor,
        shared=tuple(term * factor for term in ratio.shared),
        own=tuple(term * factor for term in ratio.own),
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5g}"
