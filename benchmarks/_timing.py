"""Common functions of these scripts: interleaved blocks, ratios with a spread, a small table.

Absolute times on a shared machine are not reliable. If two programs alternate in shuffled order,
they run under the same conditions, and their ratio in each round is more reliable.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import attrs

Contestants = Mapping[str, Callable[[], object]]


@attrs.frozen
class Ratio:
    """Median over rounds of a / b, with its quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def interleave(
    contestants: Contestants, *, rounds: int, iterations: int, seed: int = 0
) -> dict[str, list[float]]:
    """Returns the median time of each contestant's calls in each round, in seconds.

    In every round, each contestant runs one block of consecutive calls. Each round shuffles the
    order of the blocks.
    """
    order = list(contestants)
    shuffle = random.Random(seed).shuffle
    blocks: dict[str, list[float]] = {name: [] for name in order}
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            blocks[name].append(statistics.median(_block(contestants[name], iterations)))
    return blocks


def ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """Returns the ratio a / b of the times of two contestants, paired by round."""
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    if len(ratios) < 2:
        return Ratio(ratios[0], ratios[0], ratios[0])
    low, median, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(median, low, high)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table: the first column is aligned left, the others right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    for row in [header, *rows]:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]
        print("  ".join(cells).rstrip())


def print_goal(goal: str, *, met: bool, found: str) -> None:
    """Prints a goal and its result at the end of a script; `measure_all.py` reads this line."""
    print(f"goal: {goal}: {'met' if met else 'missed'} ({found})")


def _block(call: Callable[[], object], iterations: int) -> list[float]:
    times = []
    for _ in range(iterations):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times
