"""Campaigns: alternate between several kinds of pairs, save each pair, stop at a time limit.

Kinds are called sections. A campaign measures one pair of each section at a time, so a slow machine
measures fewer pairs of every section, but no section is empty.
"""

import contextlib
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from _journal import Journal
from _pairs import machine

from comparative_benchmark.analysis.machine.host import git_revision
from comparative_benchmark.analysis.stats.planning import FixedCounts

# Section and number of a pair -> its seed, and the result of each method.
Measure = Callable[[str, int], tuple[int, Mapping[str, Any]]]


class Budget:
    """Time limit of a run: work that would probably exceed it is not started.

    Attributes:
      total_s: seconds; None for no limit.
    """

    def __init__(
        self, total_s: float | None, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.total_s = total_s
        self._clock_s = clock_s
        self._started = clock_s()
        self._longest_s = 0.0

    def allows_another(self) -> bool:
        """Returns whether the remaining time is enough for the longest pair so far."""
        spent_s = self._clock_s() - self._started
        return self.total_s is None or spent_s + self._longest_s <= self.total_s

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Records the time of one pair."""
        started = self._clock_s()
        yield
        self._longest_s = max(self._longest_s, self._clock_s() - started)


def options(description: str, *, name: str, pairs: int) -> ArgumentParser:
    """Returns a parser with the options of all campaigns."""
    parser = ArgumentParser(description=description)
    add = parser.add_argument
    add(
        "--pairs",
        type=int,
        default=pairs,
        help=f"number of pairs per section to measure (default: {pairs})",
    )
    add("--minutes", type=float, help="time limit in minutes, checked before each pair")
    add("--warmup", type=int, default=5, help="usual methods: warm-up iterations (default: 5)")
    add("--iterations", type=int, default=100, help="usual methods: iterations (default: 100)")
    add("--seed", type=int, default=1)
    add(
        "--output",
        type=Path,
        default=Path(f"results/{name}.jsonl"),
        help="file to write, or to continue",
    )
    add("--report-only", action="store_true", help="only print the tables for existing pairs")
    return parser


def fixed_counts(chosen: Namespace) -> FixedCounts:
    """Returns the sampling of the usual methods."""
    return FixedCounts(warmup_iterations=chosen.warmup, iterations=chosen.iterations)


def configuration(script: str, chosen: Namespace) -> dict[str, Any]:
    """Returns the configuration that all entries of a file share."""
    counts = {"warmup": chosen.warmup, "iterations": chosen.iterations}
    return {"script": script, **counts, **machine()}


def measure_in_turns(
    journal: Journal,
    measure: Measure,
    *,
    sections: Sequence[str],
    pairs: int,
    configuration: Mapping[str, Any],
    budget: Budget,
) -> None:
    """Measures the pairs that the journal lacks and appends them, until the time is over.

    Raises:
      JournalError: the entries of the journal have another configuration.
    """
    journal.check(configuration)
    revision = git_revision()
    for number in range(pairs):
        for section in sections:
            if journal.has(section, number):
                continue
            if not budget.allows_another():
                print("time limit reached")
                return
            with budget.timed():
                seed, methods = measure(section, number)
            found = ", ".join(f"{name} {_brief(value)}" for name, value in methods.items())
            print(f"{section}, pair {number + 1}: {found}", flush=True)
            journal.append(
                {
                    "section": section,
                    "number": number,
                    "seed": seed,
                    "revision": revision,
                    "configuration": dict(configuration),
                    "methods": dict(methods),
                }
            )


def _brief(found: Mapping[str, Any]) -> str:
    ratio = f" {found['ratio']:.3f}" if found["ratio"] is not None else f" ({found['reason']})"
    return f"{found['verdict']}{ratio}"
