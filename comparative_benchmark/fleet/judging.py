"""Verdicts on classes of machines, and slow nodes, from collected results."""

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
from msgspec import UNSET

from comparative_benchmark.analysis.stats.analysis import (
    NOISE_THRESHOLD,
    VERDICT_LEVEL,
    LogRatio,
    Verdict,
    holm,
)
from comparative_benchmark.analysis.stats.nodes import (
    NodesRatio,
    OneNode,
    belongs_to_one_node,
    class_ratio,
)
from comparative_benchmark.analysis.stats.slow_nodes import SlowNodes, slow_nodes
from comparative_benchmark.results.case import Case, cases_of, latest
from comparative_benchmark.results.comparing.compare import (
    Family,
    compare_documents,
    usual_baseline,
)
from comparative_benchmark.results.comparing.comparison import Comparison
from comparative_benchmark.results.record import Document

# Workload, an empty text (frameworks compete with each other), device and quantity.
_Contest = tuple[str, str, str, str]


@attrs.frozen(kw_only=True)
class ClassVerdict:
    """A competitor compared with the baseline, or with an earlier night, on one class.

    Attributes:
      machine_class: name of the class.
      label: the workload as shown in tables.
      device: device of the class's machines.
      competitor: the competitor.
      framework: framework of its model.
      ratio: its latency over the baseline's, with the nodes as replicates.
      verdict, reason: the verdict on the class; `unclear` if it is not significant among all pairs
        of the workload's competitors.
      one_node: the only node that shows a difference; None without one.
    """

    machine_class: str
    label: str
    device: str
    competitor: str
    framework: str
    ratio: NodesRatio
    verdict: Verdict
    reason: str
    one_node: OneNode | None


def class_verdicts(
    document: Document, baseline: str | None = None, *, threshold: float = NOISE_THRESHOLD
) -> list[ClassVerdict]:
    """Returns a verdict for each workload, competitor and class; classes are never averaged.

    Ratios come from single jobs, whose competitors raced on one machine. Disturbed races and
    trials that are not ranked do not count.

    Args:
      document: collected results.
      baseline: the competitor to compare with; by default the same as `cbs show`.
      threshold: smaller differences are not relevant.
    """
    verdicts: list[ClassVerdict] = []
    for machine_class, contests in _jobs(cases_of(document)).items():
        for jobs in contests.values():
            everyone = [case for cases in jobs.values() for case in cases]
            base = baseline or usual_baseline(everyone)
            if base is not None:
                verdicts += _verdicts(machine_class, list(jobs.values()), base, threshold)
    return verdicts


def changes(
    before: Document, after: Document, *, threshold: float = NOISE_THRESHOLD
) -> list[ClassVerdict]:
    """Returns how each competitor changed between two nights on each class.

    A change that only one node shows belongs to the node, not to the program.
    """
    places = {
        case.device: case
        for document in (before, after)
        for case in cases_of(document)
        if case.allocation is not None
    }
    groups: defaultdict[tuple[str, ...], dict[str, list[LogRatio]]] = defaultdict(dict)
    labels: dict[tuple[str, ...], Comparison] = {}
    for item in compare_documents(before, after, threshold=threshold):
        case = places.get(item.device)
        if case is None or case.allocation is None or not _counts(item) or item.log_ratio is None:
            continue
        where, device = case.allocation, case.result.definition.device
        place, runner = (where.machine_class, device), (item.competitor, item.framework)
        key = (*place, *runner, item.workload, item.quantity)
        groups[key].setdefault(where.node, []).append(item.log_ratio)
        labels[key] = item
    return [
        _judged(key[0], labels[key].label, key[1], key[2], key[3], by_node, threshold)
        for key, by_node in groups.items()
    ]


def slow_nodes_by_class(documents: Iterable[Document]) -> dict[str, SlowNodes]:
    """Returns the slow nodes of each class, by the canaries of all jobs.

    A night is a campaign; without one it is the day on which the job started.
    """
    readings: defaultdict[str, dict[str, dict[str, dict[str, list[float]]]]] = defaultdict(dict)
    for document in documents:
        seen: set[tuple[str, str, str]] = set()
        for run in document.runs:
            where = run.allocation
            if where is UNSET or where.exclusive is False:
                continue
            night = where.campaign or run.trigger.timestamp[:10]
            for canary, rate in where.canaries.items():
                # Jobs of one batch have the same reading.
                reading = (where.node, night, f"{canary} {rate}")
                if reading not in seen:
                    seen.add(reading)
                    nights = readings[where.machine_class].setdefault(canary, {})
                    nights.setdefault(where.node, {}).setdefault(night, []).append(rate)
    return {name: slow_nodes(canaries, rates=list(canaries)) for name, canaries in readings.items()}


