"""How often methods of comparison are wrong, on simulated noise whose truth is known.

For each kind of noise, pairs of two programs that are the same (A/A), or of which one is slower by
3 % or 5 %, are judged by

  raced       our verdict: K fresh processes of each, interleaved in rounds, `ratio_interval`
  two files   our verdict on K processes of A, then K of B: `unpaired_ratio_interval`
  whole > 1%  as raced, but a 95 % interval that must lie wholly beyond 1 %: the other rule in use
  mean        one process of A, then one of B, as many iterations: Welch's t test of all samples,
              p < 0.05 and means more than 1 % apart
  median      the same, and medians more than 1 % apart

A verdict counts if it is faster or slower; of a slow-down only the right one. First the coverage of
the intervals, by the truth they should hold. All noise is in the logarithm of the latency.

    python benchmarks/aa_simulation.py [--pairs 200] [--processes 8] [--seed 1] [--quick]
"""

import argparse
import math

import numpy as np
from _timing import print_table
from _usual_methods import t_test
from numpy.typing import NDArray

from comparative_benchmark.stats.statistics import (
    Interval,
    Verdict,
    latency_interval,
    ratio_interval,
    unpaired_ratio_interval,
    verdict,
)

Array = NDArray[np.float64]

ROUNDS, ITERATIONS = 20, 10
EFFECTS = (0.0, 0.03, 0.05)
# Process to process, as measured for one stack on 2 vCPUs (sd of a ratio 1.7 %).
PROCESS_SD = 0.012


def noise(kind: str, processes: int, random: np.random.Generator, *, fresh: bool = True) -> Array:
    """Returns log latencies [side, process, round, iteration], in the order they were taken.

    Sides are interleaved by round: what the machine does in a round happens to both. Unless
    processes are `fresh`, a side has one that goes on.
    """
    shape = (2, processes, ROUNDS, ITERATIONS)
    of_process = (2, processes if fresh else 1, 1, 1)
    logs = 0.01 * random.standard_normal(shape)
    logs += PROCESS_SD * random.standard_normal(of_process)
    if kind == "drift":
        logs += machine(random, processes * ROUNDS, 0.01).reshape(1, processes, ROUNDS, 1)
    elif kind == "spikes":
        logs += (random.random(shape) < 0.05) * random.exponential(0.5, shape)
        busy = random.random((2, processes, ROUNDS, 1)) < 0.2
        logs += busy * 0.2
    elif kind == "bimodal":
        logs += 0.03 * (random.random(of_process) < 0.5)
    elif kind == "AR(1)":
        logs += correlated(random, shape)
    return logs


def machine(random: np.random.Generator, steps: int, size: float) -> Array:
    """Returns a random walk: clocks, heat, neighbours."""
    walk: Array = np.cumsum(size * random.standard_normal(steps))
    return walk


def correlated(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Returns AR(1) noise of coefficient 0.95 and sd 2 % along all iterations of a process."""
    flat = random.standard_normal((*shape[:2], shape[2] * shape[3]))
    flat[..., 1:] *= math.sqrt(1 - 0.95**2)
    for index in range(1, flat.shape[-1]):
        flat[..., index] += 0.95 * flat[..., index - 1]
    series: Array = 0.02 * flat.reshape(shape)
    return series


def one_after_the_other(
    kind: str, processes: int, random: np.random.Generator, *, fresh: bool = True
) -> Array:
    """Returns the same noise where A was taken as a whole before B: the machine has moved on."""
    logs = noise("quiet" if kind == "drift" else kind, processes, random, fresh=fresh)
    if kind == "drift":
        walk = machine(random, 2 * processes * ROUNDS, 0.01)
        logs += walk.reshape(2, processes, ROUNDS, 1)
    return logs


def raced(logs: Array, level: float, seed: int) -> Interval:
    medians = np.median(np.exp(logs), axis=3)
    return ratio_interval(np.moveaxis(medians, 0, -1).tolist(), seed=seed, level=level)


def whole(interval: Interval) -> Verdict:
    if interval.low > 1.01:
        return Verdict.SLOWER
    return Verdict.FASTER if interval.high < 1 / 1.01 else Verdict.UNCLEAR


def judge(kind: str, effect: float, processes: int, seed: int) -> dict[str, Verdict]:
    """Returns each method's verdict on one pair."""
    random = np.random.default_rng(seed)
    slower = np.zeros((2, 1, 1, 1))
    slower[0] = math.log1p(effect)
    logs = noise(kind, processes, random) + slower
    apart = np.exp(one_after_the_other(kind, processes, random) + slower)
    files = apart.reshape(2, processes, -1)
    # One process a side, with as many iterations as all of ours.
    long = one_after_the_other(kind, processes, random, fresh=False) + slower
    candidate, baseline = np.exp(long).reshape(2, -1)
    return {
        "raced": verdict(raced(logs, 0.98, seed))[0],
        "two files": verdict(unpaired_ratio_interval(*files, seed=seed))[0],
        "whole > 1%": whole(raced(logs, 0.95, seed)),
        "mean": t_test(candidate, baseline, np.mean),
        "median": t_test(candidate, baseline, np.median),
    }


def coverage(processes: int, experiments: int, seed: int) -> list[str]:
    """Returns shares of intervals that hold the truth: of a latency, and of a ratio."""
    random = np.random.default_rng(seed)
    held = [0, 0, 0]
    for number in range(experiments):
        outer = PROCESS_SD * random.standard_normal((2, processes, 1))
        samples = np.exp(outer + 0.01 * random.standard_normal((2, processes, 20)))
        one = latency_interval(samples[0], seed=number)
        pairs = np.moveaxis(samples, 0, -1).tolist()
        two = ratio_interval(pairs, seed=number, level=0.95)
        three = ratio_interval(pairs, seed=number)
        truth = math.exp(PROCESS_SD**2 / 2)
        held[0] += one.low <= truth <= one.high
        held[1] += two.low <= 1 <= two.high
        held[2] += three.low <= 1 <= three.high
    return [f"{count / experiments:.1%}" for count in held]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="40 pairs, 200 experiments")
    arguments = parser.parse_args()
    pairs = 40 if arguments.quick else arguments.pairs
    experiments = 200 if arguments.quick else 2000
    error = math.sqrt(0.95 * 0.05 / experiments)
    print(f"Coverage, {experiments} experiments each, Monte-Carlo standard error {error:.1%}\n")
    print_table(
        ["processes", "latency 95 %", "ratio 95 %", "ratio 98 %"],
        [[str(k), *coverage(k, experiments, arguments.seed)] for k in (3, 4, 6, 10)],
    )
    print(
        f"\n{pairs} pairs each, {arguments.processes} processes of {ROUNDS} rounds of {ITERATIONS}"
        f" iterations, process sd {PROCESS_SD:.1%}: share of verdicts (false ones for 0 %)\n"
    )
    rows = []
    for kind in ("quiet", "drift", "spikes", "bimodal", "AR(1)"):
        for effect in EFFECTS:
            found = [
                judge(kind, effect, arguments.processes, arguments.seed + 7919 * number)
                for number in range(pairs)
            ]
            wanted = (Verdict.SLOWER,) if effect else (Verdict.SLOWER, Verdict.FASTER)
            shares = [sum(item[name] in wanted for item in found) / pairs for name in found[0]]
            rows.append([f"{kind}, {effect:.0%} slower", *(f"{share:.1%}" for share in shares)])
    print_table(["noise", *found[0]], rows)


if __name__ == "__main__":
    main()
