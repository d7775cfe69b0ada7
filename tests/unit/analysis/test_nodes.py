"""Class verdicts over nodes, differences of one node, and slow nodes."""

import importlib
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from comparative_benchmark.analysis.stats.analysis import (
    LogRatio,
    SampleError,
    Verdict,
    decisive,
    mean_ratio,
    paired_ratio,
    unpaired_ratio,
)
from comparative_benchmark.analysis.stats.nodes import (
    CLOSE_VERDICT_NODES,
    apart_from_others,
    belongs_to_one_node,
    changes_apart_from_others,
    class_ratio,
    slow_nodes,
    typical_of_blocks,
)

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
MIRRORED = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}
NIGHTS = [f"2026-11-{day:02}" for day in range(1, 31)]


def job(ratio, noise=0.001):
    """Returns the ratio of a job with five processes, whose logarithms have this spread."""
    steps = noise * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    return paired_ratio([[(ratio * math.exp(step), 1.0)] * 2 for step in steps])


def fleet(*ratios, **options):
    return {f"node{index}": [job(ratio, **options)] for index, ratio in enumerate(ratios)}


def canary(times, nights=3, readings=1, changes=None):
    """Returns readings by node and night; `changes` has factors by node index and night index."""
    changes = changes or {}
    return {
        f"node{node}": {
            NIGHTS[night]: [time * changes.get((node, night), 1.0)] * readings
            for night in range(nights)
        }
        for node, time in enumerate(times)
    }


# Sample standard deviation 0.53 %, without the first.
HONEST = (1.0, 1.0, 1.005, 0.995, 1.0, 1.005, 0.995, 1.008)
SLOW = (1.05, *HONEST[1:])


def test_class_interval_is_students_t_over_node_means():
    # Two repeats on the first node: it still counts once, with their mean.
    by_node = {"a": [job(1.02), job(1.04)], "b": [job(1.05)], "c": [job(1.01)]}
    means = [math.log(1.02 * 1.04) / 2, math.log(1.05), math.log(1.01)]
    found = class_ratio(by_node)
    error = statistics.stdev(means) / math.sqrt(3)
    # 98 % leave 2 %; t has a share of 0.6: 0.6 % on each side.
    width = stats.t.isf(0.006, 2) * error
    assert math.log(found.interval.estimate) == pytest.approx(statistics.fmean(means))
    assert math.log(found.interval.low) == pytest.approx(statistics.fmean(means) - width)
    assert math.log(found.interval.high) == pytest.approx(statistics.fmean(means) + width)
    assert found.interval.processes == found.ratio.processes == 3
    assert found.by_node["a"] == mean_ratio([[job(1.02)], [job(1.04)]])
    assert found.by_node["b"] == job(1.05).interval()


def test_variance_between_nodes_excludes_the_noise_of_processes():
    # Steps of 1 % have a variance of 2.5e-4, so the mean of five has 5e-5; with two repeats half.
    by_node = {"a": [job(1.0, noise=0.01)] * 2, "b": [job(1.03, noise=0.01)]}
    found = class_ratio(by_node).node_variance
    assert found == pytest.approx(math.log(1.03) ** 2 / 2 - (2.5e-5 + 5e-5) / 2)
    assert class_ratio(fleet(1.0, 1.001, noise=0.02)).node_variance == 0.0


def test_noise_of_processes_does_not_narrow_the_class_interval():
    few, many = (
        class_ratio({f"{n}": [job(1 + n / 100)] * repeats for n in range(6)}) for repeats in (1, 9)
    )
    assert few.interval.high == pytest.approx(many.interval.high)


def test_one_node_has_no_class_verdict():
    found = class_ratio(fleet(1.5))
    assert (found.ratio, found.interval, found.node_variance) == (None, None, None)
    assert found.verdict is Verdict.UNCLEAR
    assert found.reason == "needs more nodes: 1 node; a verdict needs at least 3 on this class"
    assert found.by_node["node0"] == job(1.5).interval()


