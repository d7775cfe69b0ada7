"""Measures false alarms and detection rates of `cbs history regressions` on simulated nights.

Alarms are the histories without changes that report a step. For detection, one trend is 8 % slower
in the last night, or in the last two or three nights; the script counts how often that is reported.
The code of the command judges the nights, which are random numbers without a database.

    python benchmarks/history_alarms.py [--histories 400] [--quick]
"""

import argparse
import math
from collections.abc import Callable

import numpy as np
from _timing import print_goal, print_table

from comparative_benchmark.analysis.stats.steps import Array, discoveries
from comparative_benchmark.reporting.history.queries import Night
from comparative_benchmark.reporting.history.regressions import FALSE_RATE, THRESHOLDS, MetricTrends

Noise = Callable[[np.random.Generator, tuple[int, int]], Array]

NIGHTS, SLOWER, GOAL = 30, 1.08, 0.02


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--histories", type=int, default=400, help="number of histories of each kind to simulate"
    )
    parser.add_argument("--quick", action="store_true", help="try the script with 20 histories")
    options = parser.parse_args()
    histories = 20 if options.quick else options.histories

    rows = []
    normal_rates = []
    for name, noise in NOISES.items():
        rates = []
        for trends in (20, 200):
            alarms = sum(
                bool(reported(noise(np.random.default_rng(seed), (trends, NIGHTS)) * 0.015))
                for seed in range(histories)
            )
            rates.append(alarms / histories)
        rows.append([name, *(f"{rate:.2%}" for rate in rates)])
        if name == "normal":
            normal_rates = rates
    print_table([f"{histories} histories of {NIGHTS} nights: alarms", "20 trends", "200"], rows)
    print()

    found = []
    for spread in (0.005, 0.01, 0.015, 0.02, 0.03):
        cells = []
        for trends in (20, 1000):
            few = max(histories // (1 if trends == 20 else 10), 1)
            for bad in (1, 2, 3):
                hits = sum(first_night_found(seed, trends, spread, bad) for seed in range(few))
                cells.append(f"{hits / few:.0%}")
        found.append([f"{spread:.1%}", *cells])
    header = [f"+{SLOWER - 1:.0%} found at a spread of"]
    header += [f"{trends}: {bad}" for trends in (20, 1000) for bad in (1, 2, 3)]
    print_table(header, found)
    print("(trends: bad nights)")
    print()
    print_goal(
        f"at most {GOAL:.0%} of histories of independent noise raise an alarm",
        met=max(normal_rates) <= GOAL,
        found=f"{max(normal_rates):.2%}",
    )


def independent(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    return random.standard_normal(shape)


def heavy(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Student's t with 3 degrees of freedom and variance 1: about one outlier per month."""
    found: Array = random.standard_t(3, shape) / math.sqrt(3)
    return found


def drifting(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    """AR(1) noise: half of the distance from the level remains in the next night."""
    values = random.standard_normal(shape)
    for night in range(1, shape[1]):
        values[:, night] = 0.5 * values[:, night - 1] + math.sqrt(0.75) * values[:, night]
    return values


def two_levels(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Each night has one of two levels, 2 standard deviations apart, like memory layouts."""
    modes = np.where(random.random(shape) < 0.5, -1.0, 1.0)
    found: Array = 0.9 * modes + 0.436 * random.standard_normal(shape)
    return found


NOISES: dict[str, Noise] = {
    "normal": independent,
    "heavy tails": heavy,
    "two levels": two_levels,
    "drift": drifting,
}


def first_night_found(seed: int, trends: int, spread: float, bad: int) -> bool:
    values = spread * np.random.default_rng(seed).standard_normal((trends, NIGHTS))
    values[0, NIGHTS - bad :] += math.log(SLOWER)
    return (0, NIGHTS - bad) in reported(values)


def reported(logs: Array) -> list[tuple[int, int]]:
    """Returns trend and first bad night of the steps that `cbs history regressions` reports."""
    count, nights = logs.shape
    made = [Night(night, night, "", "", 0, "", "ok", "", *([None] * 8)) for night in range(nights)]
    trends = MetricTrends(
        metric="latency_ms",
        series=range(count),
        nights=[made] * count,
        logs=logs,
        own=np.zeros(logs.shape),
        known=np.ones(logs.shape, dtype=np.bool_),
    )
    rises = list(trends.rises(THRESHOLDS))
    limit = discoveries([rise.step.p for rise in rises], count, FALSE_RATE)
    return [(rise.series, rise.first_bad.id) for rise in rises if rise.step.p <= limit]


if __name__ == "__main__":
    main()
