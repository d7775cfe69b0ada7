"""Races a user's program, and measures the time to the first latency and the orchestration.

`docs/examples/export_my_net.py` exports a network that takes microseconds. `cbs run my_net.onnx`
races it on three runtimes with a fresh root directory. By the race's time line, work is the time in
which at least one worker starts, imports, loads, compiles, executes or fetches outputs. All other
time of the command is orchestration, including its start, preparation and table.

    python benchmarks/own_program.py [--quick]
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _timing import print_goal

GOAL = 0.10
FIRST_GOAL_S = 15.0
_LATENCY = re.compile(r"\d ms\b")
_EXPORTER = Path(__file__).parents[1] / "docs" / "examples" / "export_my_net.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="try the script with one runtime")
    options = parser.parse_args()
    backends = "onnxruntime" if options.quick else "onnxruntime,openvino,iree:llvm-cpu"
    with tempfile.TemporaryDirectory(prefix="cbs-own-program-") as name:
        folder = Path(name)
        subprocess.run([sys.executable, str(_EXPORTER), name], check=True, capture_output=True)
        results = folder / "results.json"
        command = [sys.executable, "-m", "comparative_benchmark", "run", name + "/my_net.onnx"]
        command += ["--batch", "8", "--backend", backends, "-device", "host-cpu", "--profile"]
        command += ["-o", str(results), "--root-dir", name + "/root"]
        started, first_s = time.monotonic(), None
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for line in process.stderr or ():
            sys.stderr.write(line)
            if first_s is None and _LATENCY.search(line):
                first_s = time.monotonic() - started
        assert process.wait() == 0, "cbs run failed"
        wall_s = time.monotonic() - started
        [timeline] = {
            record["timeline"] for record in json.loads(results.read_text())["benchmarks"]
        }
        events = json.loads(Path(timeline).read_text())["traceEvents"]
    work_s = _covered(
        [
            (event["ts"], event["ts"] + event["dur"])
            for event in events
            if event["ph"] == "X" and (event["cat"] == "phase" or event["name"] == "start")
        ]
    )
    share = 1 - work_s / wall_s
    print(f"wall {wall_s:.1f} s, work {work_s:.1f} s")
    print_goal(f"orchestration of a race < {GOAL:.0%}", met=share < GOAL, found=f"{share:.1%}")
    assert first_s is not None, "no latency appeared before the table"
    print_goal(
        f"first latency of a user's program < {FIRST_GOAL_S:.0f} s after the command",
        met=first_s < FIRST_GOAL_S,
        found=f"{first_s:.1f} s",
    )


def _covered(intervals: list[tuple[float, float]]) -> float:
    """Returns the seconds that the intervals cover; the intervals are in microseconds."""
    covered = reached = 0.0
    for start, end in sorted(intervals):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return covered / 1e6


if __name__ == "__main__":
    main()
