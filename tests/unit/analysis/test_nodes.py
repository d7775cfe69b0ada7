"""Class verdicts over nodes, and differences of one node."""

import math
import statistics

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
    class_ratio,
)

MIRRORED = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}


def job(ratio, noise=0.001):
    """Returns the ratio of a job with five processes, whose logarithms have this spread."""
    steps = noise * np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    return paired_ratio([[(ratio * math.exp(step), 1.0)] * 2 for step in steps])


def fleet(*ratios, **options):
    return {f"node{index}": [job(ratio, **options)] for index, ratio in enumerate(ratios)}


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
    assert found.reason == "needs more nodes: 1 node; a verdict needs at least 3 for this class"
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
            "the interval contains 1 and extends beyond the threshold",
        ),
    ],
)
def test_class_verdicts(ratios, expected, reason):
    found = class_ratio(fleet(*ratios))
    assert found.verdict is expected
    assert found.reason == f"{reason} for this class"


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
        "the ratio is 1.08 only on node1; the verdict for the other 7 nodes is same: the whole "
        "interval is within 0.01 of 1 for this class"
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
