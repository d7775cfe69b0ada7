"""Statistics over the nodes of a class: class verdicts, differences of one node, slow nodes.

Process, node and class are nested levels. A statement about a class must hold on another node of
the class, so the node is the unit of replication, as the process is on one machine: more processes
or more jobs on the same nodes carry no information about the next node. Nodes belong to one class
if their hardware and software are the same. Ratios of different classes are never averaged: call
these functions once per class, and print a table.

Ratios and readings are compared as logarithms. `benchmarks/fleet_statistics.py` simulates all
rules of this module, and prints where they fail.
"""

import math
import statistics
from collections.abc import Collection, Mapping, Sequence

import attrs
import numpy as np

from comparative_benchmark.analysis.stats.analysis import (
    CLOSE,
    NOISE_THRESHOLD,
    VERDICT_LEVEL,
    Array,
    Interval,
    LogRatio,
    SampleError,
    Verdict,
    mean_ratio,
    student_tail,
    verdict,
)

# Two nodes have one degree of freedom: their interval is 53 standard errors wide on each side.
MIN_NODES = 3
# A class can contain two kinds of nodes, and few nodes are all of one kind by chance. If the ratio
# of equals differs by 4 % between two equally frequent kinds, three nodes give 6 % false verdicts,
# five 5 %, six 3 % and eight 2 % (`benchmarks/fleet_statistics.py`).
CLOSE_VERDICT_NODES = 6

# A slow node is compared with at least three others.
MIN_COMPARED_NODES = 4
# The median of three nights: a neighbour of a single night must not name a node.
BLOCK_NIGHTS = 3
# Nights before these that are needed to know the usual speed of a node.
MIN_EARLIER_NIGHTS = 2 * BLOCK_NIGHTS
SLOW_NODE_THRESHOLD = 0.03
# Chance to name an equal node in one night, over all tests. The goal is one in 1,000; the rest is
# for neighbours and drift.
SLOW_NODE_ERROR = 0.0005

NodeRatios = Mapping[str, Sequence[LogRatio]]
# Readings of one canary: node, night (sorts by time), readings of that night.
NodeReadings = Mapping[str, Mapping[str, Sequence[float]]]


@attrs.frozen(kw_only=True)
class NodesRatio:
    """Candidate over baseline on a class of nodes.

    Attributes:
      ratio: ratio on the class, its nodes as replicates (`processes` counts nodes), for `decisive`
        and `mean_ratio`; None with a single node.
      by_node: ratio on each node, with the 98 % interval over its processes.
      node_variance: variance between nodes of the log ratio, without the noise of their processes;
        None with a single node.
      verdict: the verdict on this class.
      reason: why, for people.
    """

    ratio: LogRatio | None
    by_node: Mapping[str, Interval]
    node_variance: float | None
    verdict: Verdict
    reason: str

    @property
    def interval(self) -> Interval | None:
        """The ratio with its 98 % interval over nodes; None with a single node."""
        return self.ratio.interval() if self.ratio else None


@attrs.frozen(kw_only=True)
class OneNode:
    """A difference that only one node of a class shows.

    Attributes:
      node: name of the node.
      interval: ratio on this node, with the 98 % interval over its processes.
      without: the class without this node.
      reason: why, for people.
    """

    node: str
    interval: Interval
    without: NodesRatio
    reason: str


@attrs.frozen(kw_only=True)
class SlowNode:
    """A node that is slower than the others of its class.

    Attributes:
      node: name of the node.
      canary: the canary that is slow there.
      is_change: whether it became slower than in earlier nights, compared with the change of the
        others; if False, its time is compared with the times of the others.
      slowdown: its time, or change, over the mean of the others, e.g. 1.05.
      standard_error: of its logarithm, between nodes like the others.
      p_value: chance of such a slow-down if it were a node like the others.
      others: number of nodes it is compared with.
    """

    node: str
    canary: str
    is_change: bool
    slowdown: float
    standard_error: float
    p_value: float
    others: int


@attrs.frozen(kw_only=True)
class SlowNodes:
    """The slow nodes of a class.

    Attributes:
      named: slow nodes, the smallest p-value first; a node can be in it once per canary and test.
      not_compared: reasons, for people, by canary and node.
    """

    named: Sequence[SlowNode]
    not_compared: Mapping[tuple[str, str], str]


