"""Measures how much faster `cbs parity` is with parallel cells, and compares the statuses.

Alternates between runs of the same matrix with `--jobs 1` and with the default number of parallel
cells. All use the artifacts of an unmeasured run. The errors may differ in their last digits, since
each of the parallel cells has fewer threads.

    python benchmarks/parity_jobs.py [--name REGEX] [--rounds N] [--quick]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _timing import print_goal, print_table

from comparative_benchmark.studies.parity.runner import default_jobs

# Share of the ideal speed-up.
GOAL_SHARE = 0.75
_NAME = "models/(BERT|RESNET|VIT|GPT2LMHEAD)_TINY_FP32_.+_BATCH1/.+"
_QUICK = "models/RESNET_TINY_FP32_.+_BATCH1/.+"


def main() -> None:
    """Prints seconds and their ratio; exits with 1 if the goal is missed or statuses differ."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--name", help=f"regular expression for case names (default: {_NAME})")
    add("--backend", help="backends, as in `cbs parity` (default: all installed)")
    add("--rounds", type=int, default=3, help="number of runs of each kind (default: 3)")
    add("--quick", action="store_true", help="measure one model in one round")
    options = parser.parse_args()
    jobs = default_jobs("cpu", None)
    if jobs == 1:
        sys.exit("cells cannot run side by side here: needs two CPUs and 8 GiB of memory")
    arguments = ["-name", options.name or (_QUICK if options.quick else _NAME)]
    if options.backend:
        arguments += ["--backend", options.backend]
    seconds: dict[int, list[float]] = {1: [], jobs: []}
    endings: list[dict[str, str]] = []
    with tempfile.TemporaryDirectory(prefix="cbs-parity-jobs-") as folder:
        _run(Path(folder), 1, [*arguments, "--backend", "pt_inductor:eager"])
        for number in range(1 if options.quick else options.rounds):
            for count in (1, jobs) if number % 2 == 0 else (jobs, 1):
                started = time.perf_counter()
                endings.append(_run(Path(folder), count, arguments))
                seconds[count].append(time.perf_counter() - started)
    ratio = statistics.median(seconds[1]) / statistics.median(seconds[jobs])
    rows = [
        [str(count), f"{statistics.median(times):.1f}", " ".join(f"{t:.1f}" for t in times)]
        for count, times in seconds.items()
    ]
    print_table(["cells at a time", "median, s", "all, s"], rows)
    same = all(ending == endings[0] for ending in endings)
    statuses = "same statuses in all runs" if same else "DIFFERENT statuses between runs"
    print(f"{len(endings[0])} cells, {statuses}")
    print(f"side by side: {ratio:.2f} x as fast")
    met = same and ratio >= GOAL_SHARE * jobs
    print_goal(
        f"{GOAL_SHARE * jobs:.2f} x with {jobs} at a time, the same statuses",
        met=met,
        found=f"{ratio:.2f} x",
    )
    sys.exit(0 if met else 1)


def _run(folder: Path, jobs: int, arguments: list[str]) -> dict[str, str]:
    """Returns the status of each cell, by workload, framework and competitor."""
    output = folder / "matrix.json"
    command = [sys.executable, "-m", "comparative_benchmark", "parity", "--jobs", str(jobs)]
    done = subprocess.run(
        [*command, "-o", str(output), "--root-dir", str(folder / "root"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    cells = json.loads(output.read_text(encoding="utf-8"))["cells"]
    return {
        " ".join((cell["label"], cell["framework"], cell["competitor"])): cell["status"]
        for cell in cells
    }


if __name__ == "__main__":
    main()
