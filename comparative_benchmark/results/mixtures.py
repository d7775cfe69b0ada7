"""What stands in one table and was not measured alike: said beside it, since no ratio shows it."""

from collections.abc import Iterable, Iterator

from msgspec import UNSET

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import FIXED, CompileProcess, Status
from comparative_benchmark.stats.steadiness import later_change
from openxla.benchmark.artifacts.workload_store import TruthSource


def mixture_remarks(cases: Iterable[Case]) -> list[str]:
    """Returns sentences on what the competitors of a table hold, or were asked, differently."""
    cases = list(cases)
    good = [case for case in cases if case.status is Status.OK]
    found = []
    frozen = _names(case for case in good if case.metrics.program.weights == "frozen")
    if frozen and any(case.metrics.program.weights not in (None, "frozen") for case in good):
        found.append(
            f"Frozen weights, which a compiler can fold and prepack: {frozen}; the others pass "
            "weights as arguments or parameters."
        )
    bound = _names(case for case in good if case.metrics.program.outputs == "bound")
    if bound and any(case.metrics.program.outputs == "allocated" for case in good):
        found.append(
            f"Outputs written to preallocated memory: {bound}; the others allocate outputs in each "
            "iteration."
        )
    # Stacks that count what their cache lacked write it before they return.
    compiled = [case for case in good if case.metrics.compile_time_ms]
    writing = [case for case in compiled if any(p.cache_misses for p in _cold(case))]
    if writing and len(writing) < len(compiled):
        found.append(
            f"Compile times that include writing a cache: {_names(writing)}; the others write none."
        )
    for what, field in (
        ("Verified on one input only", "without_second"),
        (
            "Agreed with a plain run in its own data type, which proves less than a float64 run",
            "without_float64",
        ),
        ("Not timed on new inputs", "without_fresh_runs"),
        ("Not ranked", "not_ranked"),
        ("Truth not isolated: workers could read it", "truth_not_isolated"),
    ):
        reasons: dict[str, list[Case]] = {}
        for case in good:
            if (reason := getattr(case.metrics, field)) is not UNSET:
                reasons.setdefault(reason, []).append(case)
        found += [f"{what}: {_names(without)} ({why})." for why, without in reasons.items()]
    if integers := _names(case for case in good if case.metrics.judged_on_integers):
        found.append(f"Judged only on integers, which do not test precision: {integers}.")
    found += _changing(good)
    judged: dict[TruthSource, list[Case]] = {}
    for case in cases:
        source = case.metrics.truth_source
        if source is not UNSET and not source.built_in:
            judged.setdefault(source, []).append(case)
    found += [f"Judged by {_judge(source)}: {_names(by)}." for source, by in judged.items()]
    return found + list(dict.fromkeys(_remarks_on_truths(good)))


def _changing(cases: Iterable[Case]) -> Iterator[str]:
    """Yields a sentence on each trial of fixed counts whose later iterations differ."""
    for case in cases:
        if case.metrics.stop_reason != FIXED or case.metrics.throughput:
            continue
        # A file of others may hold several such processes, or none.
        samples = [process.latencies_ms for process in case.metrics.processes or ()]
        if change := next(filter(None, map(later_change, samples)), None):
            first, second = change
            yield (
                f"{_names([case])} did not keep its speed: the first half of its iterations took "
                f"{first:.3g} ms, the second half {second:.3g} ms; omit -w and -iter, or warm up "
                "for longer."
            )


def _remarks_on_truths(cases: Iterable[Case]) -> Iterator[str]:
    """Yields sentences on truths for which implementations gave different results."""
    for case in cases:
        check = case.metrics.truth_check
        if check is UNSET:
            continue
        for difference in check.in_doubt:
            yield f"Truth of {case.label} in doubt: {difference}; no output is reported as wrong."
        for difference in check.outvoted:
            yield f"Truth of {case.label} from two of three implementations: {difference}."


def _judge(source: TruthSource) -> str:
    if not source.backend:
        return f"the reference in {source.distribution} that the model's definition names"
    return f"the plug-in backend {source.backend} from {source.distribution}"


def _cold(case: Case) -> list[CompileProcess]:
    found = case.metrics.compile
    return [] if found is UNSET else [process for process in found.processes if process.cold]


def _names(cases: Iterable[Case]) -> str:
    return ", ".join(sorted({f"{case.competitor} ({case.framework})" for case in cases}))
