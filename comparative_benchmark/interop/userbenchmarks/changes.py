"""Changes between metrics documents, from one or several runs of a userbenchmark per side.

They are written in the form of TorchBench's regression files. Two single runs cannot distinguish a
change from chance. Several alternating runs give each metric a confidence interval, and Holm's
correction controls false positives across metrics, as in `cbs compare`.
"""

import dataclasses
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import msgspec

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
from comparative_benchmark.interop.userbenchmarks.authoring import threshold_detector
from comparative_benchmark.interop.userbenchmarks.runner import (
    Document,
    MetricsError,
    Userbenchmark,
    UserbenchmarkError,
    detect,
    metrics_files,
    read_metrics,
)
from comparative_benchmark.reporting.writers import regression_document
from comparative_benchmark.terminal.screen import escaped, row

Value: TypeAlias = int | float | str
# Metrics for which larger values are better; for all others, smaller values are.
_MORE_IS_BETTER = re.compile(r"throughput|tokens_per_s|speedup|score|per_second|accuracy")
# Statuses that are not failures.
_FINE = ("ok", "pass", "pass_due_to_skip")

# Smaller relative changes of a metric are not reported.
THRESHOLD = 0.03
_HEADINGS = ("metric", "base", "head", "change", "98 % interval", "result")


@attrs.frozen(kw_only=True)
class Signal:
    """A metric that changed."""

    metric: str
    control: Value
    treatment: Value
    delta: Value

    @property
    def is_worse(self) -> bool:
        """Whether it became worse; a failure status instead of a number is worse."""
        if isinstance(self.treatment, str):
            return self.treatment not in _FINE
        if isinstance(self.control, str):
            return False
        grew = self.treatment > self.control
        return grew is not more_is_better(self.metric)

    @property
    def change(self) -> str:
        """The formatted change, e.g. `+12.0 %`."""
        return self.delta if isinstance(self.delta, str) else f"{self.delta:+.1%}"


@attrs.frozen(kw_only=True)
class Signals:
    """All changes between two documents."""

    name: str
    control_env: Mapping[str, Any]
    treatment_env: Mapping[str, Any]
    changes: tuple[Signal, ...]
    control_only: Mapping[str, Value]
    treatment_only: Mapping[str, Value]
    compared: int
    bisection: str = "pytorch"

    @property
    def regressions(self) -> list[Signal]:
        """The metrics that became worse."""
        return [signal for signal in self.changes if signal.is_worse]

    def as_document(self) -> dict[str, Any]:
        """Returns the content of the regression file."""
        return regression_document(
            self.name,
            control_env=self.control_env,
            treatment_env=self.treatment_env,
            details={
                signal.metric: {k: getattr(signal, k) for k in ("control", "treatment", "delta")}
                for signal in self.changes
            },
            control_only=self.control_only,
            treatment_only=self.treatment_only,
            bisection=self.bisection,
        )


class _Detail(msgspec.Struct):
    control: Value
    treatment: Value
    delta: Value


class _Answer(msgspec.Struct):
    """The result of a detector; see `TorchBenchABTestResult`."""

    details: dict[str, _Detail]
    control_env: dict[str, Any] | None = None
    treatment_env: dict[str, Any] | None = None
    bisection: str | None = None


def more_is_better(metric: str) -> bool:
    """Returns whether larger values of a metric are better."""
    return bool(_MORE_IS_BETTER.search(metric.rpartition("metric=")[2]))


def compare(benchmark: Userbenchmark | None, control: Document, treatment: Document) -> Signals:
    """Returns the changes found by the userbenchmark's own detector, or else the default one.

    Raises:
      MetricsError: the documents belong to different userbenchmarks.
      UserbenchmarkError: the detector fails, or returns an invalid result.
    """
    _check_names(control, treatment)
    shared = [name for name in control["metrics"] if name in treatment["metrics"]]
    old, new = (
        {**document, "metrics": {name: document["metrics"][name] for name in shared}}
        for document in (control, treatment)
    )
    if benchmark is not None and benchmark.has_detector:
        answer = detect(benchmark, old, new)
    else:
        answer = dataclasses.asdict(threshold_detector(old, new))
    return _signals(answer, control, treatment, len(shared))


def _check_names(control: Document, treatment: Document) -> None:
    if control["name"] != treatment["name"]:
        raise MetricsError(
            f"the metrics belong to different userbenchmarks: {control['name']!r} and "
            f"{treatment['name']!r}"
        )


