"""Verdicts on a class of nodes, and differences that belong to one node.

Process, node and class are nested levels. A statement about a class must hold on another node of
the class, so the node is the unit of replication, as the process is on one machine: more processes
or more jobs on the same nodes carry no information about the next node. Nodes belong to one class
if their hardware and software are the same. Ratios of different classes are never averaged: call
these functions once per class, and print a table.

Ratios are compared as logarithms. `benchmarks/fleet_statistics.py` simulates the rules of this
module, and prints where they fail.
"""

import math
import statistics
from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from comparative_benchmark.analysis.stats.analysis import (
    CLOSE,
    NOISE_THRESHOLD,
    SHARE_OF_ERROR,
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
# of equals differs by 4 % between two equally frequent kinds, three nodes give 4 % false verdicts,
# four 6 %, five 5 %, six 3 % and eight 2 % (`benchmarks/fleet_statistics.py`).
CLOSE_VERDICT_NODES = 6

# A single node is compared with at least three others.
MIN_COMPARED_NODES = 4

NodeRatios = Mapping[str, Sequence[LogRatio]]


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
    means = [statistics.fmean(one.estimate for one in rs) for rs in by_node.values()]
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
    answer, reason = _class_verdict(ratio.interval() if ratio else None, count, threshold)
    return NodesRatio(
        ratio=ratio,
        by_node=intervals,
        node_variance=node_variance,
        verdict=answer,
        reason=f"{reason} for this class",
    )


def belongs_to_one_node(
    by_node: NodeRatios, *, threshold: float = NOISE_THRESHOLD
) -> OneNode | None:
    """Returns the node whose difference the other nodes of its class do not show, if there is one.

    For ratios of candidate and baseline, or of two nights for a step. A class verdict never rests
    on one node: a single difference among equals is at most one standard error of the class mean.
    Instead it hides the verdict of the others, so the class is compared without it.

    The node differs from the mean of the others by more than the threshold and by a t test with the
    spread of the others, at the level of verdicts for all nodes together (Bonferroni). Its ratio
    lies beyond the threshold, and the verdict on the others is not in that direction: the same, the
    reverse, or unclear, which `without` contains.

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
    means = np.array([statistics.fmean(one.estimate for one in rs) for rs in by_node.values()])
    differences, errors = apart_from_others(means)
    p_values = [
        2 * chance_of_difference(abs(difference), error, len(names) - 2)
        for difference, error in zip(differences, errors, strict=True)
    ]
    index = int(np.argmin(p_values))
    if p_values[index] > SHARE_OF_ERROR * (1 - VERDICT_LEVEL) / len(names):
        return None
    if min(abs(differences[index]), abs(means[index])) <= math.log1p(threshold):
        return None
    node = names[index]
    others = {name: ratios for name, ratios in by_node.items() if name != node}
    without = class_ratio(others, threshold=threshold)
    if without.verdict is (Verdict.SLOWER if means[index] > 0 else Verdict.FASTER):
        return None
    reason = (
        f"the ratio is {math.exp(means[index]):.3g} only on {node}; the verdict for the other "
        f"{len(others)} nodes is {without.verdict.value}: {without.reason}"
    )
    return OneNode(node=node, interval=whole.by_node[node], without=without, reason=reason)


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


def chance_of_difference(difference: float, error: float, degrees: int) -> float:
    """Returns the one-sided p-value of a positive difference, else 1."""
    if difference <= 0:
        return 1.0
    return student_tail(difference / error, degrees) if error else 0.0


def counted(count: int, noun: str) -> str:
    """Returns e.g. `2 nodes`."""
    return f"{count} {noun}{'s' if count != 1 else ''}"


def _class_verdict(interval: Interval | None, nodes: int, threshold: float) -> tuple[Verdict, str]:
    """Returns the verdict of `analysis` with the minimum numbers of nodes instead of processes."""
    number = counted(nodes, "node")
    if interval is None or nodes < MIN_NODES:
        reason = f"needs more nodes: {number}; a verdict needs at least {MIN_NODES}"
        return Verdict.UNCLEAR, reason
    answer, reason = verdict(
        interval, threshold=threshold, processes=max(nodes, CLOSE_VERDICT_NODES)
    )
    distance = max(interval.estimate, 1 / interval.estimate)
    is_close = answer in (Verdict.FASTER, Verdict.SLOWER) and distance <= CLOSE
    if is_close and nodes < CLOSE_VERDICT_NODES:
        return Verdict.UNCLEAR, (
            f"needs more nodes: {number}, but programs within {CLOSE:g}x of each other need "
            f"{CLOSE_VERDICT_NODES}"
        )
    return answer, reason