@pytest.mark.parametrize(
    ("ratios", "expected", "reason"),
    [
        ((1.5, 1.5001), Verdict.UNCLEAR, "needs more nodes: 2 nodes; a verdict needs at least 3"),
        ((1.5, 1.51, 1.49), Verdict.SLOWER, "the interval excludes 1"),
        ((0.5, 0.51, 0.49), Verdict.FASTER, "the interval excludes 1"),
        (
            (1.1, 1.101, 1.099, 1.1, 1.1),
            Verdict.UNCLEAR,
            "needs more nodes: 5 nodes, but programs within 1.25x of each other need 6",
        ),
        ((1.1, 1.101, 1.099, 1.1, 1.1, 1.1), Verdict.SLOWER, "the interval excludes 1"),
        ((1.0, 1.001, 0.999), Verdict.SAME, "the whole interval is within 0.01 of 1"),
        (
            (1.0, 1.2, 0.9, 1.3, 1.1, 1.0, 1.2),
            Verdict.UNCLEAR,
            "the interval contains 1 and exceeds the threshold",
        ),
    ],
)
def test_class_verdicts(ratios, expected, reason):
    found = class_ratio(fleet(*ratios))
    assert found.verdict is expected
    assert found.reason == f"{reason} on this class"


def test_two_classes_have_a_verdict_each():
    fast = class_ratio(fleet(0.8, 0.81, 0.79, 0.8, 0.805, 0.795))
    slow = class_ratio(fleet(1.2, 1.21, 1.19, 1.2, 1.205, 1.195))
    assert (fast.verdict, slow.verdict) == (Verdict.FASTER, Verdict.SLOWER)
    # Nodes of both classes have no common verdict: the variance between them is in the interval.
    mixed = class_ratio({**fleet(0.8, 0.81, 0.79), **{f"b{n}": [job(1.2)] for n in range(3)}})
    assert mixed.verdict is Verdict.UNCLEAR


def test_ratios_of_classes_count_nodes_in_families_of_workloads():
    assert CLOSE_VERDICT_NODES == 6
    slower = class_ratio(fleet(1.5, 1.51, 1.49, 1.5, 1.505, 1.495)).ratio
    same = class_ratio(fleet(1.0, 1.01, 0.99, 1.0, 1.005, 0.995)).ratio
    assert decisive([slower, same], Verdict.SLOWER) == [True, False]


@pytest.mark.parametrize("by_node", [{}, {"a": []}, {"a": [job(1.0)], "b": []}])
def test_nodes_without_ratios_are_errors(by_node):
    with pytest.raises(SampleError):
        class_ratio(by_node)


@given(st.lists(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=3), min_size=1, max_size=9))
def test_swapping_sides_mirrors_class_verdicts(ratios):
    sides = [
        class_ratio(
            {str(n): [job(1 / x if swap else x) for x in xs] for n, xs in enumerate(ratios)}
        )
        for swap in (False, True)
    ]
    if sides[0].interval and abs(math.log(sides[0].interval.estimate)) < 1e-6:
        return
    assert sides[1].verdict is MIRRORED.get(sides[0].verdict, sides[0].verdict)
    assert sides[1].node_variance == pytest.approx(sides[0].node_variance, abs=1e-9)


@given(st.permutations(list(enumerate((1.0, 1.02, 0.97, 1.3, 1.01, 0.99, 1.0)))))
def test_node_order_is_irrelevant(order):
    by_node = {f"n{index}": [job(ratio)] for index, ratio in order}
    found = class_ratio(by_node)
    expected = class_ratio(dict(sorted(by_node.items())))
    assert found.interval.high == pytest.approx(expected.interval.high)
    assert (found.verdict, found.reason) == (expected.verdict, expected.reason)
    assert belongs_to_one_node(by_node).node == "n3"


def test_a_difference_of_one_node_belongs_to_it():
    by_node = fleet(1.0, 1.08, 1.001, 0.999, 1.002, 0.998, 1.0, 1.001)
    # The node hides that the others are equal.
    assert class_ratio(by_node).verdict is Verdict.UNCLEAR
    found = belongs_to_one_node(by_node)
    assert found.node == "node1"
    assert found.interval == job(1.08).interval()
    assert found.without.verdict is Verdict.SAME
    assert found.reason == (
        "only node node1 has a ratio of 1.08; the verdict on the other 7 nodes is same: the whole "
        "interval is within 0.01 of 1 on this class"
    )


def test_one_node_can_hide_the_reverse_verdict():
    by_node = fleet(0.9, 0.905, 0.895, 0.9, 0.902, 0.898, 1.4)
    assert class_ratio(by_node).verdict is Verdict.UNCLEAR
    found = belongs_to_one_node(by_node)
    assert (found.node, found.without.verdict) == ("node6", Verdict.FASTER)


