"""Compares our models with public implementations: first their outputs, then their times."""

import datetime
import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from _timing import Ratio, interleave, print_table, ratio

from comparative_benchmark.analysis.machine.host import describe, git_revision, usable_cpus

GOAL = 1.05
OURS = "ours"
# Share of the largest output: far above the effect of the order of sums or of GELU by tanh, far
# below the error of a wrong network.
_SAME = 1e-3
_BLOCK_S = 0.25
_FEWEST, _MOST = 2, 50

# Runs a program to its end and returns its output.
Call = Callable[[], Any]


@attrs.frozen(kw_only=True)
class Raced:
    """Results of one table.

    Attributes:
      differences: largest absolute difference of each program's output from ours.
      largest: largest absolute value of our output.
      blocks_ms: median of each block of each program.
      ratios: our time divided by the time of each other program.
      different: programs whose output differs from ours; they were not timed.
    """

    differences: Mapping[str, float]
    largest: float
    iterations: int
    blocks_ms: Mapping[str, Sequence[float]]
    ratios: Mapping[str, Ratio]
    different: Sequence[str]

    @property
    def slowdown(self) -> Ratio | None:
        """Our time divided by the time of the fastest other program; None without others."""
        return max(self.ratios.values(), key=lambda found: found.median, default=None)

    @property
    def met(self) -> bool:
        """Returns whether our time meets the goal and all outputs agree."""
        return not self.different and (self.slowdown is None or self.slowdown.median <= GOAL)


def race(
    calls: Mapping[str, Call], to_numpy: Callable[[Any], npt.NDArray[Any]], rounds: int
) -> Raced:
    """Compares the outputs of programs with our output, then times blocks in shuffled order.

    Each program is called twice before that, since a first call may compile or allocate.
    """
    outputs = {name: to_numpy(call()) for name, call in calls.items()}
    ours = outputs[OURS]
    largest = float(np.abs(ours).max())
    differences = {name: _difference(ours, found) for name, found in outputs.items()}
    different = [name for name, value in differences.items() if not value <= _SAME * largest]
    timed = {name: call for name, call in calls.items() if name not in different}
    slowest_s = max(min(row) for row in interleave(timed, rounds=1, iterations=2).values())
    iterations = min(max(round(_BLOCK_S / slowest_s), _FEWEST), _MOST)
    times = interleave(timed, rounds=rounds, iterations=iterations)
    return Raced(
        differences=differences,
        largest=largest,
        iterations=iterations,
        blocks_ms={name: [1e3 * value for value in row] for name, row in times.items()},
        ratios={name: ratio(times[OURS], row) for name, row in times.items() if name != OURS},
        different=different,
    )


def print_raced(title: str, raced: Raced, remarks: Mapping[str, str]) -> None:
    """Prints the table of a race."""
    print(f"\n{title}; outputs up to {raced.largest:.1f}, blocks of {raced.iterations}")
    rows = []
    for name, difference in raced.differences.items():
        row = [name, f"{difference:.1e}"]
        if name in raced.different:
            rows.append([*row, "another output", "", ""])
            continue
        blocks = raced.blocks_ms[name]
        against = "" if name == OURS else str(raced.ratios[name])
        rows.append([*row, f"{statistics.median(blocks):.2f}", f"{min(blocks):.2f}", against])
    print_table(["program", "max abs diff", "median ms", "best ms", "ours / this"], rows)
    for name, remark in remarks.items():
        print(f"  {name}: {remark}")


def entry(
    model: str, parameters: Mapping[str, Any], compiler: str, raced: Raced, packages: Sequence[str]
) -> dict[str, Any]:
    """Returns a race and its conditions as a JSON value."""
    slowdown = raced.slowdown
    return {
        "model": model,
        "parameters": dict(parameters),
        "compiler": compiler,
        "ours_by_fastest": None if slowdown is None else [*attrs.astuple(slowdown)],
        "met": raced.met,
        "ratios": {name: [*attrs.astuple(found)] for name, found in raced.ratios.items()},
        "median_ms": {name: statistics.median(row) for name, row in raced.blocks_ms.items()},
        "differences": dict(raced.differences),
        "largest_output": raced.largest,
        "different": list(raced.different),
        "iterations": raced.iterations,
        "blocks_ms": {name: list(row) for name, row in raced.blocks_ms.items()},
        "conditions": conditions(packages),
    }


def conditions(packages: Sequence[str]) -> dict[str, Any]:
    """Returns date, machine, load and versions, as a JSON value."""
    host = describe(threads=usable_cpus())
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "revision": git_revision(),
        **{key: host[key] for key in ("cpu_model", "usable_cpus", "load_average", "python")},
        "versions": {package: version(package) for package in packages},
    }


def keep(path: Path, found: Mapping[str, Any], keys: Sequence[str]) -> None:
    """Writes a line to a file and removes an older line with the same values of `keys`."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    kept = [line for line in lines if not _agrees(json.loads(line), found, keys)]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text("".join(f"{line}\n" for line in (*kept, json.dumps(found))), encoding="utf-8")
    part.replace(path)


def _agrees(one: Mapping[str, Any], other: Mapping[str, Any], keys: Sequence[str]) -> bool:
    return all(one.get(key) == other.get(key) for key in keys)


def _difference(ours: npt.NDArray[Any], found: npt.NDArray[Any]) -> float:
    if ours.shape != found.shape:
        return float("inf")
    return float(np.abs(found - ours).max())
