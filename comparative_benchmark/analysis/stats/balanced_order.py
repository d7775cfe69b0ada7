"""Orders in which every competitor is equally often in every position.

A competitor that often starts second, or is often measured after the same rival, has an advantage
or a disadvantage that more processes do not remove. So orders are the rows of a Williams design
(Williams 1949, "Experimental designs balanced for the estimation of residual effects of
treatments"): each competitor is equally often in each position, and equally often directly after
each other competitor. Everything else is random: the assignment of competitors to the design, and
the order of its rows.
"""

import random
from collections.abc import Iterator
from typing import Self

import attrs


@attrs.define
class BalancedOrder:
    """Yields orders of competitors without end; after each whole design they are balanced.

    A design has as many orders as competitors, or twice as many if their number is odd.

    Attributes:
      count: number of competitors.
      random: decides everything that is not balanced.
    """

    count: int
    random: random.Random
    _rows: list[list[int]] = attrs.field(factory=list, init=False)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[int]:
        if not self._rows:
            names = self.random.sample(range(self.count), self.count)
            self._rows = [[names[place] for place in row] for row in williams_design(self.count)]
            self.random.shuffle(self._rows)
        return self._rows.pop()


def williams_design(count: int) -> list[list[int]]:
    """Returns the orders of a Williams design for treatments 0 to `count` - 1."""
    if count < 2:
        return [list(range(count))]
    first = list(_zigzag(count))
    rows = [[(place + shift) % count for place in first] for shift in range(count)]
    # With an odd number, only the design and its mirror image together balance who follows whom.
    return rows if count % 2 == 0 else rows + [row[::-1] for row in rows]


def _zigzag(count: int) -> Iterator[int]:
    """Yields 0, 1, n - 1, 2, n - 2, ...: neighbours differ by each number once if n is even."""
    for index in range(count):
        yield (index + 1) // 2 if index % 2 else (count - index // 2) % count
