"""What a profiled program spent its time in, in one form for all stacks: `operators.json`."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import attrs

from openxla.benchmark.files import write_atomically

# Beside the files of the stack's own profiler.
FILE = "operators.json"

Name = TypeVar("Name")
# A name, a row whose spans nest (a thread), start and end in microseconds.
Span = tuple[Name, Any, float, float]


class Cost(TypedDict, total=False):
    """Flops and bytes of an operator; empty where its shapes are not known."""

    flops: float
    bytes: float


@attrs.frozen(kw_only=True)
class Operator:
    """An operator or kernel of a program; times, calls and costs are of one iteration.

    Attributes:
      name: as the stack calls it.
      does: what it computes, where the name does not say: an operator's type, or the operations
        that were fused into it.
      us: its own time, without what it calls; None where the stack tells no times.
      flops, bytes: of a matrix product or convolution whose shapes are known.
      provider: what executed it, where the stack has several.
    """

    name: str
    does: str = ""
    calls: float = 1.0
    us: float | None = None
    flops: float | None = None
    bytes: float | None = None
    provider: str | None = None


@attrs.frozen(kw_only=True)
class OperatorProfile:
    """The operators of a program that was profiled, which is never a measurement of its latency.

    Attributes:
      stack: what has profiled, with its version.
      operators: the longest first.
      breaks: why a compiler could not take the model as one graph.
      fallbacks: what ran elsewhere than the user would think.
      fusions: what the compiler made one operator of, in a line each.
      remarks: what this profile cannot tell.
      repeats: operators of further profiles of the same program, taken one after the other.
      disturbed: what others did on the CPUs while profiles were taken; empty if nothing is known.
    """

    stack: str
    iterations: int
    operators: tuple[Operator, ...]
    breaks: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    fusions: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    repeats: tuple[tuple[Operator, ...], ...] = ()
    disturbed: str = ""

    @property
    def us(self) -> float | None:
        """Time of all operators of an iteration; None where the stack tells no times."""
        times = [operator.us for operator in self.operators if operator.us is not None]
        return sum(times) if times else None


def combined(profiles: Sequence[OperatorProfile], disturbed: str = "") -> OperatorProfile:
    """Returns the profile whose operators take the median time, with the others as its repeats."""
    ranked = sorted(profiles, key=lambda profile: profile.us or 0.0)
    middle = ranked.pop((len(ranked) - 1) // 2)
    repeats = tuple(profile.operators for profile in ranked)
    return attrs.evolve(middle, repeats=repeats, disturbed=disturbed)


def write(profile: OperatorProfile, directory: Path) -> Path:
    """Writes the profile into a directory; returns the file."""
    path = directory / FILE
    write_atomically(path, json.dumps(attrs.asdict(profile), allow_nan=False))
    return path


def own_times(spans: Iterable[Span[Name]]) -> dict[Name, float]:
    """Returns how long each name was at work, in microseconds, so that the sum is wall time.

    In each row only the innermost span is at work. Where rows are at work at the same time, each
    gets an equal part of it: what two threads do at once delays nobody twice.
    """
    events: list[tuple[float, int, int]] = []
    known = list(spans)
    for index, (_, _, start, end) in enumerate(known):
        if end > start:
            events += [(start, 1, index), (end, 0, index)]
    # At one point in time ends come first; of spans that start together the longer is outside.
    events.sort(key=lambda e: (e[0], e[1], -known[e[2]][3] if e[1] else -known[e[2]][2]))
    rows: defaultdict[Any, list[int]] = defaultdict(list)
    times: defaultdict[Name, float] = defaultdict(float)
    before = 0.0
    for now, is_start, index in events:
        working = [stack[-1] for stack in rows.values()]
        for busy in working:
            times[known[busy][0]] += (now - before) / len(working)
        before, row = now, known[index][1]
        if is_start:
            rows[row].append(index)
        else:
            rows[row].remove(index)
            if not rows[row]:
                del rows[row]
    return dict(times)


def operators_of(
    spans: Sequence[Span[Name]], iterations: int, told: Mapping[Name, Operator]
) -> tuple[Operator, ...]:
    """Returns the operators of some spans, with times and calls of an iteration.

    Args:
      spans: of all iterations.
      iterations: how many there were.
      told: what is known of each name, costs of one call; of others the name is all that is.
    """
    times, counts = own_times(spans), Counter(name for name, *_ in spans)
    found = []
    for name, count in counts.items():
        known, calls = told.get(name) or Operator(name=str(name)), count / max(iterations, 1)
        found.append(
            attrs.evolve(
                known,
                us=times.get(name, 0.0) / max(iterations, 1),
                calls=calls,
                flops=known.flops and known.flops * calls,
                bytes=known.bytes and known.bytes * calls,
            )
        )
    return longest_first(found)


def longest_first(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Returns operators sorted by time."""
    return tuple(sorted(operators, key=lambda operator: -(operator.us or 0.0)))


def product(m: int, n: int, k: int, *, batch: int = 1, item_bytes: int = 4) -> Cost:
    """Returns the cost of so many products [m, k] x [k, n]."""
    moved = m * k + k * n + m * n
    return Cost(flops=2.0 * batch * m * n * k, bytes=float(batch * moved * item_bytes))