def _jobs(cases: Sequence[Case]) -> dict[str, dict[_Contest, dict[str, list[Case]]]]:
    """Returns the latest cases by class, contest, and job on a node."""
    jobs: dict[str, dict[_Contest, dict[str, list[Case]]]] = {}
    by_job: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if (where := case.allocation) is not None:
            by_job[f"{where.job} {where.attempt} {where.node}"].append(case)
    for job, members in by_job.items():
        for case in latest(members):
            where = case.allocation
            assert where is not None
            device = case.result.definition.device
            contest = (case.workload, "", device, case.quantity)
            jobs.setdefault(where.machine_class, {}).setdefault(contest, {}).setdefault(
                job, []
            ).append(case)
    return jobs


def _verdicts(
    machine_class: str, jobs: Sequence[Sequence[Case]], baseline: str, threshold: float
) -> list[ClassVerdict]:
    """Returns the verdicts of one workload; they hold among all pairs of its competitors.

    The baseline is the one of the same framework, or the only one, as in `compare_to_baseline`.
    """
    pairs: defaultdict[tuple[tuple[str, str], tuple[str, str]], dict[str, list[LogRatio]]] = (
        defaultdict(dict)
    )
    label = device = ""
    bases = {case.framework for cases in jobs for case in cases if case.competitor == baseline}
    for cases in jobs:
        family = Family(cases, threshold=threshold)
        for old, new in _ordered_pairs(cases, baseline):
            item = family.comparison(old, new)
            if _counts(item) and item.log_ratio is not None and new.allocation is not None:
                label, device = new.label, new.result.definition.device
                names = ((old.competitor, old.framework), (new.competitor, new.framework))
                pairs[names].setdefault(new.allocation.node, []).append(item.log_ratio)
    judged = {
        names: _judged(machine_class, label, device, *names[1], by_node, threshold)
        for names, by_node in pairs.items()
    }
    p_values = [item.ratio.ratio.p_value if item.ratio.ratio else None for item in judged.values()]
    significant = dict(zip(judged, holm(p_values, 1 - VERDICT_LEVEL), strict=True))
    return [
        item
        if significant[names] or item.verdict not in (Verdict.FASTER, Verdict.SLOWER)
        else attrs.evolve(
            item,
            verdict=Verdict.UNCLEAR,
            reason=f"not significant among the {len(judged)} pairs of competitors in this class",
        )
        for names, item in judged.items()
        if names[0][0] == baseline and (names[0][1] == names[1][1] or len(bases) == 1)
    ]


def _ordered_pairs(cases: Sequence[Case], baseline: str) -> Iterator[tuple[Case, Case]]:
    """Yields each pair of competitors once; the baseline comes first, else the lesser name."""

    def rank(case: Case) -> tuple[bool, str, str]:
        return case.competitor != baseline, case.competitor, case.framework

    for old, new in itertools.combinations(sorted(cases, key=rank), 2):
        if old.competitor != baseline or new.competitor != baseline:
            yield old, new


def _judged(
    machine_class: str,
    label: str,
    device: str,
    competitor: str,
    framework: str,
    by_node: Mapping[str, Sequence[LogRatio]],
    threshold: float,
) -> ClassVerdict:
    ratio = class_ratio(by_node, threshold=threshold)
    alone = belongs_to_one_node(by_node, threshold=threshold)
    return ClassVerdict(
        machine_class=machine_class,
        label=label,
        device=device,
        competitor=competitor,
        framework=framework,
        ratio=ratio,
        verdict=ratio.verdict,
        reason=alone.reason if alone and ratio.verdict is Verdict.UNCLEAR else ratio.reason,
        one_node=alone,
    )


def _counts(item: Comparison) -> bool:
    """Returns whether a comparison may count: disturbed and quantised ones do not."""
    return item.log_ratio is not None and not item.disturbed and not item.arithmetic
