"""Remarks on a comparison of two files: noise floor, withheld verdicts, drift."""

import statistics
from collections.abc import Iterable, Iterator, Sequence

import attrs
from msgspec import UNSET

from comparative_benchmark.analysis.stats.steadiness import later_change
from comparative_benchmark.analysis.verification.accuracy import LEVEL, Accuracy
from comparative_benchmark.results.case import (
    UNKNOWN,
    Case,
    cases_of,
    latest,
    matched,
    setting_differences,
)
from comparative_benchmark.results.comparing.comparison import Comparison, is_positive, mean_mhz
from comparative_benchmark.results.comparing.noise_floor import (
    NoiseFloor,
    NoiseFloorError,
    floor_text,
    load_noise_floor,
    noise_floor,
)
from comparative_benchmark.results.record import FIXED, CompileProcess, Document, Status
from openxla.benchmark.artifacts.workload_store import TruthSource

# A process that takes this many times as long as the median process is pointed out.
_SLOW = 2.0


def mixture_remarks(cases: Iterable[Case]) -> list[str]:
    """Returns remarks on differences between the competitors of a table that affect fairness."""
    cases = list(cases)
    good = [case for case in cases if case.status is Status.OK]
    lines = []
    frozen = _names(case for case in good if case.metrics.program.weights == "frozen")
    if frozen and any(case.metrics.program.weights not in (None, "frozen") for case in good):
        lines.append(
            f"Frozen weights, which a compiler can fold and prepack: {frozen}; the others pass "
            "weights as arguments or parameters."
        )
    bound = _names(case for case in good if case.metrics.program.outputs == "bound")
    if bound and any(case.metrics.program.outputs == "allocated" for case in good):
        lines.append(
            f"Outputs written to preallocated memory: {bound}; the others allocate outputs in each "
            "iteration."
        )
    # Stacks that count cache misses write the cache as part of compilation.
    compiled = [case for case in good if case.metrics.compile_time_ms]
    writing = [case for case in compiled if any(p.cache_misses for p in _cold(case))]
    if writing and len(writing) < len(compiled):
        lines.append(
            f"Compile times that include writing a cache: {_names(writing)}; the others do not."
        )
    for what, field in (
        ("Verified on only one input", "without_second"),
        (
            "Agreed with a plain run in the same data type, which proves less than a float64 run",
            "without_float64",
        ),
        ("Not timed on new inputs", "without_fresh_runs"),
        ("Not ranked", "not_ranked"),
        ("Truth readable by workers (not isolated)", "truth_not_isolated"),
    ):
        reasons: dict[str, list[Case]] = {}
        for case in good:
            if (reason := getattr(case.metrics, field)) is not UNSET:
                reasons.setdefault(reason, []).append(case)
        lines += [f"{what}: {_names(without)} ({why})." for why, without in reasons.items()]
    if integers := _names(case for case in good if case.metrics.judged_on_integers):
        lines.append(f"Verified only on integers, which do not test precision: {integers}.")
    lines += [*_changing(good), *_with_slow_process(good)]
    judged: dict[TruthSource, list[Case]] = {}
    for case in cases:
        source = case.metrics.truth_source
        if source is not UNSET and not source.built_in:
            judged.setdefault(source, []).append(case)
    lines += [f"Truth computed by {_judge(source)}: {_names(by)}." for source, by in judged.items()]
    return lines + list(dict.fromkeys(_remarks_on_truths(good)))


def _changing(cases: Iterable[Case]) -> Iterator[str]:
    """Yields a sentence on each fixed-count trial whose later iterations differ."""
    for case in cases:
        if case.metrics.stop_reason != FIXED or case.metrics.throughput:
            continue
        # Files from other tools may contain several such processes, or none.
        samples = [process.latencies_ms for process in case.metrics.processes or ()]
        if change := next(filter(None, map(later_change, samples)), None):
            first, second = change
            yield (
                f"{_names([case])} changed speed during the run: the median was {first:.3g} ms in "
                f"the first half and {second:.3g} ms in the second; omit -w and -iter, or warm up "
                "for longer."
            )


def _with_slow_process(cases: Iterable[Case]) -> Iterator[str]:
    """Yields a sentence on each result whose mean a single slow process dominates."""
    for case in cases:
        samples = [p.latencies_ms for p in case.metrics.processes or () if p.latencies_ms]
        medians = sorted(map(statistics.median, samples))
        if len(medians) > 2 and (times := medians[-1] / statistics.median(medians)) > _SLOW:
            yield (
                f"{_names([case])}: one of {len(medians)} processes took {times:.2g} times as long "
                "as the median process, and the mean includes it."
            )


