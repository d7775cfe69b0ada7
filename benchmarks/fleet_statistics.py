"""Measures how often conclusions about a fleet are wrong, on simulated nodes with a known truth.

Classes of nodes race two equal programs whose ratio differs from node to node. A class verdict is
false if it is faster or slower. Canaries run on equal nodes, or one of them is 5 % slower. Every
night is a look: each night on which an equal node is named is a false alarm, also if it was named
the night before.

  nodes        the current rule: `class_ratio`, the node as unit of replication
  pooled       the usual method: one t test over all processes of all nodes
  named        the current rule: `slow_nodes`
  prior        the same with a variance prior: 1 % between nodes, as informative as four nodes

The simulation judges arrays by the same formulas; unit tests compare both.

    python benchmarks/fleet_statistics.py [--classes 20000] [--seed 1] [--quick]
"""

import argparse
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from _timing import print_goal, print_table
from numpy.typing import NDArray

from comparative_benchmark.analysis.stats.analysis import (
    CLOSE,
    NOISE_THRESHOLD,
    SHARE_OF_ERROR,
    VERDICT_LEVEL,
    Array,
    ratio_quantile,
    student_quantile,
)
from comparative_benchmark.analysis.stats.nodes import (
    CLOSE_VERDICT_NODES,
    MIN_NODES,
    apart_from_others,
)
from comparative_benchmark.analysis.stats.slow_nodes import (
    BLOCK_NIGHTS,
    MIN_EARLIER_NIGHTS,
    SLOW_NODE_ERROR,
    SLOW_NODE_THRESHOLD,
    changes_apart_from_others,
    typical_of_blocks,
)

Noise = Callable[[np.random.Generator, tuple[int, ...]], Array]
Flags = NDArray[np.bool_]

# Noise of one process's ratio, and between the jobs of a node.
PROCESS_SD, JOB_SD = 0.017, 0.005
RATIO_SDS = (0.0, 0.01, 0.02, 0.05)
NODES, REPEATS, PROCESSES = (2, 3, 4, 5, 6, 8, 12), (1, 2, 3), (3, 5, 10)

CLASS_SIZE, CANARIES, NIGHTS = 8, 2, 30
NODE_SDS, NOISE_SDS, READINGS = (0.003, 0.005, 0.01), (0.005, 0.01, 0.02), (1, 4)
# False alarms are also counted for nodes that differ more.
WIDE_SDS = (0.0, *NODE_SDS, 0.02, 0.05)
NIGHT_SD = 0.02
SLOW = math.log(1.05)
# Share of nights on which a node has a neighbour, and its slow-down.
NEIGHBOUR_SHARE, NEIGHBOUR = 0.01, 0.1
DRIFT_SD = 0.001
PRIOR_SD, PRIOR_NODES = 0.01, 4
# Nights before a node becomes slow.
EARLIER = (0, 9, 27)

FALSE_GOAL, COVERAGE_GOAL, ALARM_GOAL, POWER_GOAL = 0.02, 0.975, 0.001, 0.9


