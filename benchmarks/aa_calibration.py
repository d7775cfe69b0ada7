"""Measures how often our verdicts and the usual methods' verdicts are wrong on this machine.

Pairs have two identical workers (A/A), or one worker that takes 3 % longer in each iteration. They
are judged by

  raced    the default of `cbs run --baseline`: fresh processes of both, interleaved
  mean     one process of each, one after the other, `--iterations` each: Welch's t test of all
           samples, p < 0.05 and means more than 1 % apart
  median   the same, and medians more than 1 % apart

on an idle machine, and on the same machine with two busy processes. A disturbed race has no
verdict. On a shared machine, "quiet" includes the load of other users. A verdict counts if it is
faster or slower. For a slow-down, only `slower` is right. Each pair is one line of `--output`.
Another run continues the file, and Ctrl-C loses one pair.

    python benchmarks/aa_calibration.py [--pairs 60] [--minutes M] [--quick] [--report-only]
"""

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from _calibration_report import print_report
from _calibration_sections import DUE_PAIRS, SECTIONS, Section
from _campaign import Budget, configuration, fixed_counts, measure_in_turns, options
from _journal import Journal, JournalError
from _known_ratios import prepare, renamed, slowed, trial_of
from _load import busy_processes
from _pairs import Pair, judge, seed_of

MODEL = "BERT_TINY_FP32_JAX_32XI32_BATCH1"
QUICK_MINUTES = 13.0


def main() -> int:
    parser = options(__doc__.partition("\n")[0], name="aa_calibration", pairs=DUE_PAIRS)
    parser.add_argument(
        "--quick", action="store_true", help=f"same as --minutes {QUICK_MINUTES:.0f}"
    )
    parser.add_argument(
        "--section",
        action="append",
        choices=[section.name for section in SECTIONS],
        help="section to measure; may be repeated (default: all)",
    )
    chosen = parser.parse_args()
    minutes = QUICK_MINUTES if chosen.quick and chosen.minutes is None else chosen.minutes
    budget = Budget(None if minutes is None else 60 * minutes)
    try:
        journal = Journal(chosen.output)
        if not chosen.report_only:
            _measure(journal, chosen, budget)
    except JournalError as error:
        print(error, file=sys.stderr)
        return 1
    print_report(journal.entries)
    print(f"\nThe pairs are in {journal.path}.")
    return 0


def _measure(journal: Journal, chosen: argparse.Namespace, budget: Budget) -> None:
    sections = {section.name: section for section in SECTIONS}
    pairs = {name: pair_of(section) for name, section in sections.items()}
    with tempfile.TemporaryDirectory(prefix="cbs-calibration-") as directory:
        log_dir = Path(directory)
        artifacts = prepare(trial_of(MODEL, renamed("jax_xla")), log_dir)

        def measure(name: str, number: int) -> tuple[int, Mapping[str, Any]]:
            seed = seed_of(chosen.seed, name, number)
            found = judge(
                pairs[name],
                artifacts,
                counts=fixed_counts(chosen),
                seed=seed,
                load=busy_processes(sections[name].busy),
                log_dir=log_dir,
            )
            return seed, found

        with contextlib.suppress(KeyboardInterrupt):
            measure_in_turns(
                journal,
                measure,
                sections=chosen.section or list(sections),
                pairs=chosen.pairs,
                configuration={**configuration("aa_calibration", chosen), "model": MODEL},
                budget=budget,
            )


def pair_of(section: Section) -> Pair:
    """Returns the two trials of a section.

    For a slow-down, both sides run the code that adds time; the baseline adds none. So both sides
    have its overhead.
    """
    if section.slow_down:
        sides = (slowed("baseline", 0.0), slowed("candidate", section.slow_down))
    else:
        sides = (renamed("baseline"), renamed("candidate"))
    baseline, candidate = (trial_of(MODEL, side) for side in sides)
    return Pair(baseline=baseline, candidate=candidate)


if __name__ == "__main__":
    raise SystemExit(main())
