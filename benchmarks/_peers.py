"""Compares our figures with those that other tools print, on one CPU.

Our processes and the tool's alternate in shuffled order.
"""

import json
import math
import os
import random
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scipy import stats

# If the interval of ours / the peer's does not contain 1, it may still lie this close to 1.
GOAL = 0.02
LEVEL = 0.95


def use_one_cpu() -> None:
    """Pins this process and its children to one CPU."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def interleaved(
    ours: Callable[[], float], peer: Callable[[], float], rounds: int
) -> list[tuple[float, float]]:
    """Returns our figure and the peer's for each round, in milliseconds."""
    shuffle = random.Random(0).shuffle
    found = []
    for _ in range(rounds):
        order = [("ours", ours), ("peer", peer)]
        shuffle(order)
        times = {name: call() for name, call in order}
        found.append((times["ours"], times["peer"]))
    return found


def compared(pairs: Sequence[tuple[float, float]]) -> tuple[list[str], bool]:
    """Returns cells of a row: our time, the ratio and its interval; and whether the goal is met.

    The ratio is the geometric mean of ours over the peer's. Its interval is Student's, for the
    logarithms. The goal is met if the interval contains 1 or lies within `GOAL` of it.
    """
    logs = [math.log(ours / peer) for ours, peer in pairs]
    centre = statistics.fmean(logs)
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    width = error * float(stats.t.ppf((1 + LEVEL) / 2, len(logs) - 1))
    low, high = math.exp(centre - width), math.exp(centre + width)
    met = low <= 1 <= high or (low > 1 - GOAL and high < 1 + GOAL)
    time_ms = statistics.median(ours for ours, _ in pairs)
    return [f"{time_ms:.4g}", f"{math.exp(centre):.3f}", f"{low:.3f}-{high:.3f}"], met


def results_of(output: Path, *command: str) -> list[Any]:
    """Returns the results of a `cbs` command that writes them to `output`."""
    output.unlink(missing_ok=True)
    cbs(*command, "-o", str(output))
    found: list[Any] = json.loads(output.read_text())["benchmarks"]
    return found


def metrics_of(result: Any) -> Any:
    """Returns the metrics of a result, which must be ok."""
    assert result["status"] == "ok", result["reason"]
    (metrics,) = result["metrics"].values()
    return metrics


def iree_tool(results: Path, case: str, where: Path) -> tuple[list[str], Path]:
    """Writes and compiles the reproducer of a result; returns its timing command and folder."""
    cbs("repro", str(results), case, "-o", str(where))
    lines = [
        shlex.split(line)
        for line in (where / "README.md").read_text().replace("\\\n", " ").splitlines()
        if line.lstrip().startswith(("iree-compile", "iree-benchmark-module"))
    ]
    compiling, timing = lines[0], lines[-1]
    run(compiling, where)
    return [*timing, "--benchmark_format=json", "--benchmark_min_time=0.3s"], where


def iree_time(tool: tuple[list[str], Path]) -> float:
    """Returns the median of `iree-benchmark-module`'s figures, in milliseconds."""
    document = json.loads(run(*tool))
    times: list[float] = [
        entry["real_time"]
        for entry in document["benchmarks"]
        if entry.get("run_type") == "iteration"
    ]
    assert document["benchmarks"][0]["time_unit"] == "ms"
    return statistics.median(times)


def run(command: Sequence[str], where: Path) -> str:
    """Runs a tool of this environment and returns its output."""
    tools = Path(sys.executable).parent
    done = subprocess.run(
        [str(tools / command[0]), *command[1:]],
        cwd=where,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def cbs(*arguments: str) -> None:
    """Runs `cbs` and raises if it does not succeed."""
    command = [sys.executable, "-m", "comparative_benchmark", *arguments]
    subprocess.run(command, capture_output=True, check=True)
