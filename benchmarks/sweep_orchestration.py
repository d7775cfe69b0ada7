"""Measures the share of time that a raced operator sweep spends outside the stacks.

Runs `cbs micro run` over matrix products that take about a millisecond, in PyTorch and JAX, with a
fresh root directory, in a process whose harness is wrapped in timers. Work is the phases that
workers announce (import, load, h2d, trace, lower, compile, first_run, execute, d2h, run_on;
preprocess and reference in the workers that prepare), and the judging of outputs. Stopping idle
workers is part of the method and has a separate row. All other time is orchestration.

    python benchmarks/sweep_orchestration.py [--quick] [--profile FILE]
"""

import argparse
import cProfile
import importlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from _spans import Spans
from _timing import print_goal, print_table

GOAL = 0.15
_BACKENDS = "pt_inductor:eager,jax_xla"
_SIZES = (384, 512, 640)
_SHAPES = [f"{m}x{k}x{n}" for m, k, n in itertools.product(_SIZES, _SIZES[:2], _SIZES[1:])]
_VERIFICATION = "verification"


def main() -> int:
    if len(sys.argv) > 1 and sys.argv[1] == "--wrapped":
        return _wrapped(Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="try the script with two shapes")
    parser.add_argument(
        "--profile", default="", help="file to write a cProfile of the parent process to"
    )
    options = parser.parse_args()
    shapes = _SHAPES[:2] if options.quick else _SHAPES
    with tempfile.TemporaryDirectory(prefix="cbs-sweep-orchestration-") as directory:
        command = [
            *("micro", "run", "--op", "matmul", "--shapes", ",".join(shapes)),
            *("--backend", _BACKENDS, "-o", f"{directory}/results.json"),
            *("--root-dir", f"{directory}/root"),
            # More than enough. A run with a budget does not measure this machine's ceilings.
            *("--budget", "7200"),
        ]
        spans = Path(directory) / "spans.json"
        started = time.time()
        done = subprocess.run(
            [sys.executable, __file__, "--wrapped", str(spans), options.profile, *command],
            check=False,
            stdout=subprocess.DEVNULL,
        )
        wall = time.time() - started
        # On a busy machine, trials are unsteady and the exit code is 1. The times are still valid.
        assert done.returncode in (0, 1), f"cbs micro run failed: exit code {done.returncode}"
        found = json.loads(spans.read_text(encoding="utf-8"))
    work, stops, rows = found["work"], found["stops"], found["orchestration"]
    rows["start of the command, its imports, its exit"] = wall - found["lasted"]
    rows["everything else in the parent"] = wall - sum(work.values()) - stops - sum(rows.values())
    for title, part in (("work, by phase", work), ("orchestration", rows)):
        ordered = sorted(part.items(), key=lambda item: -item[1])
        print_table(
            [title, "s", "of wall"],
            [
                [name, f"{seconds:.2f}", f"{seconds / wall:.1%}"]
                for name, seconds in ordered
                if seconds >= 0.005
            ],
        )
        print()
    share = sum(rows.values()) / wall
    print(
        f"{len(shapes)} shapes, wall {wall:.1f} s: work {sum(work.values()):.1f} s, stopping idle "
        f"workers {stops:.1f} s, orchestration {sum(rows.values()):.1f} s ({share:.1%})"
    )
    print_goal(
        f"orchestration < {GOAL:.0%} of a sweep of 1 ms operators",
        met=share < GOAL,
        found=f"{share:.1%}",
    )
    return 0


def _wrapped(output: Path, profile: str, arguments: list[str]) -> int:
    """Runs the command with timers and writes their figures."""
    from comparative_benchmark.cli import command as cli

    importlib.import_module("comparative_benchmark.engine.runner")  # the command imports it late
    spans = Spans()
    spans.install(split_calls=False)
    phases, commands = _listen()
    stops = _time_signals()
    began = time.time()
    profiler = cProfile.Profile()
    code = profiler.runcall(cli.main, arguments) if profile else cli.main(arguments)
    lasted = time.time() - began
    if profile:
        profiler.dump_stats(profile)
    rows = dict(spans.orchestration)
    work = {**phases, _VERIFICATION: rows.pop(_VERIFICATION, 0.0)}
    commands.pop("start", None)  # has its own row
    rows |= {f"`{name}` outside phases": seconds for name, seconds in commands.items()}
    facts = {"work": work, "stops": sum(stops), "orchestration": rows, "lasted": lasted}
    output.write_text(json.dumps(facts), encoding="utf-8")
    return code


def _listen() -> tuple[dict[str, float], dict[str, float]]:
    """Returns seconds of phases, and of commands outside their phases, as sessions report them."""
    from comparative_benchmark.engine.messages import Timeline

    phases: defaultdict[str, float] = defaultdict(float)
    commands: defaultdict[str, float] = defaultdict(float)
    inside = 0.0

    def span(
        _: Timeline, __: str, name: str, category: str, start: int, end: int, **___: Any
    ) -> None:
        nonlocal inside
        seconds = (end - start) / 1e9
        if category == "phase":
            phases[name] += seconds
            inside += seconds
        elif category == "command":
            commands[name] += seconds - inside
            inside = 0.0

    setattr(Timeline, "span", span)  # noqa: B010  # mypy: a method is not a variable
    return phases, commands


def _time_signals() -> list[float]:
    """Returns a list to which the seconds of each signal to a worker are added."""
    from comparative_benchmark.engine.session import Session

    original, found = Session._signal, []  # noqa: SLF001  # timed from outside

    def signal(session: Session, number: Any) -> None:
        start = time.perf_counter()
        original(session, number)
        found.append(time.perf_counter() - start)

    setattr(Session, "_signal", signal)  # noqa: B010  # mypy: a method is not a variable
    return found


if __name__ == "__main__":
    raise SystemExit(main())