def class_ratio(by_node: NodeRatios, *, threshold: float = NOISE_THRESHOLD) -> NodesRatio:
    """Returns candidate over baseline on a class of nodes, and the verdict on this class.

    Each node counts with the mean over its repeats, however many they are. The interval is
    Student's t over nodes, with the share of error that `analysis` leaves it. It includes the
    variance between nodes, whatever their number of processes. It needs no balance: if nodes have
    different variances (fewer repeats, more noise), t at levels above 92 % covers more than it
    claims (Bakirov & Szekely, J. Math. Sci. 139, 2006; Ibragimov & Mueller, JBES 28, 2010).

    A verdict needs `MIN_NODES`, and `CLOSE_VERDICT_NODES` for ratios up to `CLOSE`; otherwise see
    `analysis.verdict`. The variance between nodes is the variance of their means less the mean
    variance of these over processes (method of moments; Hedges, Psychol. Bull. 93, 1983). With few
    nodes it is a rough figure. Differences between jobs on one node are part of it.

    Assumes that nodes are a random sample of the class and independent. Fails if a kind of node is
    rare: nodes that all lack it agree with each other, and the interval excludes the mean of the
    class. A node's own interval fails if jobs on the node differ more than their processes do.

    Args:
      by_node: for each node, one ratio per repeat (job).
      threshold: smaller differences are not relevant.

    Raises:
      SampleError: no nodes, or a node without ratios.
    """
    if not by_node or not all(by_node.values()):
        raise SampleError("no nodes" if not by_node else "a node has no ratios")
    means = [_node_mean(repeats) for repeats in by_node.values()]
    count = len(means)
    intervals = {node: mean_ratio([[one] for one in rs]) for node, rs in by_node.items()}
    ratio = node_variance = None
    if count > 1:
        centre, scale = statistics.fmean(means), math.sqrt(count * (count - 1))
        terms = tuple((mean - centre) / scale for mean in means)
        ratio = LogRatio(estimate=centre, shared=terms, processes=count)
        noise = statistics.fmean(
            math.fsum(one.spread[0] for one in repeats) / len(repeats) ** 2
            for repeats in by_node.values()
        )
        node_variance = max(0.0, statistics.variance(means) - noise)
    found, reason = _class_verdict(ratio.interval() if ratio else None, count, threshold)
    return NodesRatio(
        ratio=ratio,
        by_node=intervals,
        node_variance=node_variance,
        verdict=found,
        reason=f"{reason} on this class",
    )


def belongs_to_one_node(
    by_node: NodeRatios, *, threshold: float = NOISE_THRESHOLD
) -> OneNode | None:
    """Returns the node whose difference the other nodes of its class do not show, if there is one.

    For ratios of candidate and baseline, or of two nights for a step. A class verdict never rests
    on one node: a single difference among equals is at most one standard error of the class mean.
    Instead it hides the verdict of the others, so the class is compared without it.

    The node differs from the mean of the others by more than the threshold and by a t test with the
    spread of the others, at 2 % for all nodes of the class (Bonferroni). Its ratio lies beyond the
    threshold, and the verdict on the others is not in that direction: the same, the reverse, or
    unclear, which `without` contains.

    Fails if two nodes differ: each is in the spread of the others, and hides the other one. With
    few nodes only large differences are found.

    Args:
      by_node: for each node, one ratio per repeat; None is returned for less than four nodes.
      threshold: smaller differences are not relevant.

    Raises:
      SampleError: a node without ratios.
    """
    if len(by_node) < MIN_COMPARED_NODES:
        return None
    whole = class_ratio(by_node)
    names = list(by_node)
    means = np.array([_node_mean(by_node[name]) for name in names])
    differences, errors = apart_from_others(means)
    p_values = [
        2 * _tail(abs(difference), error, len(names) - 2)
        for difference, error in zip(differences, errors, strict=True)
    ]
    index = int(np.argmin(p_values))
    if p_values[index] > (1 - VERDICT_LEVEL) / len(names):
        return None
    if min(abs(differences[index]), abs(means[index])) <= math.log1p(threshold):
        return None
    node = names[index]
    others = {name: ratios for name, ratios in by_node.items() if name != node}
    without = class_ratio(others, threshold=threshold)
    if without.verdict is (Verdict.SLOWER if means[index] > 0 else Verdict.FASTER):
        return None
    reason = (
        f"only node {node} has a ratio of {math.exp(means[index]):.3g}; the verdict on the other "
        f"{len(others)} nodes is {without.verdict.value}: {without.reason}"
    )
    return OneNode(node=node, interval=whole.by_node[node], without=without, reason=reason)


