"""Measures how often a race rejects steady programs, and how often it detects unsteady ones.

The code of `cbs run` races and stops pairs of two programs on simulated noise (three to ten
processes). `why_not_steady` judges each program together with its rival, and alone. Then one
program becomes 5 % slower in the middle of the rounds of each process, or after three of ten. The
simulation omits rounds beyond the minimum. Shares have their exact 95 % interval.

    python benchmarks/steady_rounds.py [--pairs 4000] [--seed 1] [--quick]
"""

import argparse
import math

import numpy as np
from _binomial import share_interval
from _simulated_noise import BLOCK_SD, KINDS, PROCESSES, ROUNDS, Array
from _simulated_races import medians_of, stopped_after, why_enough_rule
from _timing import print_goal, print_table

from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.analysis.stats.steadiness import Rounds, why_not_steady

FALSE_GOAL, FOUND_GOAL = 0.01, 0.9
STEP = math.log1p(0.05)
RULE = SamplingRule()
HOW = ("raced", "alone")
# Noise of rounds that is larger than in the goal.
NOISIER = ("spikes", "autocorrelated")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--pairs",
        type=int,
        default=4000,
        help="number of pairs of each kind to simulate (default: 4000)",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="try the script with 300 pairs")
    options = parser.parse_args()
    pairs = 300 if options.quick else options.pairs
    rows, false, found = [], [], []
    for name, noise in KINDS.items():
        counts = _counts(*noise.sides(np.random.default_rng(options.seed), pairs))
        rows.append([name, *(_share(count, pairs) for count in counts)])
        false += counts[:2]
        found += [] if name in NOISIER else counts[2:]
    columns = [f"{what}, {how}" for what in ("false", "found", "early") for how in HOW]
    print_table(["noise", *columns], rows)
    print_goal(
        "a steady program is called unsteady in at most 1 %",
        met=max(false) / pairs <= FALSE_GOAL,
        found=_share(max(false), pairs),
    )
    print_goal(
        f"a step of 5 % in noise of {BLOCK_SD:.0%} is found in 90 %",
        met=min(found) / pairs >= FOUND_GOAL,
        found=_share(min(found), pairs),
    )


def _counts(candidate: Array, baseline: Array) -> list[int]:
    """Counts unsteady programs, raced and alone: without a step, with one, with an early one."""
    stop = why_enough_rule(RULE)
    totals = [0] * 6
    step, early = (STEP * (np.arange(ROUNDS) >= first) for first in (ROUNDS // 2, 3))
    for place, shift in ((0, 0.0), (2, step), (4, early)):
        sides = (candidate + shift, baseline)
        processes = stopped_after(
            medians_of(sides), stop, fewest=RULE.min_processes, most=PROCESSES
        )
        for pair, count in enumerate(processes):
            own, rival = (_rounds(side[pair, : int(count)]) for side in sides)
            totals[place] += why_not_steady(own, [[process] for process in rival]) is not None
            totals[place + 1] += why_not_steady(own) is not None
    return totals


def _rounds(values: Array) -> list[Rounds]:
    return [dict(enumerate(map(float, process))) for process in values]


def _share(count: int, total: int) -> str:
    low, high = share_interval(count, total)
    return f"{count / total:.2%} [{100 * low:.2f}, {100 * high:.2f}]"


if __name__ == "__main__":
    main()
