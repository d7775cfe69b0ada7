"""Measures the peak host memory of BERT-large (float32, 384 tokens, batch 1) with each backend.

Runs the cases of all frameworks with `cbs run`, in a fresh worker each, and reads the peak of
resident memory (`VmHWM` of the worker) from the results. This figure excludes compilers that a
worker starts. So the script also watches the whole tree of processes, including preparation. All
figures are compared with the size of the weights.

    python benchmarks/bert_large_memory.py [--root-dir DIR] [--backend jax_xla,pt_inductor,iree]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _timing import print_goal, print_table

from comparative_benchmark.analysis.machine import other_processes
from openxla.benchmark.installation import ROOT_DIR_VARIABLE
from openxla.benchmark.models import checkpoints
from openxla.benchmark.models.architectures import bert

GOAL_BYTES = 24 * 2**30
_CASES = {False: "BERT_LARGE_FP32_(JAX|PT)_384XI32_BATCH1", True: "BERT_TINY_FP32_.+_BATCH1"}
_MODEL = {False: "bert-large-uncased", True: "bert-tiny"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--backend", default="jax_xla,pt_inductor,iree", help="backends, as in `cbs run`"
    )
    parser.add_argument(
        "--root-dir", type=Path, help="directory for checkpoints and artifacts, as in `cbs run`"
    )
    parser.add_argument("--quick", action="store_true", help="try the script with BERT-tiny")
    options = parser.parse_args()
    if options.root_dir:
        os.environ[ROOT_DIR_VARIABLE] = str(options.root_dir.absolute())

    records, tree = _run(options.backend, _CASES[options.quick])
    checkpoint = checkpoints.seeded(bert.ARCHITECTURE, _MODEL[options.quick])
    weights = (checkpoint / checkpoints.WEIGHTS_FILE).stat().st_size
    rows = []
    for record in records:
        peak = _metrics(record)["host_memory_peak_mb"] * 1e6
        definition = record["definition"]
        name = f"{definition['backend']}:{definition['compiler']} on {definition['framework']}"
        rows.append([name, record["status"], f"{peak / 2**30:.2f}", f"{peak / weights:.2f}"])
    print(f"weights: {weights / 2**30:.2f} GiB")
    rows.append(["all processes together", "", f"{tree / 2**30:.2f}", f"{tree / weights:.2f}"])
    print_table(["backend", "status", "peak, GiB", "peak / weights"], rows)
    for record in records:
        if record["status"] != "ok":
            print(f"{record['definition']['backend']}: {record['phase']}: {record['reason']}")
    met = (
        tree < GOAL_BYTES
        and bool(records)
        and all(
            record["status"] == "ok" and _metrics(record)["host_memory_peak_mb"] * 1e6 < GOAL_BYTES
            for record in records
        )
    )
    print_goal(
        f"all ok, each below {GOAL_BYTES / 2**30:.0f} GiB", met=met, found=f"{tree / 2**30:.1f} GiB"
    )


def _run(backends: str, models: str) -> tuple[list[dict[str, Any]], int]:
    """Runs `cbs run`; returns its records and the peak of all its processes together, in bytes."""
    with tempfile.TemporaryDirectory(prefix="cbs-memory-") as directory:
        output = Path(directory) / "results.json"
        command = [
            *(str(Path(sys.executable).with_name("cbs")), "run", "--backend", backends),
            *("-name", f"models/{models}/.+", "-device", "host-cpu"),
            *("-w", "1", "-iter", "3", "-o", str(output), "--generate-artifacts"),
        ]
        peak = 0
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None:
                # An upper bound: pages that processes share are counted for each of them.
                peak = max(peak, other_processes.resident_bytes(process.pid))
                time.sleep(0.1)
        assert output.exists(), "cbs run did not write any results"
        records: list[dict[str, Any]] = json.loads(output.read_text(encoding="utf-8"))["benchmarks"]
    return records, peak


def _metrics(record: dict[str, Any]) -> dict[str, Any]:
    (metrics,) = record["metrics"].values()
    found: dict[str, Any] = metrics
    return found


if __name__ == "__main__":
    main()