def slow_nodes(
    readings: Mapping[str, NodeReadings],
    *,
    rates: Collection[str] = (),
    threshold: float = SLOW_NODE_THRESHOLD,
) -> SlowNodes:
    """Returns the nodes of a class that are slower than the others.

    Model of a canary's log time: night + node + noise of the job. Nights are common to all nodes;
    nodes are random effects. A node is compared on its latest three nights, with the nodes that
    have readings on all of these. Others count with as many readings a night as the node has, so
    that none is more precise. Nights and nodes count with medians.

    A node is named if it is slower than the mean of the others by the threshold, and by a one-sided
    t test. Its variance is that between the others, which contains the honest spread between nodes
    and the noise; t has as many degrees of freedom as the others (externally studentised residual:
    Cook & Weisberg, "Residuals and Influence in Regression", 1982, 2.2). If all these nodes have
    readings on `MIN_EARLIER_NIGHTS` before the latest, the change since then is tested, too. The
    honest spread cancels, and the variance is the others' between blocks of three nights.

    `SLOW_NODE_ERROR` is the error of one night, shared by canaries and tests, so the share of
    node-nights with a false alarm is the same however many nights are tested. A variance prior
    would find more, but its false alarms exceed the goal if nodes differ more than it expects.

    Fails if two nodes of a small class are slow: each hides the other one. In a heavy-tailed class,
    nodes that are honestly slower are named. A neighbour of two or more of the latest nights cannot
    be distinguished from a slow node. A slow-down is often missed if it is less than ten times the
    standard deviation between the others. With fewer than four nodes, or three nights, no node can
    be named, and `not_compared` has the reason.

    Args:
      readings: for each canary, node and night, times in any unit, or rates. Nights sort by
        time. Leave out nights that are too old to matter.
      rates: canaries whose readings are rates, e.g. GB/s.
      threshold: smaller slow-downs are not relevant.

    Raises:
      SampleError: a reading is not a positive finite number.
    """
    found: list[SlowNode] = []
    not_compared: dict[tuple[str, str], str] = {}
    for canary, by_node in readings.items():
        logs = _logs(by_node, -1 if canary in rates else 1)
        for node, own in logs.items():
            nights = sorted(own)[-BLOCK_NIGHTS:]
            compared = [name for name in logs if all(night in logs[name] for night in nights)]
            if len(nights) < BLOCK_NIGHTS:
                reason = f"{_counted(len(nights), 'night')} of readings; at least {BLOCK_NIGHTS}"
            elif len(compared) < MIN_COMPARED_NODES:
                reason = f"{_counted(len(compared), 'node')} with readings on the same nights; at "
                reason += f"least {MIN_COMPARED_NODES}"
            else:
                tests = _tests(canary, node, {name: logs[name] for name in compared}, nights)
                limit = SLOW_NODE_ERROR / len(readings) / len(tests)
                found += [
                    one for one in tests if one.p_value <= limit and one.slowdown >= 1 + threshold
                ]
                continue
            not_compared[canary, node] = f"{reason} are needed to name a slow node"
    return SlowNodes(named=sorted(found, key=lambda one: one.p_value), not_compared=not_compared)


def typical_of_blocks(logs: Array) -> Array:
    """Returns the median of each node in each block of three nights, without effects of nights.

    The mean over nodes is subtracted from each night. The median would tie the nodes together, so
    that their spread is too small, and double the false alarms.

    Args:
      logs: float64[..., nodes, nights], at least three nights; the oldest that fill no block are
        left out.

    Returns:
      float64[..., nodes, blocks], the latest last.
    """
    logs = logs[..., logs.shape[-1] % BLOCK_NIGHTS :]
    without_nights = logs - logs.mean(axis=-2, keepdims=True)
    blocks = without_nights.reshape(*logs.shape[:-1], -1, BLOCK_NIGHTS)
    typical: Array = np.median(blocks, axis=-1)
    return typical


def apart_from_others(values: Array) -> tuple[Array, Array]:
    """Returns each node's difference from the mean of the others, and its standard error.

    The error applies to a new node of the population of the others. Difference over error has
    Student's t distribution with `nodes - 2` degrees of freedom.

    Args:
      values: float64[..., nodes], one value per node, at least three.
    """
    count = values.shape[-1]
    centred = values - values.mean(axis=-1, keepdims=True)
    differences: Array = centred * (count / (count - 1))
    # The sum of squares of all nodes, less the part of the node that is left out.
    squares = (centred**2).sum(axis=-1, keepdims=True) - centred * differences
    errors: Array = np.sqrt(np.maximum(squares, 0.0) / (count - 2) * (count / (count - 1)))
    return differences, errors


