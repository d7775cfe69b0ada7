"""Measures the share of time that a small `cbs run` spends outside the stacks, and on what.

Runs the tiny BERT and ResNet in three backends with a fresh root directory. The script starts a
second process of itself, which wraps a dozen functions of the harness in timers and calls the
command. Phases that workers report are work (import, load, h2d, trace, lower, compile, first_run,
execute, d2h; preprocess and reference in the workers that prepare). All other time is
orchestration.

`own_program.py` measures the same for a race, whose workers load side by side.

    python benchmarks/orchestration.py [--quick]
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _spans import Spans
from _timing import print_goal, print_table

GOAL = 0.10
_MODELS = {False: "(BERT|RESNET)_TINY_FP32_.+_BATCH1", True: "BERT_TINY_FP32_JAX_.+_BATCH1"}
_BACKENDS = {False: "jax_xla,pt_inductor,iree", True: "jax_xla"}


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] == "--wrapped":
        return _wrapped(Path(sys.argv[2]), sys.argv[3:])
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="try the script with one trial")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cbs-orchestration-") as directory:
        command = [
            *("run", "--backend", _BACKENDS[options.quick]),
            *("-name", f"models/{_MODELS[options.quick]}/.+", "-device", "host-cpu"),
            *("-o", f"{directory}/results.json", "--root-dir", f"{directory}/root"),
            *("-w", "5", "-iter", "100"),
        ]
        spans = Path(directory) / "spans.json"
        started = time.time()
        done = subprocess.run(
            [sys.executable, __file__, "--wrapped", str(spans), *command],
            check=False,
            stdout=subprocess.DEVNULL,
        )
        wall = time.time() - started
        assert done.returncode == 0, f"cbs run failed with exit code {done.returncode}"
        found = json.loads(spans.read_text(encoding="utf-8"))
    rows: dict[str, float] = found["orchestration"]
    rows["start of the command"] = found["began"] - started
    rows["its imports"] = found["imports"]
    rows["exit of the command"] = started + wall - found["ended"]
    work = sum(found["work"].values())
    rows["everything else"] = wall - work - sum(rows.values())
    _print(wall, found["work"], rows, found["counts"])
    share = 1 - work / wall
    print(f"wall {wall:.1f} s, work {work:.1f} s, orchestration {wall - work:.1f} s ({share:.1%})")
    print_goal(f"orchestration < {GOAL:.0%}", met=share < GOAL, found=f"{share:.1%}")
    return 0


def _print(
    wall: float, work: dict[str, float], rows: dict[str, float], counts: dict[str, int]
) -> None:
    for title, part in (("work, by phase", work), ("orchestration", rows)):
        ordered = sorted(part.items(), key=lambda item: -item[1])
        print_table(
            [title, "times", "s", "of wall"],
            [
                [name, str(counts.get(name, "")), f"{seconds:.2f}", f"{seconds / wall:.1%}"]
                for name, seconds in ordered
                if seconds >= 0.005
            ],
        )
        print()


def _wrapped(output: Path, arguments: list[str]) -> int:
    """Runs the command with timers and writes their figures."""
    began = time.time()
    from comparative_benchmark.cli import command as cli

    importlib.import_module("comparative_benchmark.engine.runner")  # the command imports it late

    spans = Spans()
    imports = time.time() - began
    spans.install()
    code = cli.main(arguments)
    facts = {
        "began": began,
        "imports": imports,
        "ended": time.time(),
        "orchestration": spans.orchestration,
        "work": spans.work,
        "counts": spans.counts,
    }
    output.write_text(json.dumps(facts), encoding="utf-8")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