def test_a_step_of_one_node_between_two_nights_belongs_to_it():
    night = [[1.0, 1.0], [1.01, 1.01], [0.99, 0.99]]
    slower = [[1.1 * x for x in xs] for xs in night]
    others = {f"node{n}": [unpaired_ratio(night, night)] for n in range(5)}
    found = belongs_to_one_node({**others, "stepped": [unpaired_ratio(slower, night)]})
    assert found.node == "stepped"
    assert found.interval.estimate == pytest.approx(1.1)


@pytest.mark.parametrize(
    "ratios",
    [
        # All nodes show the difference; one shows more of it.
        (1.1, 1.101, 1.099, 1.1, 1.102, 1.098, 1.2),
        # The others show it, one does not.
        (1.1, 1.101, 1.099, 1.1, 1.102, 1.098, 1.0),
        # Nodes differ, none more than the others.
        (1.0, 1.05, 0.95, 1.02, 0.98, 1.04, 0.97),
        # An equal node, however precise the others are.
        (1.0, 1.0, 1.0, 1.0, 1.0, 1.005),
        # Too few nodes.
        (1.0, 1.0, 2.0),
        # Two nodes: each hides the other.
        (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.1, 1.1),
    ],
)
def test_differences_that_do_not_belong_to_one_node(ratios):
    assert belongs_to_one_node(fleet(*ratios)) is None


def test_every_node_needs_ratios():
    with pytest.raises(SampleError):
        belongs_to_one_node({**fleet(1.0, 1.0, 1.0), "empty": []})


@given(st.integers(3, 40), st.floats(0.001, 1e3))
def test_a_class_verdict_never_rests_on_one_node(nodes, difference):
    found = class_ratio(
        {
            str(n): [LogRatio(estimate=difference * (n == 0), shared=(0.1, -0.1), processes=2)]
            for n in range(nodes)
        }
    )
    assert found.verdict in (Verdict.UNCLEAR, Verdict.SAME)


def test_each_node_is_compared_with_the_others_only():
    values = np.array([1.0, 2.0, 4.0, 9.0])
    differences, errors = apart_from_others(values)
    for index, value in enumerate(values):
        others = np.delete(values, index)
        assert differences[index] == pytest.approx(value - others.mean())
        assert errors[index] == pytest.approx(others.std(ddof=1) * math.sqrt(1 + 1 / 3))


def test_changes_have_the_residual_variance_of_the_others():
    blocks = np.random.default_rng(0).standard_normal((5, 4))
    changes, errors = changes_apart_from_others(blocks)
    rises = blocks[:, -1] - blocks[:, :-1].mean(axis=1)
    for index in range(5):
        others = np.delete(blocks, index, axis=0)
        model = others.mean(axis=0) + others.mean(axis=1, keepdims=True) - others.mean()
        variance = ((others - model) ** 2).sum() / (3 * 3)
        assert changes[index] == pytest.approx(rises[index] - np.delete(rises, index).mean())
        assert errors[index] == pytest.approx(math.sqrt(variance * (1 + 1 / 4) * (1 + 1 / 3)))


def test_one_earlier_block_is_a_comparison_of_differences():
    blocks = np.random.default_rng(1).standard_normal((6, 2))
    expected = apart_from_others(blocks[:, 1] - blocks[:, 0])
    assert np.allclose(changes_apart_from_others(blocks), expected)


def test_blocks_are_medians_without_effects_of_nights():
    nights = np.array([9.0, 5.0, -2.0, 30.0, 1.0, 1.0, 1.0])
    nodes = np.array([[7.0, 1, 2, 3, 0, 0, 4], [-7.0, -1, -2, -3, 0, 0, -4]])
    # The oldest night belongs to no block of three.
    assert typical_of_blocks(nodes + nights).tolist() == [[2.0, 0.0], [-2.0, 0.0]]


def test_a_slow_node_is_named():
    found = slow_nodes({"compute": canary(SLOW), "memory": canary(HONEST)})
    (slow,) = found.named
    logs = np.log(SLOW)
    error = logs[1:].std(ddof=1) * math.sqrt(1 + 1 / 7)
    difference = logs[0] - logs[1:].mean()
    assert (slow.node, slow.canary, slow.is_change) == ("node0", "compute", False)
    assert slow.others == 7
    assert slow.slowdown == pytest.approx(math.exp(difference))
    assert slow.standard_error == pytest.approx(error)
    assert slow.p_value == pytest.approx(stats.t.sf(difference / error, 6), rel=1e-6)
    assert not found.not_compared