def _remarks_on_truths(cases: Iterable[Case]) -> Iterator[str]:
    """Yields sentences on truths for which implementations disagreed."""
    for case in cases:
        check = case.metrics.truth_check
        if check is UNSET:
            continue
        for difference in check.in_doubt:
            yield f"Truth for {case.label} in doubt: {difference}; no output is reported as wrong."
        for difference in check.outvoted:
            yield f"Truth for {case.label} decided by two of three implementations: {difference}."


def _judge(source: TruthSource) -> str:
    if not source.backend:
        return f"the reference in the model's definition (package {source.distribution})"
    return f"the plug-in backend {source.backend} (package {source.distribution})"


def _cold(case: Case) -> list[CompileProcess]:
    compiled = case.metrics.compile
    return [] if compiled is UNSET else [process for process in compiled.processes if process.cold]


def _names(cases: Iterable[Case]) -> str:
    return ", ".join(sorted({f"{case.competitor} ({case.framework})" for case in cases}))


# Perplexity ratios this close to 1 result from a different order of summation.
_NOTHING = 1e-4


def change_text(accuracy: Accuracy) -> str:
    """Returns the difference from the float64 model, as lost and gained classes or as a ratio.

    Empty if the result has no accuracy data.
    """
    if accuracy.lost is not None:
        changed = "" if accuracy.changed is None else f"{accuracy.changed} "
        return f"{changed}(-{accuracy.lost} +{accuracy.gained})"
    if accuracy.ratio is None:
        return ""
    return f"x{accuracy.ratio:.4f} ({accuracy.ratio_low:.4f}-{accuracy.ratio_high:.4f})"


def remarks_on(cases: Sequence[Case]) -> list[str]:
    """Returns intervals of accuracies, and the programs that differ from the float64 model.

    A program differs if it predicts another class for any example, or if its perplexity differs
    significantly. Programs that lose more than their task allows are marked.
    """
    about: dict[str, str] = {}
    lines = []
    for case in cases:
        accuracy = case.metrics.accuracy
        if not accuracy:
            continue
        if accuracy.low is not None:
            about.setdefault(accuracy.task, _about(accuracy))
        if accuracy.loses_too_much or _differs(accuracy):
            who = f"{case.label} from {case.framework} on {case.competitor}"
            lines.append(f"accuracy of {who}: {_verdict(accuracy)}")
    return [*about.values(), *lines]


def changes(pairs: Iterable[tuple[Case, Case]]) -> list[str]:
    """Returns a line for each pair of results whose accuracies differ."""
    lines = []
    for old, new in pairs:
        before, after = old.metrics.accuracy, new.metrics.accuracy
        if not before or not after or str(before) == str(after):
            continue
        lines.append(
            f"accuracy of {new.label} on {new.competitor}: {before} before, {after} now"
            + (f", {_too_much(after)}" if after.loses_too_much else "")
        )
    return lines


def _about(accuracy: Accuracy) -> str:
    """Returns a description of an accuracy: task, number of examples and interval."""
    ends = [str(attrs.evolve(accuracy, value=value)) for value in (accuracy.low, accuracy.high)]
    count = f"{accuracy.examples} {'examples' if accuracy.metric == 'top-1' else 'tokens'}"
    return (
        f"accuracy: {accuracy.metric} on {accuracy.task}, {count}: {accuracy}, "
        f"{LEVEL:.0%} interval {' to '.join(ends)}"
    )


def _differs(accuracy: Accuracy) -> bool:
    if accuracy.changed is not None:
        return accuracy.changed > 0
    if accuracy.ratio_low is None or accuracy.ratio_high is None:
        return accuracy.value is None
    return accuracy.ratio_low > 1 + _NOTHING or accuracy.ratio_high < 1 - _NOTHING


def _verdict(accuracy: Accuracy) -> str:
    text = f"{accuracy}, {attrs.evolve(accuracy, value=accuracy.reference)} in float64"
    if change := change_text(accuracy):
        text += f", {'changed ' if accuracy.metric == 'top-1' else 'ratio '}{change}"
    return f"{text}: {_too_much(accuracy)}" if accuracy.loses_too_much else text


