"""Compares `cbs micro run` with `torch.utils.benchmark` and `iree-benchmark-module`.

Our engine and `torch.utils.benchmark.Timer.blocked_autorange` time PyTorch's matrix product. Our
engine and `iree-benchmark-module` time IREE's, on the program that `cbs repro` writes. Fresh
processes alternate in shuffled order, on one CPU with one thread. Each process gives a median. The
ratio is the geometric mean of ours over the peer's, with its 95 % interval over rounds. The goal is
met if that interval contains 1 or lies within 2 % of it.

    python benchmarks/micro_against_peers.py [--rounds 8] [--quick]
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from _peers import (
    GOAL,
    cbs,
    compared,
    interleaved,
    iree_time,
    iree_tool,
    metrics_of,
    results_of,
    use_one_cpu,
)
from _timing import print_goal, print_table

SHAPES = ("64x64x64", "256x256x256", "512x512x512")
QUICK = SHAPES[1:2]
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
    parser.add_argument("--quick", action="store_true", help="measure one shape in three rounds")
    options = parser.parse_args()
    rounds, shapes = (3, QUICK) if options.quick else (options.rounds, SHAPES)
    rows, all_met = [], True
    use_one_cpu()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for shape in shapes:
            tool = _iree_tool(shape, folder)
            peers: dict[str, tuple[str, Callable[[], float]]] = {
                "torch.utils.benchmark": ("pt_inductor:eager", partial(_torch, shape)),
                "iree-benchmark-module": ("iree:llvm-cpu", partial(iree_time, tool)),
            }
            for peer, (competitor, measured) in peers.items():
                ours = partial(_ours, shape, competitor, folder)
                pairs = interleaved(ours, measured, rounds)
                row, met = compared(pairs)
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


def _ours(shape: str, competitor: str, folder: Path) -> float:
    framework = "jax" if competitor.startswith("iree") else "pytorch"
    (result,) = [
        result
        for result in results_of(folder / "ours.json", "micro", "run", *_what(shape, competitor))
        if result["definition"]["framework"].lower().endswith(framework)
    ]
    return float(metrics_of(result)["median_latency_ms"])


def _what(shape: str, competitor: str) -> list[str]:
    counts = ["-w", "50", "-iter", str(_ITERATIONS), "--threads", "1"]
    return ["--op", "matmul", "--shapes", shape, "--backend", competitor, *counts]


def _torch(shape: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _TORCH, shape], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def _iree_tool(shape: str, folder: Path) -> tuple[list[str], Path]:
    results = folder / f"{shape}.json"
    cbs("micro", "run", *_what(shape, "iree:llvm-cpu"), "-o", str(results))
    return iree_tool(results, "models/MATMUL_FP32_JAX_.+", folder / shape)


if __name__ == "__main__":
    main()
