"""Orders of starts and blocks: balanced in positions and followers, and otherwise random."""

import itertools
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from comparative_benchmark.analysis.stats.planning import (
    BalancedOrder,
    FixedCounts,
    SamplingRule,
    williams_design,
)
from comparative_benchmark.engine.resuming import _with_seed
from comparative_benchmark.engine.settings import RunSettings
from openxla.benchmark.devices import HOST_CPU


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 9])
def test_a_design_balances_positions_and_followers(count):
    rows = williams_design(count)
    assert len(rows) == count * (1 + count % 2)
    positions = Counter((place, name) for row in rows for place, name in enumerate(row))
    assert set(positions.values()) == {1 + count % 2}
    assert len(positions) == count**2
    followers = Counter(pair for row in rows for pair in itertools.pairwise(row))
    assert set(followers.values()) == {1 + count % 2}
    assert len(followers) == count * (count - 1)


@pytest.mark.parametrize("count", [0, 1])
def test_nobody_and_one_alone_have_one_order(count):
    assert williams_design(count) == [list(range(count))]


def test_two_take_turns_to_be_first():
    orders = BalancedOrder(2, random.Random(3))
    taken = list(itertools.islice(orders, 100))
    for first, second in zip(taken[::2], taken[1::2]):
        assert first == second[::-1]
    assert {tuple(order) for order in taken[::2]} == {(0, 1), (1, 0)}


def test_orders_depend_on_the_seed_alone():
    def first(seed):
        return list(itertools.islice(BalancedOrder(5, random.Random(seed)), 40))

    assert first(1) == first(1) != first(2)


def test_who_starts_first_differs_from_seed_to_seed():
    first = Counter(next(BalancedOrder(3, random.Random(seed)))[0] for seed in range(300))
    assert set(first) == {0, 1, 2}
    assert min(first.values()) > 70


def interrupted(seed, path="2.jsonl"):
    return SimpleNamespace(path=Path(path), settings=SimpleNamespace(sampling={"seed": seed}))


def test_a_run_draws_a_seed_or_takes_that_of_the_run_that_it_continues():
    settings = RunSettings(device=HOST_CPU, sampling=SamplingRule(seed=None))
    drawn = {_with_seed(settings, ()).sampling.seed for _ in range(5)}
    assert len(drawn) == 5
    assert None not in drawn
    assert _with_seed(settings, [interrupted(17)]).sampling.seed == 17
    # Older journals may not fit any more.
    runs = [interrupted(5, "1.jsonl"), interrupted(17), interrupted(4, "1.undecided.jsonl")]
    assert _with_seed(settings, runs).sampling.seed == 17
    given = attrs.evolve(settings, sampling=SamplingRule(seed=3))
    assert _with_seed(given, [interrupted(17)]) is given
    counts = RunSettings(device=HOST_CPU, sampling=FixedCounts(warmup_iterations=1, iterations=1))
    assert _with_seed(counts, [interrupted(17)]) is counts
