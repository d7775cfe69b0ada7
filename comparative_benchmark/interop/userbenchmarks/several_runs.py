"""Compares several runs of a userbenchmark per side.

Two single runs cannot distinguish a change from chance. Several alternating runs give each metric
a confidence interval, and Holm's correction controls false positives across metrics, as in
`cbs compare`.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.analysis.stats.analysis import (
    DECISIVE_PROCESSES,
    Interval,
    LogRatio,
    SampleError,
    Verdict,
    decisive,
    unpaired_ratio,
    verdict,
)
from comparative_benchmark.interop.userbenchmarks.processes import (
    Document,
    MetricsError,
    metrics_files,
    read_metrics,
)
from comparative_benchmark.interop.userbenchmarks.signals import Signal, Signals, Value
from comparative_benchmark.terminal.screen import escaped, row

# Smaller relative changes of a metric are not reported.
THRESHOLD = 0.03
_HEADINGS = ("metric", "base", "head", "change", "98 % interval", "result")


@attrs.frozen(kw_only=True)
class Compared:
    """A metric on both sides.

    Attributes:
      metric: its name.
      old: mean or median on the base, or a status; None if it is missing.
      new: the same on the head.
      interval: head over base; None without a ratio.
      signal: the change; None if it may be chance.
      result: `worse`, `better`, `same`, `unclear`, `missing` or `new`.
    """

    metric: str
    old: Value | None
    new: Value | None
    interval: Interval | None = None
    signal: Signal | None = None
    result: str = "unclear"


def read_runs(folder: Path) -> list[Document]:
    """Returns the metrics documents of a folder of runs, the oldest first.

    Raises:
      MetricsError: the folder has no runs, a file is damaged, or userbenchmarks are mixed.
    """
    paths = metrics_files(folder)
    if not paths:
        raise MetricsError(f"{folder} contains no metrics-*.json")
    first = read_metrics(paths[0])
    return [first, *(read_metrics(path, first["name"]) for path in paths[1:])]


def compare_runs(
    control: Sequence[Document], treatment: Sequence[Document]
) -> tuple[Signals, list[Compared]]:
    """Returns the significant changes from one side's runs to the other's, and all metrics.

    Raises:
      MetricsError: the sides belong to different userbenchmarks.
    """
    if control[0]["name"] != treatment[0]["name"]:
        raise MetricsError(
            f"the metrics belong to different userbenchmarks: {control[0]['name']!r} and "
            f"{treatment[0]['name']!r}"
        )
    old, new = _values(control), _values(treatment)
    shared = [name for name in old if name in new]
    ratios = {name: ratio for name in shared if (ratio := _ratio(old[name], new[name])) is not None}
    beyond_chance = {
        (name, direction)
        for direction in (Verdict.SLOWER, Verdict.FASTER)
        for name, is_one in zip(ratios, decisive(list(ratios.values()), direction), strict=True)
        if is_one
    }
    rows = [
        _by_ratio(name, old[name], new[name], ratios[name], beyond_chance)
        if name in ratios
        else _by_values(name, old[name], new[name])
        for name in shared
    ]
    gone = {name: _middle(values) for name, values in old.items() if name not in new}
    added = {name: _middle(values) for name, values in new.items() if name not in old}
    rows += [
        *(Compared(metric=n, old=v, new=None, result="missing") for n, v in gone.items()),
        *(Compared(metric=n, old=None, new=v, result="new") for n, v in added.items()),
    ]
    found = Signals(
        name=control[0]["name"],
        control_env=control[-1]["environ"],
        treatment_env=treatment[-1]["environ"],
        found=tuple(item.signal for item in rows if item.signal is not None),
        control_only=gone,
        treatment_only=added,
        compared=len(shared),
    )
    return found, rows


def as_markdown(headline: str, rows: Sequence[Compared], runs: int) -> str:
    """Returns a headline and a table of all metrics, the changed ones first."""
    order = ("worse", "missing", "better", "unclear", "new", "same")
    ranked = sorted(rows, key=lambda item: order.index(item.result))
    lines = [headline, "", row(_HEADINGS), row(["---"] * len(_HEADINGS))]
    lines += [row(_cells(item)) for item in ranked]
    enough = (
        ""
        if runs >= DECISIVE_PROCESSES
        else f" A change needs {DECISIVE_PROCESSES} runs of each side."
    )
    lines += ["", escaped(f"{runs} runs of each side.") + enough]
    return "\n".join(lines) + "\n"


def _cells(item: Compared) -> list[str]:
    def shown(value: Value | None) -> str:
        if value is None:
            return "-"
        return value if isinstance(value, str) else f"{value:.4g}"

    interval = item.interval
    limits = f"{interval.low - 1:+.1%} to {interval.high - 1:+.1%}" if interval else "-"
    change = f"{interval.estimate - 1:+.1%}" if interval else "-"
    if item.signal is not None:
        change = item.signal.change
    return [item.metric, shown(item.old), shown(item.new), change, limits, item.result]


def _values(documents: Sequence[Document]) -> dict[str, list[Value]]:
    """Returns the values of each metric, one for each run that has it."""
    found: dict[str, list[Value]] = {}
    for document in documents:
        metrics: Mapping[str, Value] = document["metrics"]
        for name, value in metrics.items():
            found.setdefault(name, []).append(value)
    return found


def _middle(values: Sequence[Value]) -> Value:
    """Returns the median, or the first status: a side that failed once has failed."""
    texts = [value for value in values if isinstance(value, str)]
    if texts:
        return texts[0]
    return statistics.median(value for value in values if not isinstance(value, str))


def _ratio(old: Sequence[Value], new: Sequence[Value]) -> LogRatio | None:
    """Returns head over base, or None for zeros, statuses and single runs."""
    if min(len(old), len(new)) < 2 or any(isinstance(value, str) for value in (*old, *new)):
        return None
    try:
        return unpaired_ratio([[float(v)] for v in new], [[float(v)] for v in old])
    except SampleError:
        return None


def _by_ratio(
    name: str,
    old: Sequence[Value],
    new: Sequence[Value],
    ratio: LogRatio,
    beyond_chance: set[tuple[str, Verdict]],
) -> Compared:
    interval = ratio.interval()
    outcome, _ = verdict(interval, threshold=THRESHOLD)
    # Geometric means, so that their quotient equals the ratio.
    means = [
        statistics.geometric_mean(v for v in side if not isinstance(v, str)) for side in (old, new)
    ]
    found = Compared(metric=name, old=means[0], new=means[1], interval=interval)
    if outcome is Verdict.SAME:
        return attrs.evolve(found, result="same")
    if (name, outcome) not in beyond_chance:
        return found
    return _changed(found, interval.estimate - 1)


def _by_values(name: str, old: Sequence[Value], new: Sequence[Value]) -> Compared:
    """Compares statuses, and numbers without a ratio, whose ranges must not overlap."""
    before, after = _middle(old), _middle(new)
    found = Compared(metric=name, old=before, new=after)
    if isinstance(before, str) or isinstance(after, str):
        if before == after:
            return attrs.evolve(found, result="same")
        return _changed(found, f"{before} -> {after}")
    ours = [float(value) for value in old]
    theirs = [float(value) for value in new]
    if {*ours, *theirs} == {ours[0]}:
        return attrs.evolve(found, result="same")
    enough = min(len(ours), len(theirs)) >= DECISIVE_PROCESSES
    if enough and (max(ours) < min(theirs) or max(theirs) < min(ours)):
        return _changed(found, f"{before:.4g} -> {after:.4g}")
    return found


def _changed(found: Compared, delta: Value) -> Compared:
    assert found.old is not None
    assert found.new is not None
    signal = Signal(metric=found.metric, control=found.old, treatment=found.new, delta=delta)
    return attrs.evolve(found, signal=signal, result="worse" if signal.is_worse else "better")
