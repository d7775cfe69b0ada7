"""Measures how long a `cbs list` process takes, compared with a bare `python -c pass`.

The processes alternate in shuffled order, and the script prints the medians. One more process lists
the cases and then checks that `sys.modules` contains no framework modules.

    python benchmarks/cli_startup.py [--runs 20] [--quick]
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from _timing import interleave, print_goal, print_table, ratio

GOAL = 12
IMPORT_GOAL_S = 0.2
FRAMEWORKS = ("torch", "transformers", "jax", "jaxlib", "flax", "tensorflow", "keras", "iree")

_LOOK = """
import contextlib, io, json, sys
from comparative_benchmark.cli.command import main
with contextlib.redirect_stdout(io.StringIO()) as listing:
    code = main(["list"])
top = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps({"code": code, "lines": len(listing.getvalue().splitlines()), "modules": top}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--runs", type=int, default=20, help="number of processes of each kind (default: 20)"
    )
    parser.add_argument("--quick", action="store_true", help="try the script with three runs")
    options = parser.parse_args()

    modules = _modules_after_list()
    found = sorted(set(FRAMEWORKS) & set(modules))
    assert not found, f"`cbs list` imports {', '.join(found)}"

    cbs = Path(sys.executable).with_name("cbs")
    times = interleave(
        {
            "python -c pass": _process(sys.executable, "-c", "pass"),
            "import of the Python API": _process(
                sys.executable, "-c", "import comparative_benchmark"
            ),
            "import of the command": _process(
                sys.executable, "-c", "import comparative_benchmark.cli.command"
            ),
            "cbs list": _process(str(cbs), "list"),
        },
        rounds=3 if options.quick else options.runs,
        iterations=1,
    )
    bare = times["python -c pass"]
    print_table(
        ["process", "median s", "min s", "max s", "x bare python"],
        [
            [
                name,
                f"{statistics.median(values):.3f}",
                f"{min(values):.3f}",
                f"{max(values):.3f}",
                str(ratio(values, bare)),
            ]
            for name, values in times.items()
        ],
    )
    print(f"framework modules in sys.modules after `cbs list`: none of {', '.join(FRAMEWORKS)}")
    slowdown = ratio(times["cbs list"], bare)
    print_goal(
        f"`cbs list` at most {GOAL} x `python -c pass`",
        met=slowdown.median <= GOAL,
        found=f"{slowdown} x",
    )
    imported = ratio(times["import of the Python API"], bare)
    seconds = statistics.median(times["import of the Python API"])
    print_goal(
        f"`import comparative_benchmark` < {IMPORT_GOAL_S} s",
        met=seconds < IMPORT_GOAL_S,
        found=f"{seconds:.3f} s, {imported} x `python -c pass`",
    )


def _modules_after_list() -> list[str]:
    done = subprocess.run([sys.executable, "-c", _LOOK], check=True, capture_output=True, text=True)
    answer = json.loads(done.stdout)
    assert answer["code"] == 0, "`cbs list` failed"
    assert answer["lines"] > 0, "`cbs list` did not print any case"
    modules: list[str] = answer["modules"]
    return modules


def _process(*command: str) -> Callable[[], object]:
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
