"""Measures how often verdicts are wrong, on simulated noise with a known truth.

Pairs of two programs are equal, or one is 3 % slower. The code of `cbs run` races, stops and judges
them: pilot, `why_enough` after every process, at most 10 processes. A verdict counts if it is
faster or slower. For a slow-down, only `slower` is right.

  now          the current rule: `stop_reasons`, `paired_ratio`
  former       the rule until November 2026: a 98 % bootstrap that ignored early stopping
  two groups   the race of `now`, judged as if its processes were not paired: `unpaired_ratio`
  whole > 1%   the race of `now`, by a 95 % interval that must lie wholly beyond 1 %
  mean, median one process of each, one after the other, 200 iterations: Welch's t test of all
               samples, p < 0.05 and means or medians more than 1 % apart

The simulation omits time budgets (except in one table), rounds beyond the minimum, and samples
within a block. Shares have their exact 95 % interval.

    python benchmarks/aa_simulation.py [--pairs 100000] [--seed 1] [--quick]
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from functools import partial

import attrs
import numpy as np
from _binomial import share_interval
from _former_rule import former_ratio, former_stop
from _simulated_noise import (
    BLOCK_SD,
    COMPILED,
    FURTHER_KINDS,
    KINDS,
    OUT_OF_REACH,
    PROCESSES,
    ROUNDS,
    Array,
    Noise,
    normal,
)
from _simulated_races import (
    Judged,
    Medians,
    alone,
    latencies_covered,
    medians_of,
    paired,
    stopped_after,
    unpaired,
    why_enough_rule,
)
from _simulated_recommendations import recommended
from _timing import print_goal, print_table
from _usual_methods import USUAL_METHODS, t_test

from comparative_benchmark.analysis.stats.analysis import (
    SHARE_OF_ERROR,
    LogRatio,
    Verdict,
    decisive,
    mean_ratio,
    verdict,
)
from comparative_benchmark.analysis.stats.planning import SamplingRule, decidable_effect
from comparative_benchmark.analysis.stats.steadiness import resembles

PROCESS_SDS = (0.007, 0.012, 0.02, 0.03)
SLOWER = math.log1p(0.03)
FALSE_GOAL, COVERAGE_GOAL, RED_GOAL = 0.02, 0.975, 0.05
RULE = SamplingRule()
# Workloads of a suite, and competitors of each in addition to the baseline: 50 comparisons.
CASES, COMPETITORS = 10, 5
_CHUNK, _SUITES = 10_000, 200
# Number of races with ten processes for the test of resemblance.
_RESEMBLING = 2000
_USUAL_PAIRS = 2000

Groups = list[list[LogRatio]]


@attrs.define
class Counted:
    """Counts of pairs by outcome."""

    pairs: int = 0
    false: int = 0
    covered: int = 0
    found: int = 0
    processes: int = 0
    latencies: int = 0
    slower_covered: int = 0

    def add(self, equal: Judged, slower: Judged) -> None:
        """Adds pairs of equals, and the same pairs with one side 3 % slower."""
        self.pairs += len(equal.estimates)
        self.false += equal.decided()
        self.covered += equal.covers()
        self.found += slower.slower()
        self.slower_covered += slower.covers(SLOWER)
        self.processes += int(equal.processes.sum())

    @property
    def worst_coverage(self) -> int:
        """The smaller number of intervals that contain the truth: for equals or for slow-downs."""
        return min(self.covered, self.slower_covered)


def share(count: int, total: int) -> str:
    """Returns e.g. `1.93% [1.85, 2.02]`."""
    low, high = share_interval(count, total)
    return f"{count / total:.2%} [{100 * low:.2f}, {100 * high:.2f}]"


def chunks(noise: Noise, pairs: int, seed: int) -> Iterator[Medians]:
    """Yields the medians of pairs of equals in chunks."""
    random = np.random.default_rng(seed)
    for start in range(0, pairs, _CHUNK):
        yield medians_of(noise.sides(random, min(_CHUNK, pairs - start)))


def slowed(found: Medians) -> Medians:
    """Returns the same medians with a candidate that is 3 % slower."""
    return attrs.evolve(found, candidate=found.candidate + SLOWER, ratios=found.ratios + SLOWER)


def raced(noise: Noise, pairs: int, seed: int, rule: SamplingRule = RULE) -> dict[str, Counted]:
    """Returns the outcomes of the rule, and of other methods for the same races."""
    counted = {name: Counted() for name in ("now", "two groups", "whole > 1%")}
    stop = why_enough_rule(rule)
    for equal in chunks(noise, pairs, seed):
        both = (equal, slowed(equal))
        fewest, most = rule.min_processes, rule.max_processes
        counts = [stopped_after(one, stop, fewest=fewest, most=most) for one in both]
        races = list(zip(both, counts, strict=True))
        counted["now"].add(*(paired(*race) for race in races))
        counted["now"].latencies += latencies_covered(equal, counts[0])
        counted["two groups"].add(*(unpaired(one, k, k) for one, k in races))
        # Plain Student's t at 95 %; the interval, not the estimate, must lie beyond 1 %.
        at_95 = [paired(*race, level=1 - 0.05 / SHARE_OF_ERROR) for race in races]
        beyond = [attrs.evolve(j, widths=j.widths + math.log1p(0.01)) for j in at_95]
        counted["whole > 1%"].add(*beyond)
    return counted


def raced_formerly(noise: Noise, pairs: int, seed: int) -> Counted:
    """Returns the outcomes of the former rule."""
    counted = Counted()
    for equal in chunks(noise, pairs, seed):
        races = []
        for one in (equal, slowed(equal)):
            counts = stopped_after(one, partial(former_stop, rule=RULE), fewest=3, most=PROCESSES)
            races.append(former_ratio(one, counts))
        counted.add(*races)
    return counted


def in_two_files(noise: Noise, moved_sd: float, pairs: int, seed: int) -> Counted:
    """Returns the verdicts if each competitor has its own run, and the runs are compared later.

    Args:
      noise: noise within each run.
      moved_sd: standard deviation of the change of the machine between the runs.
      pairs: number of pairs.
      seed: seed of the noise.
    """
    counted = Counted()
    random = np.random.default_rng(seed + 1)
    for still in chunks(noise, pairs, seed):
        moved = moved_sd * random.standard_normal((len(still.ratios), 1))
        equal = attrs.evolve(still, candidate=still.candidate + moved)
        races = []
        for one in (equal, slowed(equal)):
            sides = (one, attrs.evolve(one, candidate=one.baseline))
            counts = [stopped_after(s, alone(RULE), fewest=3, most=PROCESSES) for s in sides]
            races.append(unpaired(one, counts[0], counts[1]))
        counted.add(*races)
    return counted


def by_process_sd(pairs: int, seed: int) -> tuple[float, float]:
    """Prints both rules by noise; returns the worst false rate and coverage of the current one."""
    rows, most_false, least_covered = [], 0.0, 1.0
    for number, sd in enumerate(PROCESS_SDS):
        noise = Noise(process_sd=sd)
        now = raced(noise, pairs, seed + number)["now"]
        former = raced_formerly(noise, pairs // 5, seed + number)
        for name, found in (("former", former), ("now", now)):
            rows.append(
                [
                    f"{sd:.1%}, {name}",
                    str(found.pairs),
                    share(found.false, found.pairs),
                    share(found.worst_coverage, found.pairs),
                    f"{found.found / found.pairs:.1%}",
                    f"{found.processes / found.pairs:.2f}",
                    f"{found.latencies / found.pairs:.1%}" if found.latencies else "-",
                ]
            )
        most_false = max(most_false, now.false / now.pairs)
        least_covered = min(least_covered, now.worst_coverage / now.pairs)
    header = ["process sd", "pairs", "false verdicts", "98 % interval holds"]
    print_table([*header, "3 % found", "processes", "95 % latency"], rows)
    return most_false, least_covered


def by_kind(pairs: int, seed: int) -> None:
    """Prints false verdicts and power under noise that is not independent, and by other methods."""
    rows = []
    for kind, noise in KINDS.items():
        found = raced(noise, pairs, seed)
        now = found["now"]
        cells = [f"{item.false / pairs:.2%} {item.found / pairs:.0%}" for item in found.values()]
        usual = usual_verdicts(noise, min(pairs, _USUAL_PAIRS), seed)
        rows.append(
            [
                kind,
                share(now.false, pairs),
                f"{now.worst_coverage / pairs:.1%}",
                f"{now.processes / pairs:.1f}",
                *cells,
                *usual,
            ]
        )
    header = ["noise", "false verdicts, now", "98 % holds", "processes"]
    print_table([*header, *found, *USUAL_METHODS], rows)


def usual_verdicts(noise: Noise, pairs: int, seed: int) -> list[str]:
    """Returns false verdicts and slow-downs found by each usual method.

    Each side has one process with as many blocks as a race.
    """
    random = np.random.default_rng(seed)
    long = (2, pairs, 1, PROCESSES * ROUNDS)
    logs: Array = BLOCK_SD * random.standard_normal(long)
    make = noise.process or normal
    logs += (noise.process_sd * make(random, long[:3]))[..., None]
    if noise.rounds is not None:
        # The sides run one after the other, so their times do not overlap.
        logs += np.concatenate([noise.rounds(random, (1, *long[1:]))[:1] for _ in range(2)])
    cells = []
    for middle in USUAL_METHODS.values():
        found = [
            [t_test(np.exp(a + shift).ravel(), np.exp(b).ravel(), middle) for a, b in zip(*logs)]
            for shift in (0.0, SLOWER)
        ]
        false = sum(item in (Verdict.SLOWER, Verdict.FASTER) for item in found[0])
        cells.append(f"{false / pairs:.0%} {found[1].count(Verdict.SLOWER) / pairs:.0%}")
    return cells


def by_processes(pairs: int, seed: int) -> float:
    """Prints false verdicts and coverage in each kind of noise, by the maximum of processes.

    Returns:
      the largest share of false verdicts for the kinds of noise that the rule should handle.
    """
    rows, worst = [], 0.0
    for kind, noise in {**KINDS, **FURTHER_KINDS, **OUT_OF_REACH}.items():
        row = [kind]
        shares = []
        for count in (3, 5, 10):
            found = raced(noise, pairs, seed, attrs.evolve(RULE, max_processes=count))["now"]
            shares.append(found.false / found.pairs)
            row.append(f"{shares[-1]:.2%} {found.worst_coverage / found.pairs:.1%}")
        if kind not in OUT_OF_REACH:
            worst = max(worst, *shares)
        medians = medians_of(noise.sides(np.random.default_rng(seed), _RESEMBLING))
        row.append(f"{np.mean([resembles(ratios.tolist()) for ratios in medians.ratios]):.1%}")
        rows.append(row)
    header = [f"{count} processes" for count in (3, 5, 10)]
    print_table(["noise", *header, "resemblance seen"], rows)
    return worst


def where_it_fails(pairs: int, seed: int) -> None:
    """Prints effects that no statistics of one race can detect, and races that end early."""
    rows = []
    cut = {
        f"time for {count} processes": (Noise(), attrs.evolve(RULE, max_processes=count))
        for count in (3, 5)
    }
    cut |= {
        f"two tight speeds, time for {count}": (
            KINDS["two speeds, tight"],
            attrs.evolve(RULE, max_processes=count),
        )
        for count in (3, 5)
    }
    compiled = {name: (noise, RULE) for name, noise in COMPILED.items()}
    for name, (noise, rule) in {**cut, **compiled}.items():
        rows.append(cells(name, raced(noise, pairs, seed, rule)["now"]))
    for moved in (0.0, 0.01, 0.02):
        name = f"two files, machine moves by {moved:.0%}"
        rows.append(cells(name, in_two_files(Noise(), moved, pairs, seed)))
    print_table(["race", "false verdicts", "98 % holds", "3 % found", "processes"], rows)


def cells(name: str, found: Counted) -> list[str]:
    return [
        name,
        share(found.false, found.pairs),
        f"{found.worst_coverage / found.pairs:.1%}",
        f"{found.found / found.pairs:.1%}",
        f"{found.processes / found.pairs:.1f}",
    ]


def suites_of(noise: Noise, suites: int, seed: int) -> Iterator[tuple[Groups, bool]]:
    """Yields the ratios of suites of equals by case, and whether any verdict of each is `slower`.

    The competitors of a case share the processes of its baseline.
    """
    random = np.random.default_rng(seed)
    stop = why_enough_rule(RULE)
    for start in range(0, suites, _SUITES):
        shape = (min(_SUITES, suites - start), CASES, COMPETITORS)
        # All competitors of a case take turns: they share the noise of its rounds.
        races = noise.races(random, shape[0] * CASES, 1 + COMPETITORS)
        baseline = np.repeat(races[0], COMPETITORS, axis=0)
        found = medians_of((races[1:].swapaxes(0, 1).reshape(baseline.shape), baseline))
        counts = stopped_after(found, stop, fewest=RULE.min_processes, most=RULE.max_processes)
        slower = paired(found, counts).is_slower().reshape(shape[0], -1)
        ratios = [paired_ratio_of(*race) for race in zip(found.ratios, counts, strict=True)]
        for number, is_slower in enumerate(slower):
            first = number * CASES * COMPETITORS
            cases = range(first, first + CASES * COMPETITORS, COMPETITORS)
            yield [ratios[case : case + COMPETITORS] for case in cases], bool(is_slower.any())


def paired_ratio_of(ratios: Array, count: int) -> LogRatio:
    """Returns the result of `paired_ratio` for `count` replicates, given the ratios of medians."""
    used = ratios[:count]
    terms = (used - used.mean()) / math.sqrt(count * (count - 1))
    return LogRatio(estimate=float(used.mean()), shared=tuple(terms.tolist()), processes=count)


def many_comparisons(suites: int, seed: int) -> tuple[float, float]:
    """Prints red suites of equals and coverage of the geomean; returns the worst of each."""
    rows, worst_red, worst_held = [], 0.0, 1.0
    for sd in sorted((*PROCESS_SDS, 0.025)):
        any_slower = red = held = case_held = 0
        for groups, is_slower in suites_of(Noise(process_sd=sd), suites, seed):
            any_slower += is_slower
            red += is_slower and is_red([ratio for group in groups for ratio in group])
            of_all, of_case = mean_ratio(groups), mean_ratio(groups[:1])
            held += of_all.low <= 1 <= of_all.high
            case_held += of_case.low <= 1 <= of_case.high
        worst_red = max(worst_red, red / suites)
        worst_held = min(worst_held, held / suites, case_held / suites)
        shares = [share(count, suites) for count in (any_slower, red, held, case_held)]
        rows.append([f"{sd:.1%}", *shares])
    header = ["process sd", "any slower", "exit code 2", "geomean of 50", "geomean of a case"]
    print_table(header, rows)
    return worst_red, worst_held


def suites_by_kind(suites: int, seed: int) -> float:
    """Prints red suites of equals in each kind of noise.

    Returns:
      the largest share for the kinds of noise that the rule should handle.
    """
    rows, worst = [], 0.0
    for kind, noise in {**KINDS, **FURTHER_KINDS, **OUT_OF_REACH}.items():
        red = sum(
            is_slower and is_red([ratio for group in groups for ratio in group])
            for groups, is_slower in suites_of(noise, suites, seed)
        )
        if kind not in OUT_OF_REACH:
            worst = max(worst, red / suites)
        rows.append([kind, share(red, suites)])
    print_table(["noise", "exit code 2"], rows)
    return worst


def is_red(ratios: Sequence[LogRatio]) -> bool:
    """Returns whether any of the ratios of a suite is a regression."""
    slower = [verdict(ratio.interval())[0] is Verdict.SLOWER for ratio in ratios]
    return any(map(all, zip(slower, decisive(ratios, Verdict.SLOWER), strict=True)))


def recommendations(races: int, seed: int) -> float:
    """Prints false sentences on the best of several equals; returns the largest share of them.

    Kinds of noise that the rule cannot handle are not included.
    """
    rows, worst = [], 0.0
    for kind, noise in {**KINDS, **FURTHER_KINDS}.items():
        row = [kind]
        for programs in (3, 6, 9):
            found = recommended(noise, races, programs, seed=seed)
            worst = max(worst, found.false / races)
            row.append(
                f"{found.false / races:.2%} {found.false_pairs / races:.2%} "
                f"{found.false_of_single_pairs / races:.1%}"
            )
        rows.append(row)
    print_table(["noise", *(f"{count} equals" for count in (3, 6, 9))], rows)
    return worst


def outlooks(pairs: int, seed: int) -> None:
    """Prints the effect that planning expects a race to decide, and how often races found it."""
    rows = []
    for sd in PROCESS_SDS:
        row = [f"{sd:.1%}"]
        for count in (3, 5, 10):
            noise = Noise(process_sd=sd)
            # Variance of the ratio in a replicate: processes of both sides, and medians of rounds.
            variance = 2 * sd**2 + math.pi / 2 * 2 * BLOCK_SD**2 / ROUNDS
            effect = decidable_effect(math.sqrt(variance), count)
            found = total = 0
            for equal in chunks(noise, pairs, seed):
                judged = paired(equal, np.full(len(equal.ratios), count))
                shifted = attrs.evolve(judged, estimates=judged.estimates + math.log1p(effect))
                found, total = found + shifted.slower(), total + len(equal.ratios)
            row.append(f"{effect:.1%}: {found / total:.0%}")
        rows.append(row)
    print_table(["process sd", "3 processes", "5", "10"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--suites", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--quick", action="store_true", help="simulate only 5,000 pairs and 200 suites"
    )
    chosen = parser.parse_args(arguments)
    pairs = 5000 if chosen.quick else chosen.pairs
    suites = 200 if chosen.quick else chosen.suites
    print("Independent processes; false verdicts of equals\n")
    false, covered = by_process_sd(pairs, chosen.seed)
    fewer = max(pairs // 5, 1000)
    print(f"\nOther noise, {fewer} pairs; of the methods: false verdicts, and 3 % found\n")
    by_kind(fewer, chosen.seed)
    print(f"\nFalse verdicts and coverage by the most processes, {fewer} pairs\n")
    false_of_kinds = by_processes(fewer, chosen.seed)
    print(f"\nEffects that the rule cannot detect, {fewer} pairs\n")
    where_it_fails(fewer, chosen.seed)
    print(f"\nSuites of {CASES * COMPETITORS} comparisons of equals, {suites} each\n")
    red, mean_covered = many_comparisons(suites, chosen.seed)
    some = max(suites // 4, 200)
    print(f"\nThe same in each kind of noise, {some} suites\n")
    red_of_kinds = suites_by_kind(some, chosen.seed)
    races = max(suites // 2, 1000)
    print(
        f"\nRaces of several equals, {races} each: false sentences on the best, any false verdict, "
        "false sentences if pairs were judged by themselves\n"
    )
    false_sentences = recommendations(races, chosen.seed)
    print(
        "\nEffects that planning calls decidable, and how often a race of that many processes "
        "found them\n"
    )
    outlooks(fewer, chosen.seed)
    print()
    goals = (
        (f"false verdicts of equals <= {FALSE_GOAL:.0%}", false, false <= FALSE_GOAL),
        (
            f"98 % intervals hold the truth in >= {COVERAGE_GOAL:.1%}",
            covered,
            covered >= COVERAGE_GOAL,
        ),
        (f"exit code 2 for equals in <= {RED_GOAL:.0%} of suites", red, red <= RED_GOAL),
        (
            f"false verdicts in all kinds of noise within reach <= {FALSE_GOAL:.0%}",
            false_of_kinds,
            false_of_kinds <= FALSE_GOAL,
        ),
        (
            f"exit code 2 in all of these in <= {RED_GOAL:.0%} of suites",
            red_of_kinds,
            red_of_kinds <= RED_GOAL,
        ),
        (
            f"false sentences on the best of 3, 6 or 9 equals <= {FALSE_GOAL:.0%}",
            false_sentences,
            false_sentences <= FALSE_GOAL,
        ),
        (
            f"geomean intervals hold the truth in >= {COVERAGE_GOAL:.1%}",
            mean_covered,
            mean_covered >= COVERAGE_GOAL,
        ),
    )
    for goal, worst, met in goals:
        print_goal(goal, met=met, found=f"{worst:.2%} at worst")


if __name__ == "__main__":
    main()