def test_equal_nodes_are_not_named():
    assert not slow_nodes({"compute": canary(HONEST), "memory": canary(HONEST[::-1])}).named


def test_fast_nodes_are_not_named():
    assert not slow_nodes({"compute": canary((0.9, *HONEST[1:]))}).named


def test_nodes_of_a_class_with_a_wide_spread_are_not_named():
    assert not slow_nodes(
        {"compute": canary((1.05, 1.0, 1.02, 0.97, 1.03, 0.98, 1.01, 0.99))}
    ).named


def test_small_slow_downs_are_not_named_however_precise():
    times = (1.02, 1.0, 1.0001, 1.0, 0.9999, 1.0)
    assert not slow_nodes({"compute": canary(times)}).named
    assert slow_nodes({"compute": canary(times)}, threshold=0.01).named


def test_rates_are_slow_if_they_are_low():
    rates = {"memory": canary([1 / time for time in SLOW])}
    assert [slow.node for slow in slow_nodes(rates, rates=["memory"]).named] == ["node0"]
    assert not slow_nodes(rates).named


def test_nights_are_common_to_all_nodes():
    nights = {(node, 1): 3.0 for node in range(8)}
    assert slow_nodes({"a": canary(SLOW, changes=nights)}).named
    assert not slow_nodes({"a": canary(HONEST, changes=nights)}).named


def test_one_bad_night_names_no_node():
    assert not slow_nodes({"a": canary(HONEST, changes={(0, 2): 1.5})}).named
    assert slow_nodes({"a": canary(HONEST, changes={(0, 1): 1.08, (0, 2): 1.08})}).named


def test_one_bad_reading_names_no_node():
    readings = canary(HONEST, readings=3)
    for night in readings["node0"].values():
        night[0] *= 2
    assert not slow_nodes({"a": readings}).named


def test_old_nights_do_not_name_a_node():
    changes = {(0, night): 1.1 for night in range(3)}
    assert slow_nodes({"a": canary(HONEST, 3, changes=changes)}).named
    assert not slow_nodes({"a": canary(HONEST, 6, changes=changes)}).named


def test_a_change_is_named_among_nodes_with_a_wide_spread():
    wide = (1.0, 1.05, 1.02, 0.97, 1.03, 0.98, 1.01, 0.99)
    changes = {(0, night): 1.05 for night in range(9, 12)}
    # Noise of 0.2 % that alternates between nodes and nights.
    for node in range(8):
        for night in range(12):
            factor = 1 + 0.002 * math.sin(1 + 5 * node + 7 * night)
            changes[node, night] = changes.get((node, night), 1.0) * factor
    (slow,) = slow_nodes({"a": canary(wide, 12, changes=changes)}).named
    assert (slow.node, slow.is_change) == ("node0", True)
    assert slow.slowdown == pytest.approx(1.05, abs=0.003)
    # The same node, always as slow, is one of the spread.
    always = {key: value for key, value in changes.items() if key[1] >= 9}
    always |= {(node, night): changes[node, night + 6] for node in range(8) for night in range(6)}
    always |= {(0, night): 1.05 for night in range(12)}
    assert not slow_nodes({"a": canary(wide, 12, changes=always)}).named


def test_changes_need_two_earlier_blocks_of_nights():
    wide = (1.0, 1.05, 1.02, 0.97, 1.03, 0.98, 1.01, 0.99)
    for nights, is_named in ((8, False), (9, True)):
        changes = {(0, night): 1.05 for night in range(nights - 3, nights)}
        assert bool(slow_nodes({"a": canary(wide, nights, changes=changes)}).named) is is_named


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_fewer_than_four_nodes_name_none(nodes):
    found = slow_nodes({"a": canary((2.0, 1.0, 1.0)[:nodes])})
    assert not found.named
    counted = f"{nodes} node{'s' * (nodes > 1)}"
    assert found.not_compared["a", "node0"] == (
        f"{counted} with readings on the same nights; at least 4 are needed to name a slow node"
    )