def changes_apart_from_others(blocks: Array) -> tuple[Array, Array]:
    """Returns each node's change in the last block, apart from the others, and its standard error.

    The variance is the others', in an additive model of nodes and blocks. Change over error has
    Student's t distribution with `nodes - 2` degrees of freedom for each block before
    the last, if blocks of a node are independent. A slow drift of nodes makes it too small.

    Args:
      blocks: float64[..., nodes, blocks], at least two blocks.
    """
    before = blocks.shape[-1] - 1
    without_nodes = np.swapaxes(blocks - blocks.mean(axis=-1, keepdims=True), -1, -2)
    differences, errors = apart_from_others(without_nodes)
    share = (before + 1) / before
    changes: Array = differences[..., -1, :] * share
    return changes, np.sqrt((errors**2).sum(axis=-2) / before * share)


def _class_verdict(interval: Interval | None, nodes: int, threshold: float) -> tuple[Verdict, str]:
    """Returns the verdict of `analysis` with the minimum numbers of nodes instead of processes."""
    counted = _counted(nodes, "node")
    if interval is None or nodes < MIN_NODES:
        reason = f"needs more nodes: {counted}; a verdict needs at least {MIN_NODES}"
        return Verdict.UNCLEAR, reason
    found, reason = verdict(
        interval, threshold=threshold, processes=max(nodes, CLOSE_VERDICT_NODES)
    )
    distance = max(interval.estimate, 1 / interval.estimate)
    is_close = found in (Verdict.FASTER, Verdict.SLOWER) and distance <= CLOSE
    if is_close and nodes < CLOSE_VERDICT_NODES:
        return Verdict.UNCLEAR, (
            f"needs more nodes: {counted}, but programs within {CLOSE:g}x of each other need "
            f"{CLOSE_VERDICT_NODES}"
        )
    return found, reason


def _node_mean(repeats: Sequence[LogRatio]) -> float:
    return statistics.fmean(repeat.estimate for repeat in repeats)


def _logs(by_node: NodeReadings, sign: int) -> dict[str, dict[str, Array]]:
    """Returns the log times of each node and night that has readings."""
    logs: dict[str, dict[str, Array]] = {}
    for node, nights in by_node.items():
        arrays = {night: np.asarray(values, np.float64) for night, values in nights.items()}
        for values in arrays.values():
            if not (np.isfinite(values) & (values > 0)).all():
                raise SampleError(f"a reading of node {node} is not a positive finite number")
        logs[node] = {night: sign * np.log(v) for night, v in arrays.items() if v.size}
    return logs


def _tests(
    canary: str, node: str, logs: Mapping[str, Mapping[str, Array]], nights: Sequence[str]
) -> list[SlowNode]:
    """Returns a node compared with the others, and its change if earlier nights are known.

    Args:
      canary: name of the canary.
      node: name of the node.
      logs: log times by node and night; all nodes have readings on the latest nights.
      nights: the latest nights.
    """

    def blocks_of(dates: Sequence[str]) -> Array:
        # No node counts with more readings a night than this one.
        counts = [logs[node][date].size for date in dates]
        medians = [
            [np.median(one[date][:count]) for date, count in zip(dates, counts, strict=True)]
            for one in logs.values()
        ]
        return typical_of_blocks(np.array(medians))

    blocks, others = blocks_of(nights), len(logs) - 1
    results = [(False, *apart_from_others(blocks[:, 0]), others - 1)]
    common = set.intersection(*(set(one) for one in logs.values()))
    earlier = sorted(date for date in common if date < nights[0])
    if len(earlier) >= MIN_EARLIER_NIGHTS:
        blocks = np.concatenate([blocks_of(earlier), blocks], axis=1)
        degrees = (others - 1) * (blocks.shape[1] - 1)
        results.append((True, *changes_apart_from_others(blocks), degrees))
    index = list(logs).index(node)
    return [
        SlowNode(
            node=node,
            canary=canary,
            is_change=is_change,
            slowdown=math.exp(differences[index]),
            standard_error=float(errors[index]),
            p_value=_tail(float(differences[index]), float(errors[index]), degrees),
            others=others,
        )
        for is_change, differences, errors, degrees in results
    ]


def _tail(difference: float, error: float, degrees: int) -> float:
    """Returns the one-sided p-value of a difference; 1 if it is not positive."""
    if difference <= 0:
        return 1.0
    return student_tail(difference / error, degrees) if error else 0.0


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
