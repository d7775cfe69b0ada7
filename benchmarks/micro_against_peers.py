"""`cbs micro run` against `torch.utils.benchmark` and `iree-benchmark-module` on the same products.

Fresh processes in turn, in shuffled order: PyTorch's product of matrices by our engine and by
`torch.utils.benchmark.Timer.blocked_autorange`, and IREE's by our engine and by
`iree-benchmark-module` on the program that `cbs repro` writes. All on one CPU, with one thread.
Each process gives a median; what is compared is the mean of their logarithms, ours over the peer's,
with its 95 % interval over rounds. The goal is met where that interval holds 1, or lies within 2 %.

    python benchmarks/micro_against_peers.py [--rounds 8] [--quick]
"""

import argparse
import json
import math
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from _timing import print_goal, print_table
from scipy import stats

SHAPES = ("64x64x64", "256x256x256", "512x512x512")
QUICK = SHAPES[1:2]
GOAL = 0.02
LEVEL = 0.95
_ITERATIONS = 200
_TORCH = """
import sys, torch
from torch.utils.benchmark import Timer
m, k, n = map(int, sys.argv[1].split("x"))
a, b = torch.randn(m, k), torch.randn(k, n)
with torch.no_grad():
    timer = Timer("torch.mm(a, b)", globals={"torch": torch, "a": a, "b": b}, num_threads=1)
    timer.timeit(100)
    print(timer.blocked_autorange(min_run_time=1.0).median * 1e3)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="one shape, three rounds")
    options = parser.parse_args()
    rounds, shapes = (3, QUICK) if options.quick else (options.rounds, SHAPES)
    rows, all_met = [], True
    # One CPU for this process and all that it starts.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for shape in shapes:
            tool = _iree_tool(shape, folder)
            peers: dict[str, tuple[str, Callable[[], float]]] = {
                "torch.utils.benchmark": ("pt_inductor:eager", lambda shape=shape: _torch(shape)),
                "iree-benchmark-module": ("iree:llvm-cpu", lambda tool=tool: _iree(tool)),
            }
            for peer, (competitor, measured) in peers.items():
                pairs = _interleaved(
                    lambda shape=shape, who=competitor: _ours(shape, who, folder), measured, rounds
                )
                row, met = _compared(pairs)
                rows.append([f"{shape} {competitor} / {peer}", *row, "met" if met else "missed"])
                print(*rows[-1], flush=True)
                all_met &= met
    print_table(["ours over the peer's", "ms", "ratio", "95 % interval", f"within {GOAL}"], rows)
    missed = sum(row[-1] == "missed" for row in rows)
    print_goal(
        "cbs micro run agrees with each stack's own timer (interval holds 1 or is within 2 %)",
        met=all_met,
        found=f"{len(rows) - missed} of {len(rows)}",
    )


def _interleaved(
    ours: Callable[[], float], peer: Callable[[], float], rounds: int
) -> list[tuple[float, float]]:
    shuffle = random.Random(0).shuffle
    found = []
    for _ in range(rounds):
        order = [("ours", ours), ("peer", peer)]
        shuffle(order)
        times = {name: call() for name, call in order}
        found.append((times["ours"], times["peer"]))
    return found


def _compared(pairs: Sequence[tuple[float, float]]) -> tuple[list[str], bool]:
    """Returns cells of a row: our time, the ratio and its interval; and whether the goal is met."""
    logs = [math.log(ours / peer) for ours, peer in pairs]
    centre = statistics.fmean(logs)
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    width = error * float(stats.t.ppf((1 + LEVEL) / 2, len(logs) - 1))
    low, high = math.exp(centre - width), math.exp(centre + width)
    met = low <= 1 <= high or (low > 1 - GOAL and high < 1 + GOAL)
    time_ms = statistics.median(ours for ours, _ in pairs)
    return [f"{time_ms:.4g}", f"{math.exp(centre):.3f}", f"{low:.3f}-{high:.3f}"], met


def _ours(shape: str, competitor: str, folder: Path) -> float:
    output = folder / "ours.json"
    output.unlink(missing_ok=True)
    _cbs("micro", "run", *_what(shape, competitor), "-o", str(output))
    framework = "jax" if competitor.startswith("iree") else "pytorch"
    (result,) = [
        result
        for result in json.loads(output.read_text())["benchmarks"]
        if result["definition"]["framework"].lower().endswith(framework)
    ]
    assert result["status"] == "ok", result["reason"]
    (metrics,) = result["metrics"].values()
    return float(metrics["median_latency_ms"])


def _what(shape: str, competitor: str) -> list[str]:
    counts = ["-w", "50", "-iter", str(_ITERATIONS), "--threads", "1"]
    return ["--op", "matmul", "--shapes", shape, "--backend", competitor, *counts]


def _torch(shape: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _TORCH, shape], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def _iree_tool(shape: str, folder: Path) -> tuple[list[str], Path]:
    """Has the reproducer of a result written and compiled; returns what times it, and where."""
    results, where = folder / f"{shape}.json", folder / shape
    _cbs("micro", "run", *_what(shape, "iree:llvm-cpu"), "-o", str(results))
    _cbs("repro", str(results), "models/MATMUL_FP32_JAX_.+", "-o", str(where))
    lines = [
        shlex.split(line)
        for line in (where / "README.md").read_text().replace("\\\n", " ").splitlines()
        if line.lstrip().startswith(("iree-compile", "iree-benchmark-module"))
    ]
    compiling, timing = lines[0], lines[-1]
    _run(compiling, where)
    return [*timing, "--benchmark_format=json", "--benchmark_min_time=0.3s"], where


def _iree(tool: tuple[list[str], Path]) -> float:
    document = json.loads(_run(*tool))
    times = [
        entry["real_time"]
        for entry in document["benchmarks"]
        if entry.get("run_type") == "iteration"
    ]
    assert document["benchmarks"][0]["time_unit"] == "ms"
    return statistics.median(times)


def _run(command: Sequence[str], where: Path) -> str:
    tools = Path(sys.executable).parent
    done = subprocess.run(
        [str(tools / command[0]), *command[1:]],
        cwd=where,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def _cbs(*arguments: str) -> None:
    command = [sys.executable, "-m", "comparative_benchmark", *arguments]
    subprocess.run(command, capture_output=True, check=True)


if __name__ == "__main__":
    main()