def normal(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return random.standard_normal(shape)


def heavy(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns Student's t with 3 degrees of freedom, scaled to a variance of 1."""
    values: Array = random.standard_t(3, shape) / math.sqrt(3)
    return values


def two_kinds(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns two equally frequent kinds of nodes, with a variance of 1."""
    return np.where(random.random(shape) < 0.5, 1.0, -1.0)


def rare_kind(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns nodes with one in eight of another kind, with a variance of 1."""
    return np.where(random.random(shape) < 1 / 8, math.sqrt(7), -math.sqrt(1 / 7))


KINDS: Mapping[str, Noise] = {
    "normal": normal,
    "heavy-tailed": heavy,
    "two kinds": two_kinds,
    "a rare kind": rare_kind,
}


def race_classes(
    random: np.random.Generator, classes: int, counts: tuple[int, int, int], effects: Array
) -> Array:
    """Returns log ratios of equals, float64[classes, nodes, repeats, processes].

    Args:
      random: random number generator.
      classes: number of classes.
      counts: nodes, repeats per node, processes per repeat.
      effects: float64[classes, nodes], log ratios of the nodes.
    """
    logs: Array = PROCESS_SD * random.standard_normal((classes, *counts))
    logs += JOB_SD * random.standard_normal((classes, *counts[:2], 1))
    logs += effects[..., None, None]
    return logs


def judge_units(units: Array) -> tuple[Array, Array]:
    """Returns estimates of log ratios over the last axis, and half-widths of 98 % intervals."""
    count = units.shape[-1]
    widths: Array = ratio_quantile(VERDICT_LEVEL, count - 1.0) * units.std(axis=-1, ddof=1)
    return units.mean(axis=-1), widths / math.sqrt(count)


def judge_classes(logs: Array) -> tuple[Array, Array, Flags]:
    """Returns estimates, half-widths, and whether there is a class verdict other than the same."""
    estimates, widths = judge_units(logs.mean(axis=(2, 3)))
    distances, nodes = np.abs(estimates), logs.shape[1]
    decided = (distances > widths) & (distances > math.log1p(NOISE_THRESHOLD))
    decided &= nodes >= np.where(distances <= math.log(CLOSE), CLOSE_VERDICT_NODES, MIN_NODES)
    return estimates, widths, decided


def class_verdicts(classes: int, seed: int) -> tuple[float, float]:
    """Prints false verdicts by node spread and number of nodes.

    Returns:
      the largest share of false verdicts without the minimum for close ratios, and the smallest
      coverage, over all numbers of nodes, repeats and processes.
    """
    rows, most_false, least_covered = [], 0.0, 1.0
    random = np.random.default_rng(seed)
    for sd in RATIO_SDS:
        for nodes in NODES:
            false, pooled_false, covered = [], [], []
            for repeats, processes in itertools.product(REPEATS, PROCESSES):
                effects = sd * random.standard_normal((classes, nodes))
                logs = race_classes(random, classes, (nodes, repeats, processes), effects)
                estimates, widths, _ = judge_classes(logs)
                pooled = judge_units(logs.reshape(classes, -1))
                false.append(beyond(estimates, widths))
                pooled_false.append(beyond(*pooled))
                covered.append(float((np.abs(estimates) <= widths).mean()))
            most_false = max(most_false, *false)
            least_covered = min(least_covered, *covered)
            row = [f"{sd:.0%}, {nodes} nodes", f"{max(false):.2%}", f"{min(covered):.2%}"]
            rows.append([*row, f"{max(pooled_false):.1%}"])
    header = ["sd of ratios between nodes", "nodes: false", "98 % holds", "pooled: false"]
    print_table(header, rows)
    return most_false, least_covered


def beyond(estimates: Array, widths: Array) -> float:
    """Returns the share of ratios with an interval that excludes 1, beyond the threshold."""
    distances = np.abs(estimates)
    return float(((distances > widths) & (distances > math.log1p(NOISE_THRESHOLD))).mean())


def class_kinds(classes: int, seed: int) -> None:
    """Prints false verdicts by kind of node effects, without the minimum numbers of nodes."""
    rows = []
    random = np.random.default_rng(seed)
    for (kind, make), sd in itertools.product(KINDS.items(), RATIO_SDS[1:]):
        row = [f"{kind}, sd {sd:.0%}"]
        for nodes in NODES:
            effects = sd * make(random, (classes, nodes))
            logs = race_classes(random, classes, (nodes, 1, 5), effects)
            row.append(f"{beyond(*judge_classes(logs)[:2]):.1%}")
        rows.append(row)
    print_table(["node effects", *(f"{nodes} nodes" for nodes in NODES)], rows)


def class_power(classes: int, seed: int) -> None:
    """Prints how often a class verdict finds that one program is 3, 5 or 10 % slower."""
    rows = []
    random = np.random.default_rng(seed)
    for sd, slower in itertools.product(RATIO_SDS, (0.03, 0.05, 0.1)):
        row = [f"sd {sd:.0%}, {slower:.0%} slower"]
        for nodes in NODES:
            effects = math.log1p(slower) + sd * random.standard_normal((classes, nodes))
            logs = race_classes(random, classes, (nodes, 1, 5), effects)
            estimates, _, decided = judge_classes(logs)
            row.append(f"{(decided & (estimates > 0)).mean():.0%}")
        rows.append(row)
    print_table(["found", *(f"{nodes} nodes" for nodes in NODES)], rows)


def one_node(classes: int, seed: int) -> float:
    """Prints how often a difference is attributed to one node of a class.

    The verdict without the node is not simulated, so that shares are upper limits.

    Returns:
      the largest share of classes with equal nodes.
    """
    rows, worst, threshold = [], 0.0, math.log1p(NOISE_THRESHOLD)
    random = np.random.default_rng(seed)
    for sd, nodes in itertools.product(RATIO_SDS, NODES[2:]):
        effects = sd * random.standard_normal((classes, nodes))
        means = race_classes(random, classes, (nodes, 1, 5), effects).mean(axis=(2, 3))
        error = SHARE_OF_ERROR * (1 - VERDICT_LEVEL) / nodes
        quantile = student_quantile(1 - error / 2, nodes - 2.0)
        shares = []
        for slower in (0.0, 0.05, 0.1, 0.2):
            moved = means + math.log1p(slower) * (np.arange(nodes) == 0)
            differences, errors = apart_from_others(moved)
            is_one = np.abs(differences) > np.maximum(quantile * errors, threshold)
            is_one &= np.abs(moved) > threshold
            shares.append(float((is_one[:, 0] if slower else is_one.any(axis=1)).mean()))
        worst = max(worst, shares[0])
        rows.append([f"sd {sd:.0%}, {nodes} nodes", *(f"{share:.1%}" for share in shares)])
    print_table(["attributed to one node", "equal", "5 % slower", "10 %", "20 %"], rows)
    return worst


@attrs.frozen(kw_only=True)
class CanaryNoise:
    """Noise of canaries on equal nodes, of the log time.

    Attributes:
      node_sd: honest spread between nodes.
      noise_sd: standard deviation between readings (jobs).
      readings: readings of each canary per node and night.
      node: shape of the spread between nodes.
      noise: shape of the noise between readings.
      has_neighbours: whether a node has a neighbour in 1 % of its nights, which costs 10 %.
      drift_sd: standard deviation of a node's change from one night to the next.
    """

    node_sd: float
    noise_sd: float
    readings: int = 1
    node: Noise = normal
    noise: Noise = normal
    has_neighbours: bool = False
    drift_sd: float = 0.0

    def nights(
        self, random: np.random.Generator, classes: int, nights: int, nodes: int = CLASS_SIZE
    ) -> Array:
        """Returns the median readings of nights, float64[classes, canaries, nodes, nights]."""
        shape = (classes, CANARIES, nodes, nights)
        logs = self.noise_sd * self.noise(random, (*shape, self.readings))
        values: Array = np.median(logs, axis=-1)
        values += self.node_sd * self.node(random, (*shape[:3], 1))
        values += NIGHT_SD * random.standard_normal((classes, CANARIES, 1, nights))
        if self.drift_sd:
            values += self.drift_sd * random.standard_normal(shape).cumsum(axis=-1)
        if self.has_neighbours:
            # A neighbour slows both canaries.
            values += NEIGHBOUR * (random.random((classes, 1, nodes, nights)) < NEIGHBOUR_SHARE)
        return values


def name_nodes(logs: Array, *, prior: bool = False) -> Flags:
    """Returns which nodes are named after the last night, bool[classes, nodes]."""
    nodes, nights = logs.shape[2:]
    if nights < BLOCK_NIGHTS:
        return np.zeros((logs.shape[0], nodes), bool)
    latest = typical_of_blocks(logs[..., -BLOCK_NIGHTS:])
    tests = [(*apart_from_others(latest[..., 0]), nodes - 2.0)]
    if prior:
        differences, errors, degrees = tests[0]
        scale = PRIOR_SD**2 * nodes / (nodes - 1)
        errors = np.sqrt((PRIOR_NODES * scale + degrees * errors**2) / (PRIOR_NODES + degrees))
        tests = [(differences, errors, degrees + PRIOR_NODES)]
    elif nights >= BLOCK_NIGHTS + MIN_EARLIER_NIGHTS:
        blocks = typical_of_blocks(logs)
        degrees = (nodes - 2.0) * (blocks.shape[-1] - 1)
        tests.append((*changes_apart_from_others(blocks), degrees))
    named = np.zeros((logs.shape[0], nodes), bool)
    for differences, errors, degrees in tests:
        quantile = student_quantile(1 - SLOW_NODE_ERROR / logs.shape[1] / len(tests), degrees)
        is_slow = differences >= math.log1p(SLOW_NODE_THRESHOLD)
        named |= (is_slow & (differences >= quantile * errors)).any(axis=1)
    return named


WITHIN_REACH: Mapping[str, Mapping[str, Any]] = {
    "a neighbour in 1 % of nights": {"has_neighbours": True},
    "nodes drift by 0.1 % a night": {"drift_sd": DRIFT_SD},
    "two kinds of nodes": {"node": two_kinds},
}
BEYOND_REACH: Mapping[str, Mapping[str, Any]] = {
    "heavy-tailed noise of readings": {"noise": heavy},
    "heavy-tailed nodes": {"node": heavy},
    "a rare kind of nodes": {"node": rare_kind},
}


def alarm_rate(logs: Array, *, prior: bool = False) -> float:
    """Returns the share of node-nights on which a node is named, from the third night."""
    nights = range(BLOCK_NIGHTS, logs.shape[-1] + 1)
    return float(np.mean([name_nodes(logs[..., :night], prior=prior) for night in nights]))


def false_alarms(classes: int, seed: int) -> float:
    """Prints false alarms per 1,000 node-nights; returns the largest rate within reach."""
    rows, worst = [], 0.0
    random = np.random.default_rng(seed)
    for node_sd in WIDE_SDS:
        row = [f"{node_sd:.1%}"]
        for noise in noises(node_sd):
            logs = noise.nights(random, classes, NIGHTS)
            shares = [alarm_rate(logs, prior=prior) for prior in (False, True)]
            worst = max(worst, shares[0])
            row.append(" ".join(f"{1000 * share:.2f}" for share in shares))
        rows.append(row)
    print_table(["node sd: named, prior", *noise_columns()], rows)
    print()
    rows = []
    for kind, changes in {**WITHIN_REACH, **BEYOND_REACH}.items():
        row = [kind]
        for number in range(len(READINGS) * len(NOISE_SDS)):
            each = [attrs.evolve(noises(node_sd)[number], **changes) for node_sd in NODE_SDS]
            shares = [alarm_rate(noise.nights(random, classes // 2, NIGHTS)) for noise in each]
            if kind in WITHIN_REACH:
                worst = max(worst, *shares)
            row.append(f"{1000 * max(shares):.2f}")
        rows.append(row)
    print_table(["at most, node sd 0.3 to 1 %", *noise_columns()], rows)
    return worst


def noises(node_sd: float) -> Sequence[CanaryNoise]:
    """Returns the noises in the columns of a table."""
    return [
        CanaryNoise(node_sd=node_sd, noise_sd=noise_sd, readings=readings)
        for readings, noise_sd in itertools.product(READINGS, NOISE_SDS)
    ]


def noise_columns() -> Sequence[str]:
    return [f"{count} x {sd:.1%}" for count, sd in itertools.product(READINGS, NOISE_SDS)]


def found_by_night(
    random: np.random.Generator,
    noise: CanaryNoise,
    classes: int,
    *,
    slow_canaries: int = 1,
    nodes: int = CLASS_SIZE,
    earlier: int = 0,
) -> list[float]:
    """Returns how often a node is named by the end of nights 1, 2 and 3 on which it is 5 % slower.

    Args:
      random: random number generator.
      noise: noise of all nodes.
      classes: number of classes.
      slow_canaries: number of canaries that are slower on the node.
      nodes: number of nodes in a class.
      earlier: number of nights before, on which the node is not slower.
    """
    logs = noise.nights(random, classes, earlier + BLOCK_NIGHTS, nodes)
    logs[:, :slow_canaries, 0, earlier:] += SLOW
    nights = range(earlier + 1, earlier + BLOCK_NIGHTS + 1)
    looks = [name_nodes(logs[..., :night])[:, 0] for night in nights]
    return [float(share) for share in np.logical_or.accumulate(looks).mean(axis=1)]


def power(classes: int, seed: int) -> Mapping[tuple[int, float], Sequence[float]]:
    """Prints how often a slow node is named within 1, 2 and 3 nights.

    Returns:
      shares within three nights for a node that is slow in one canary, by earlier nights and
      node sd, in the order of `noises`.
    """
    random = np.random.default_rng(seed)
    rows, found = [], {}
    for earlier, slow_canaries, node_sd in itertools.product(EARLIER, (1, 2), NODE_SDS):
        shares = [
            found_by_night(random, noise, classes, slow_canaries=slow_canaries, earlier=earlier)
            for noise in noises(node_sd)
        ]
        if slow_canaries == 1:
            found[earlier, node_sd] = [nights[-1] for nights in shares]
        cells = [
            " ".join(f"{share:.0%}" for share in nights) + "*" * (nights[-1] < POWER_GOAL)
            for nights in shares
        ]
        rows.append([f"{earlier}, {slow_canaries}, {node_sd:.1%}", *cells])
    print_table(["earlier nights, canaries, node sd", *noise_columns()], rows)
    print(f"(* below {POWER_GOAL:.0%} within three nights)")
    return found


def power_by_size(classes: int, seed: int) -> None:
    """Prints how often a slow node is named within three nights, by the size of its class."""
    random = np.random.default_rng(seed)
    rows = []
    for nodes, node_sd in itertools.product((4, 6, 8, 12, 16), NODE_SDS):
        shares = [
            found_by_night(random, noise, classes, nodes=nodes)[-1] for noise in noises(node_sd)
        ]
        rows.append([f"{nodes} nodes, {node_sd:.1%}", *(f"{share:.0%}" for share in shares)])
    print_table(["class, node sd", *noise_columns()], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--classes", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--quick", action="store_true", help="simulate only 2,000 classes, too few to judge goals"
    )
    chosen = parser.parse_args(arguments)
    classes = 2000 if chosen.quick else chosen.classes
    print("Class verdicts of equals, at worst over 1 to 3 repeats and 3, 5 and 10 processes\n")
    false, covered = class_verdicts(classes, chosen.seed)
    print("\nFalse class verdicts by kind of node effects, without a minimum of nodes\n")
    class_kinds(classes, chosen.seed)
    print("\nSlower programs found, with the minimum of nodes\n")
    class_power(classes, chosen.seed)
    print("\nDifferences attributed to one node, without the verdict on the others\n")
    attributed = one_node(classes, chosen.seed)
    # Thirty nights of two canaries take longer than one race.
    fewer = classes // 10
    print(f"\nFalse alarms per 1,000 node-nights of {fewer} classes, by readings x their sd\n")
    alarms = false_alarms(fewer, chosen.seed)
    print(f"\nA node 5 % slower among {CLASS_SIZE}: named within 1, 2 and 3 nights\n")
    found = power(fewer, chosen.seed)
    print("\nThe same within three nights, slow in one canary and without earlier nights\n")
    power_by_size(fewer, chosen.seed)
    print()
    alike = min(*found[0, NODE_SDS[0]][:1], *found[0, NODE_SDS[0]][3:5])
    known = min(min(found[EARLIER[-1], sd][3:]) for sd in NODE_SDS)
    named = f"a node 5 % slower is named within three nights in >= {POWER_GOAL:.0%}"
    goals = (
        (f"false class verdicts <= {FALSE_GOAL:.0%}", f"{false:.2%}", false <= FALSE_GOAL),
        (
            f"98 % class intervals hold the truth in >= {COVERAGE_GOAL:.1%}",
            f"{covered:.2%}",
            covered >= COVERAGE_GOAL,
        ),
        (
            f"differences of equal nodes attributed to one <= {FALSE_GOAL:.0%}",
            f"{attributed:.2%}",
            attributed <= FALSE_GOAL,
        ),
        (
            f"false alarms <= {1000 * ALARM_GOAL:.0f} per 1,000 node-nights",
            f"{1000 * alarms:.2f}",
            alarms <= ALARM_GOAL,
        ),
        (
            f"{named}, nodes with sd 0.3 %, one reading with sd 0.5 % or four with 1 %",
            f"{alike:.1%}",
            alike >= POWER_GOAL,
        ),
        (
            f"{named}, after {EARLIER[-1]} nights, 0.3 to 1 %, four readings with 0.5 to 2 %",
            f"{known:.1%}",
            known >= POWER_GOAL,
        ),
    )
    for goal, worst, met in goals:
        print_goal(goal, met=met, found=f"{worst} at worst")


if __name__ == "__main__":
    main()
