"""Slow nodes of a class, by the readings of canaries."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from comparative_benchmark.analysis.stats.analysis import SampleError
from comparative_benchmark.analysis.stats.nodes import apart_from_others
from comparative_benchmark.analysis.stats.slow_nodes import (
    changes_apart_from_others,
    slow_nodes,
    typical_of_blocks,
)

NIGHTS = [f"2026-11-{day:02}" for day in range(1, 31)]


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
        f"{counted} with readings on the same nights; at least 4 are needed to identify a slow node"
    )


@pytest.mark.parametrize(("nights", "counted"), [(1, "1 night"), (2, "2 nights")])
def test_fewer_than_three_nights_name_no_node(nights, counted):
    found = slow_nodes({"a": canary(SLOW, nights)})
    assert not found.named
    assert found.not_compared["a", "node0"] == (
        f"{counted} of readings; at least 3 are needed to identify a slow node"
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


@settings(max_examples=20)
@given(st.permutations(range(8)), st.floats(1e-3, 1e3))
def test_order_of_nodes_and_units_are_irrelevant(order, unit):
    readings = canary([unit * time for time in SLOW])
    shuffled = {f"node{node}": readings[f"node{node}"] for node in order}
    (slow,) = slow_nodes({"a": shuffled}).named
    (expected,) = slow_nodes({"a": canary(SLOW)}).named
    assert slow.node == expected.node
    assert slow.p_value == pytest.approx(expected.p_value, rel=1e-6)
