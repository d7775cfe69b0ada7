"""The simulation of fleets in `benchmarks/` judges as the product does."""

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from comparative_benchmark.analysis.stats.analysis import Verdict, paired_ratio
from comparative_benchmark.analysis.stats.nodes import class_ratio
from comparative_benchmark.analysis.stats.slow_nodes import slow_nodes

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def simulation():
    """The script, imported from its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        before = set(sys.modules)
        yield importlib.import_module("fleet_statistics")
        for name in set(sys.modules) - before:
            if (BENCHMARKS / f"{name}.py").exists():
                del sys.modules[name]


@pytest.mark.parametrize("nodes", [2, 4, 5, 6, 8])
def test_simulated_classes_are_judged_as_by_class_ratio(simulation, nodes):
    random = np.random.default_rng(nodes)
    effects = random.choice([0.03, 0.3], (30, 1)) + 0.01 * random.standard_normal((30, nodes))
    logs = simulation.race_classes(random, 30, (nodes, 2, 3), effects)
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
    logs = noise.nights(random, 15, nights)
    logs[:, 0, :2, -3:] += random.choice([0.0, 0.05, 0.08], (15, 2, 1))
    named = simulation.name_nodes(logs)
    for number, canaries in enumerate(logs):
        found = slow_nodes(
            {
                str(index): {
                    str(node): {
                        f"{night:02}": [math.exp(value)] for night, value in enumerate(values)
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
