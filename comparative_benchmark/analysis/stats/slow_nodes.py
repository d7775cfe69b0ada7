"""Slow nodes of a class, by the readings of its canaries.

Readings are compared as logarithms of times. `benchmarks/fleet_statistics.py` simulates the rules
of this module, and prints false alarms, power, and where they fail.
"""

import math
from collections.abc import Collection, Mapping, Sequence

import attrs
import numpy as np

from comparative_benchmark.analysis.stats.analysis import Array, SampleError
from comparative_benchmark.analysis.stats.nodes import (
    MIN_COMPARED_NODES,
    apart_from_others,
    chance_of_difference,
    counted,
)

# The median of three nights: a neighbour of a single night must not name a node.
BLOCK_NIGHTS = 3
# Nights before these that are needed to know the usual speed of a node.
MIN_EARLIER_NIGHTS = 2 * BLOCK_NIGHTS
SLOW_NODE_THRESHOLD = 0.03
# Chance to name an equal node in one night, over all tests. The goal is one in 1,000; the rest is
# for neighbours and drift.
SLOW_NODE_ERROR = 0.0004

# Readings of one canary: node, night (sorts by time), readings of that night.
NodeReadings = Mapping[str, Mapping[str, Sequence[float]]]


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
    be distinguished from a slow node. With fewer than four nodes, or three nights, no node can be
    named, and `not_compared` has the reason.

    Among eight nodes, a new node that is 5 % slower in one canary is found after three nights in
    nine of ten cases only if the standard deviation between medians of the others is below 0.5 %;
    among four nodes almost never. After nine earlier nights, the honest spread does not matter, and
    one reading a night with a noise of 0.5 % suffices, or four with 1 %; after 27 nights, one with
    1 % or four with 2 %.

    Args:
      readings: for each canary, node and night, times in any unit, or rates. Nights sort by
        time. Leave out nights that are too old to matter.
      rates: canaries whose readings are rates, e.g. GB/s.
      threshold: smaller slow-downs are not relevant.

    Raises:
      SampleError: a reading is not a positive finite number.
    """
    nodes: list[SlowNode] = []
    not_compared: dict[tuple[str, str], str] = {}
    for canary, by_node in readings.items():
        logs = _logs(by_node, -1 if canary in rates else 1)
        for node, own in logs.items():
            nights = sorted(own)[-BLOCK_NIGHTS:]
            compared = [name for name in logs if all(night in logs[name] for night in nights)]
            if len(nights) < BLOCK_NIGHTS:
                reason = f"{counted(len(nights), 'night')} of readings; at least {BLOCK_NIGHTS}"
            elif len(compared) < MIN_COMPARED_NODES:
                reason = f"{counted(len(compared), 'node')} with readings on the same nights; at "
                reason += f"least {MIN_COMPARED_NODES}"
            else:
                tests = _tests(canary, node, {name: logs[name] for name in compared}, nights)
                limit = SLOW_NODE_ERROR / len(readings) / len(tests)
                nodes += [
                    one for one in tests if one.p_value <= limit and one.slowdown >= 1 + threshold
                ]
                continue
            not_compared[canary, node] = f"{reason} are needed to identify a slow node"
    return SlowNodes(named=sorted(nodes, key=lambda one: one.p_value), not_compared=not_compared)


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


def changes_apart_from_others(blocks: Array) -> tuple[Array, Array]:
    """Returns each node's change in the last block, apart from the others, and its standard error.

    The variance is the others', in an additive model of nodes and blocks. Change over error has
    Student's t distribution with `nodes - 2` degrees of freedom for each block before the last, if
    blocks of a node are independent. A slow drift of nodes makes the error too small.

    Args:
      blocks: float64[..., nodes, blocks], at least two blocks.
    """
    before = blocks.shape[-1] - 1
    without_nodes = np.swapaxes(blocks - blocks.mean(axis=-1, keepdims=True), -1, -2)
    differences, errors = apart_from_others(without_nodes)
    share = (before + 1) / before
    changes: Array = differences[..., -1, :] * share
    return changes, np.sqrt((errors**2).sum(axis=-2) / before * share)


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
            p_value=chance_of_difference(float(differences[index]), float(errors[index]), degrees),
            others=others,
        )
        for is_change, differences, errors, degrees in results
    ]