@pytest.mark.parametrize(("nights", "counted"), [(1, "1 night"), (2, "2 nights")])
def test_fewer_than_three_nights_name_no_node(nights, counted):
    found = slow_nodes({"a": canary(SLOW, nights)})
    assert not found.named
    assert found.not_compared["a", "node0"] == (
        f"{counted} of readings; at least 3 are needed to name a slow node"
    )


def test_a_node_is_compared_on_its_own_nights():
    readings = canary(SLOW, 4)
    del readings["node0"][NIGHTS[3]]
    # This one lacks a night of the others, but none of the slow node's.
    del readings["node7"][NIGHTS[3]]
    (slow,) = slow_nodes({"a": readings}).named
    assert (slow.node, slow.others) == ("node0", 7)


def test_nodes_that_lack_a_night_are_not_compared_with():
    readings = canary(SLOW)
    readings["node7"][NIGHTS[1]] = []
    found = slow_nodes({"a": readings})
    assert [slow.others for slow in found.named] == [6]
    assert list(found.not_compared) == [("a", "node7")]


def test_others_count_with_as_many_readings_as_the_node():
    readings = canary(SLOW)
    for node, time in enumerate(HONEST[1:], 1):
        for values in readings[f"node{node}"].values():
            values.extend([9.0 * time] * 10)
    (slow,) = slow_nodes({"a": readings}).named
    assert slow.slowdown == pytest.approx(slow_nodes({"a": canary(SLOW)}).named[0].slowdown)


@pytest.mark.parametrize("reading", [0.0, -1.0, math.nan, math.inf])
def test_readings_are_positive_finite_numbers(reading):
    readings = canary(HONEST)
    readings["node3"][NIGHTS[0]] = [1.0, reading]
    with pytest.raises(SampleError, match="node3"):
        slow_nodes({"a": readings})


@given(st.permutations(range(8)), st.floats(1e-3, 1e3))
def test_order_of_nodes_and_units_are_irrelevant(order, unit):
    readings = canary([unit * time for time in SLOW])
    shuffled = {f"node{node}": readings[f"node{node}"] for node in order}
    (slow,) = slow_nodes({"a": shuffled}).named
    (expected,) = slow_nodes({"a": canary(SLOW)}).named
    assert slow.node == expected.node
    assert slow.p_value == pytest.approx(expected.p_value, rel=1e-6)


@pytest.fixture(scope="module")
def simulation():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module("fleet_statistics")


@pytest.mark.parametrize("nodes", [2, 4, 5, 6, 8])
def test_simulated_classes_are_judged_as_by_class_ratio(simulation, nodes):
    random = np.random.default_rng(nodes)
    effects = random.choice([0.03, 0.3], (60, 1)) + 0.01 * random.standard_normal((60, nodes))
    logs = simulation.race_classes(random, 60, (nodes, 2, 3), effects)
    estimates, widths, decided = simulation.judge_classes(logs)
    for number, races in enumerate(logs):
        found = class_ratio(
            {
                str(node): [paired_ratio([[(math.exp(x), 1.0)] * 2 for x in xs]) for xs in repeats]
                for node, repeats in enumerate(races)
            }
        )
        assert math.log(found.interval.estimate) == pytest.approx(estimates[number])
        half_width = math.log(found.interval.high / found.interval.low) / 2
        assert half_width == pytest.approx(widths[number])
        assert (found.verdict in (Verdict.SLOWER, Verdict.FASTER)) == decided[number]


@pytest.mark.parametrize("nights", [2, 3, 8, 9, 14])
def test_simulated_nodes_are_named_as_by_slow_nodes(simulation, nights):
    random = np.random.default_rng(nights)
    noise = simulation.CanaryNoise(node_sd=0.01, noise_sd=0.01)
    logs = noise.nights(random, 40, nights)
    logs[:, 0, :2, -3:] += random.choice([0.0, 0.05, 0.08], (40, 2, 1))
    named = simulation.name_nodes(logs)
    for number, canaries in enumerate(logs):
        found = slow_nodes(
            {
                str(index): {
                    str(node): {
                        NIGHTS[night]: [math.exp(value)] for night, value in enumerate(values)
                    }
                    for node, values in enumerate(nodes)
                }
                for index, nodes in enumerate(canaries)
            }
        )
        assert {slow.node for slow in found.named} == {
            str(node) for node in np.flatnonzero(named[number])
        }
    assert named.any() == (nights > 2)
