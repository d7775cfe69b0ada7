"""The end of a warm-up, for fast and slow iterations."""

import itertools
import math
from types import SimpleNamespace

import pytest

from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.engine.participant import Participant
from comparative_benchmark.results.outcome import ProcessRecord
from comparative_benchmark.results.record import Block


class _Played(Participant):
    """Plays given samples instead of a worker's."""

    def __init__(self, samples_ms):
        self.record = ProcessRecord()
        self.iterations_per_block = 1
        self._session = SimpleNamespace()
        self._samples = iter(samples_ms)
        self._stack = SimpleNamespace(close=lambda: None)

    def _measure(self, iterations, **note):
        return Block(latencies_ms=tuple(itertools.islice(self._samples, iterations)))


def _noise(first, then):
    return itertools.chain(first, itertools.cycle(then))


@pytest.mark.parametrize("scale", [1.0, 1600.0, 60_000.0])
def test_a_steady_model_passes_however_slow(scale):
    played = _Played(_noise([], [scale * factor for factor in (1, 1.01, 0.99, 1.005)]))
    played.warm_up_until_steady(SamplingRule())
    assert played.record.reason is None
    assert played.iterations_per_block == (40 if scale == 1.0 else 1)
    # The test needs 8; slow models do not wait for more, and fast ones take a quarter of a second.
    assert len(played.record.warmup_latencies_ms) == (265 if scale == 1.0 else 8)


def test_a_slow_model_that_warms_up_late_gets_its_chance():
    played = _Played(_noise([4000.0] * 2, [1600, 1610, 1590]))
    played.warm_up_until_steady(SamplingRule())
    assert played.record.reason is None
    assert len(played.record.warmup_latencies_ms) == 11


@pytest.mark.parametrize(("latency_ms", "samples"), [(20, 20), (60, 17), (100, 11), (200, 8)])
def test_a_warm_up_ends_after_a_second_that_was_steady(latency_ms, samples):
    played = _Played(_noise([], [latency_ms * factor for factor in (1, 1.01, 0.99, 1.005)]))
    played.warm_up_until_steady(SamplingRule())
    assert played.record.steadiness.steady
    assert played.refreshes is (latency_ms < 50)
    assert samples <= len(played.record.warmup_latencies_ms) <= samples + 2


def test_without_a_span_a_warm_up_has_all_the_samples_that_the_window_wants():
    rule = SamplingRule(steady_span_ms=math.inf)
    played = _Played(_noise([], [200, 202, 198, 201]))
    played.warm_up_until_steady(rule)
    assert 20 <= len(played.record.warmup_latencies_ms) <= 22


@pytest.mark.parametrize("scale", [1.0, 1600.0])
def test_what_never_gets_steady_ends(scale):
    played = _Played(scale * 1.2**step for step in range(100_000))
    played.warm_up_until_steady(SamplingRule())
    assert played.record.status.value == "unsteady"
    assert not played.alive
    assert len(played.record.warmup_latencies_ms) >= 20


@pytest.mark.parametrize(("median_ms", "iterations"), [(0.004, 2000), (0.5, 40), (30.0, 3)])
def test_a_warm_up_is_looked_at_every_20_ms_however_short_an_iteration_is(median_ms, iterations):
    rule = SamplingRule()
    # Slow first iterations do not decide how many follow.
    samples = [50.0, *[median_ms] * 3000]
    assert rule.warmup_iterations(samples) == iterations