def issue_text(signals: Signals, owners: tuple[str, ...] = ()) -> str:
    """Returns the text of an issue about regressions, with the sections of TorchBench's."""

    def revision(environ: Mapping[str, Any]) -> str:
        names = ("git_commit_hash", "pytorch_git_version", "suite_git_revision")
        known = [str(environ[name]) for name in names if name in environ]
        return next((text for text in known if text != "<unknown>"), "unknown")

    lines = [
        f"The userbenchmark {escaped(signals.name)} has detected a performance signal.",
        "",
        f"Base commit: {escaped(revision(signals.control_env))}",
        "",
        f"Affected commit: {escaped(revision(signals.treatment_env))}",
        "",
        "Affected tests:",
        *(f"- {escaped(signal.metric)}: {escaped(signal.change)}" for signal in signals.changes),
        "",
        "Tests that were no longer run on the affected commit:",
        *(f"- {escaped(f'{name}: {value}')}" for name, value in signals.control_only.items()),
        "",
        "Tests that were newly added on the affected commit:",
        *(f"- {escaped(f'{name}: {value}')}" for name, value in signals.treatment_only.items()),
        "",
    ]
    if owners:
        lines += [f"cc {' '.join(owners)}", ""]
    return "\n".join(lines)


def _signals(answer: Any, control: Document, treatment: Document, compared: int) -> Signals:
    try:
        result = msgspec.convert(answer or {"details": {}}, _Answer)
    except msgspec.ValidationError as error:
        raise UserbenchmarkError(
            f"the detector for {control['name']!r} returned an invalid result: {error}"
        ) from error
    return Signals(
        name=control["name"],
        control_env=result.control_env or control["environ"],
        treatment_env=result.treatment_env or treatment["environ"],
        changes=tuple(
            Signal(metric=name, control=item.control, treatment=item.treatment, delta=item.delta)
            for name, item in result.details.items()
        ),
        control_only=_only(control, treatment),
        treatment_only=_only(treatment, control),
        compared=compared,
        bisection=result.bisection or "pytorch",
    )


def _only(one: Document, other: Document) -> dict[str, Value]:
    return {name: v for name, v in one["metrics"].items() if name not in other["metrics"]}


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
    _check_names(control[0], treatment[0])
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
    signals = Signals(
        name=control[0]["name"],
        control_env=control[-1]["environ"],
        treatment_env=treatment[-1]["environ"],
        changes=tuple(item.signal for item in rows if item.signal is not None),
        control_only=gone,
        treatment_only=added,
        compared=len(shared),
    )
    return signals, rows


def as_markdown(headline: str, rows: Sequence[Compared], runs: int) -> str:
    """Returns a headline and a table of all metrics, the changed ones first."""
    order = ("worse", "missing", "better", "unclear", "new", "same")
    ranked = sorted(rows, key=lambda item: order.index(item.result))
    lines = [headline, "", row(_HEADINGS), row(["---"] * len(_HEADINGS))]
    lines += [row(_cells(item)) for item in ranked]
    required = f" Detecting a change requires {DECISIVE_PROCESSES} runs per side."
    enough = "" if runs >= DECISIVE_PROCESSES else required
    lines += ["", escaped(f"{runs} run{'s' if runs != 1 else ''} per side.") + enough]
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
    """Returns the values of each metric, one for each run."""
    names = dict.fromkeys(name for document in documents for name in document["metrics"])
    return {name: [each["metrics"].get(name, "missing") for each in documents] for name in names}


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
    item = Compared(metric=name, old=means[0], new=means[1], interval=interval)
    if outcome is Verdict.SAME:
        return attrs.evolve(item, result="same")
    if (name, outcome) not in beyond_chance:
        return item
    return _changed(item, interval.estimate - 1)


def _by_values(name: str, old: Sequence[Value], new: Sequence[Value]) -> Compared:
    """Compares statuses, and numbers without a ratio, whose ranges must not overlap."""
    before, after = _middle(old), _middle(new)
    item = Compared(metric=name, old=before, new=after)
    if isinstance(before, str) or isinstance(after, str):
        if before == after:
            return attrs.evolve(item, result="same")
        return _changed(item, f"{before} -> {after}")
    ours = [float(value) for value in old]
    theirs = [float(value) for value in new]
    if {*ours, *theirs} == {ours[0]}:
        return attrs.evolve(item, result="same")
    enough = min(len(ours), len(theirs)) >= DECISIVE_PROCESSES
    if enough and (max(ours) < min(theirs) or max(theirs) < min(ours)):
        return _changed(item, f"{before:.4g} -> {after:.4g}")
    return item


def _changed(item: Compared, delta: Value) -> Compared:
    assert item.old is not None
    assert item.new is not None
    signal = Signal(metric=item.metric, control=item.old, treatment=item.new, delta=delta)
    return attrs.evolve(item, signal=signal, result="worse" if signal.is_worse else "better")