def _too_much(accuracy: Accuracy) -> str:
    bound = 100 * (accuracy.most_lost or 0.0)
    unit = "point" + "s" * (bound != 1) if accuracy.metric == "top-1" else "%"
    return f"loses more than its task allows ({bound:g} {unit})"


# Runs that started within an hour of each other saw similar machine conditions.
_APART_S = 3600.0
_CONDITIONS = (
    *("hostname", "system", "governor", "usable_cpus", "pinned_cpus", "memory_bytes"),
    "python",
)
# A clock difference of 2 % is visible in latencies.
_CLOCK_APART = 0.02


@attrs.frozen(kw_only=True)
class Remarks:
    """Remarks on a comparison of two files.

    Attributes:
      noise_floor: noise floor of programs unchanged between the files; None without such programs.
      saved_noise_floor: noise floor of that machine saved by `cbs doctor --noise-floor`, if any.
      withheld: number of withheld verdicts, for any of the reasons in `Comparison.withheld`.
      drift: why the machine may have changed between the files; None without evidence.
      mixtures: differences between the compared programs that affect fairness.
      accuracies: programs whose accuracy has changed.
    """

    noise_floor: NoiseFloor | None
    saved_noise_floor: NoiseFloor | None
    withheld: int
    drift: str | None
    mixtures: Sequence[str] = ()
    accuracies: Sequence[str] = ()

    @property
    def lines(self) -> list[str]:
        """The remarks as sentences, drift last."""
        floors = {"noise floor": self.noise_floor, "saved noise floor": self.saved_noise_floor}
        changed = [f"{n}: {floor_text(f.pooled)}" for n, f in floors.items() if f and f.pooled]
        if self.withheld:
            changed.append(
                f"verdicts withheld: {self.withheld}; to see the ones whose difference the machine "
                "may have caused, use `cbs compare --count-unchanged`"
            )
        return [*changed, *self.mixtures, *self.accuracies, *([self.drift] if self.drift else [])]


def remarks(baseline: Document, candidate: Document, comparisons: Sequence[Comparison]) -> Remarks:
    """Returns remarks on the comparisons of two documents."""
    before, after = (latest(cases_of(document)) for document in (baseline, candidate))
    pairs = [(old, new) for old, new in matched(before, after) if old and new]
    try:
        floor = noise_floor([baseline, candidate])
    except NoiseFloorError:
        floor = None
    machines = {case.machine for case in (*before, *after)} - {UNKNOWN}
    return Remarks(
        noise_floor=floor if floor and floor.pooled else None,
        saved_noise_floor=load_noise_floor(next(iter(machines))) if len(machines) == 1 else None,
        withheld=sum(item.withheld is not None for item in comparisons),
        drift=_drift(pairs),
        mixtures=mixture_remarks(case for pair in pairs for case in pair),
        accuracies=changes(pairs),
    )


def _drift(pairs: Sequence[tuple[Case, Case]]) -> str | None:
    """Returns differences in time and conditions between the runs of compared cases."""
    gaps = [
        abs((new.started - old.started).total_seconds())
        for old, new in pairs
        if old.started and new.started
    ]
    signs = [f"measured {_duration(max(gaps))} apart"] if max(gaps, default=0) > _APART_S else []
    conditions = {text: None for old, new in pairs for text in _conditions(old, new)}
    signs += [*conditions, *_clocks(pairs)]
    if not signs:
        return None
    return (
        f"the machine may have changed between the files ({'; '.join(signs)}), and intervals do "
        "not cover such changes; to be sure, race baseline and candidate in one `cbs run`"
    )


def _conditions(old: Case, new: Case) -> Iterable[str]:
    if old.host is None or new.host is None:
        return
    for name in _CONDITIONS:
        values = [getattr(case.host, name) for case in (old, new)]
        if values[0] != values[1]:
            yield f"{name} {values[0]} vs {values[1]}"
    yield from setting_differences(old.metrics, new.metrics)


def _clocks(pairs: Sequence[tuple[Case, Case]]) -> Iterable[str]:
    both = [(mean_mhz(old.metrics), mean_mhz(new.metrics)) for old, new in pairs]
    known = [(old, new) for old, new in both if is_positive(old) and is_positive(new)]
    if known:
        before, after = (sum(side) / len(known) for side in zip(*known, strict=True))
        if abs(after / before - 1) > _CLOCK_APART:
            yield f"clocks {before:.0f} MHz vs {after:.0f} MHz"


def _duration(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours:.1f} hours" if hours < 48 else f"{hours / 24:.0f} days"
