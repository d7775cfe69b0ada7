"""Measures how well the ratio of XLA to Inductor on one tiny workload repeats between runs.

Runs alternate between the machine without added load, and with a process that is busy on one core,
0.7 s on and 0.9 s off. Each run gives one ratio by our race (`cbs run --baseline`, default
sampling), and one by each of the usual methods: one process of each, one after the other, means or
medians of `--iterations`. Spread is the standard deviation of the log ratios over runs. The goal is
a spread of at most a third of the better usual method's. With 10 runs each, the quotient of two
spreads is known to a factor of 2 (F distribution, 9 and 9 degrees of freedom, 95 %).

    python benchmarks/repeatability.py [--pairs 5] [--minutes M] [--quick] [--report-only]

`--pairs` is the number of runs of each kind, loaded and quiet. Every run is one line of `--output`;
a later call continues the file.
"""

import argparse
import contextlib
import math
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _campaign import Budget, configuration, fixed_counts, measure_in_turns, options
from _journal import Entry, Journal, JournalError
from _known_ratios import prepare, renamed, trial_of
from _load import on_off_load
from _pairs import RACED, Pair, judge, seed_of
from _timing import print_goal, print_table
from _usual_methods import USUAL_METHODS

GOAL = 1 / 3
METHODS = (RACED, *USUAL_METHODS)
BASELINE_MODEL = "BERT_TINY_FP32_PT_32XI32_BATCH1"
CANDIDATE_MODEL = "BERT_TINY_FP32_JAX_32XI32_BATCH1"
# Section -> whether another process is busy.
SECTIONS = {"quiet": False, "loaded": True}
QUICK_PAIRS = 2


def main() -> int:
    parser = options(__doc__.partition("\n")[0], name="repeatability", pairs=5)
    parser.add_argument(
        "--quick", action="store_true", help=f"same as --pairs {QUICK_PAIRS}: four runs"
    )
    chosen = parser.parse_args()
    budget = Budget(None if chosen.minutes is None else 60 * chosen.minutes)
    try:
        journal = Journal(chosen.output)
        if not chosen.report_only:
            _measure(journal, chosen, budget)
    except JournalError as error:
        print(error, file=sys.stderr)
        return 1
    print_report(journal.entries)
    print(f"\nThe runs are in {journal.path}.")
    return 0


def _measure(journal: Journal, chosen: argparse.Namespace, budget: Budget) -> None:
    pair = Pair(
        baseline=trial_of(BASELINE_MODEL, renamed("pt_inductor", "pt_inductor", "inductor")),
        candidate=trial_of(CANDIDATE_MODEL, renamed("jax_xla")),
    )
    with tempfile.TemporaryDirectory(prefix="cbs-repeatability-") as directory:
        log_dir = Path(directory)
        artifacts = prepare(pair.candidate, log_dir)

        def measure(section: str, number: int) -> tuple[int, Mapping[str, Any]]:
            seed = seed_of(chosen.seed, section, number)
            found = judge(
                pair,
                artifacts,
                counts=fixed_counts(chosen),
                seed=seed,
                load=on_off_load() if SECTIONS[section] else contextlib.nullcontext(),
                log_dir=log_dir,
            )
            return seed, found

        with contextlib.suppress(KeyboardInterrupt):
            measure_in_turns(
                journal,
                measure,
                sections=list(SECTIONS),
                pairs=QUICK_PAIRS if chosen.quick else chosen.pairs,
                configuration={
                    **configuration("repeatability", chosen),
                    "models": [CANDIDATE_MODEL, BASELINE_MODEL],
                },
                budget=budget,
            )


def print_report(entries: Sequence[Entry]) -> None:
    """Prints the spread by method, over all runs and by load, and whether the goal is met."""
    # Omit runs in which one method has no ratio: they would favour that method.
    whole = [e for e in entries if all(e["methods"][m]["ratio"] is not None for m in METHODS)]
    print(f"\n{len(entries)} runs; {len(whole)} have a ratio from each method\n")
    header = ["XLA / Inductor", "runs", "median", "min", "max", "max / min", "sd", "s"]
    rows = []
    for method in METHODS:
        for name in ("all", *SECTIONS):
            found = [e["methods"][method] for e in whole if name in ("all", e["section"])]
            if len(found) < 2:
                continue
            ratios = [item["ratio"] for item in found]
            rows.append(
                [
                    f"{method}, {name}",
                    str(len(ratios)),
                    f"{statistics.median(ratios):.3f}",
                    f"{min(ratios):.3f}",
                    f"{max(ratios):.3f}",
                    f"{max(ratios) / min(ratios):.3f}",
                    f"{spread(ratios):.2%}",
                    f"{statistics.median(item['wall_s'] for item in found):.0f}",
                ]
            )
    if not rows:
        print("too few runs for a spread")
        return
    print_table(header, rows)
    spreads = {m: spread([e["methods"][m]["ratio"] for e in whole]) for m in METHODS}
    usual = min(USUAL_METHODS, key=lambda method: spreads[method])
    share = spreads[RACED] / spreads[usual]
    print_goal(
        f"spread over {len(whole)} runs at most a third of the spread of the {usual}",
        met=share <= GOAL,
        found=f"{share:.2f} of it",
    )


def spread(ratios: Sequence[float]) -> float:
    """Returns the standard deviation of the logarithms."""
    return statistics.stdev(math.log(ratio) for ratio in ratios)


if __name__ == "__main__":
    raise SystemExit(main())
