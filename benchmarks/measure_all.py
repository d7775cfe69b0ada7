"""Measures the suite against its own goals, and updates the table in `benchmarks/README.md`.

Runs the other scripts of this folder one after the other. Each prints goals, which replace its
former records in `recorded/figures.jsonl`, with date, commit and machine. The table is made from
that file: a figure stays in it, with its commit, until it is measured again. If a script fails, it
keeps its former figures and the exit code is 1. A missed goal does not change the exit code.

    python benchmarks/measure_all.py [--only NAME ...] [--quick] [--table-only]
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from _race import conditions, keep

FOLDER = Path(__file__).parent
RECORDED = FOLDER / "recorded" / "figures.jsonl"
README = FOLDER / "README.md"
BEGIN, END = "<!-- figures: written by measure_all.py -->\n", "<!-- end of figures -->\n"
# Short scripts first.
SCRIPTS = (
    *(
        "cli_startup",
        "harness_overhead",
        "bench_overhead",
        "aa_simulation",
        "fleet_statistics",
        "fleet_simulation",
        "history",
        "history_alarms",
        "report",
    ),
    *(
        "artifact_transfer",
        "checkpoint_loading",
        "orchestration",
        "own_program",
        "tiny_artifacts",
        "parity_jobs",
    ),
    *(
        "micro_against_peers",
        "brought_against_peers",
        "training_steps",
        "sweep_orchestration",
        "baseline_against_itself",
        "jax_models",
        "tf_models",
        "bert_large_memory",
        "repeatability",
        "time_to_verdict",
    ),
    "aa_calibration",
)
_GOAL = re.compile(r"goal: (?P<goal>.+): (?P<met>met|missed) \((?P<found>.*)\)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=SCRIPTS, default=SCRIPTS, metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="try the scripts, without recording")
    parser.add_argument(
        "--table-only", action="store_true", help="only write the table for the existing records"
    )
    options = parser.parse_args()
    failed = []
    for name in () if options.table_only else options.only:
        found = measured(name, quick=options.quick)
        if not found["goals"]:
            failed.append(name)
        elif not options.quick:
            keep(RECORDED, found, ("script",))
    if not options.quick:
        rewrite(README, RECORDED)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def measured(name: str, *, quick: bool) -> dict[str, Any]:
    """Runs a script and shows its output; returns goals and conditions as a JSON value."""
    command = [f"{name}.py", *["--quick"] * quick]
    print(f"== {' '.join(command)}", flush=True)
    before, started, goals = conditions(()), time.monotonic(), []
    with subprocess.Popen(
        [sys.executable, str(FOLDER / command[0]), *command[1:]], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if goal := _GOAL.fullmatch(line.rstrip("\n")):
                goals.append(goal.groupdict())
    # Some scripts also report a missed goal by their exit code. A failed script prints no goals.
    return {
        "script": name,
        "command": " ".join(command),
        "seconds": round(time.monotonic() - started),
        "conditions": before,
        "goals": goals,
    }


def rewrite(readme: Path, recorded: Path) -> None:
    """Replaces the table in a document with the table of recorded figures."""
    text = readme.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    kept = [json.loads(line) for line in recorded.read_text(encoding="utf-8").splitlines()]
    readme.write_text(f"{head}{BEGIN}{table(kept)}{END}{tail}", encoding="utf-8")


def table(kept: Sequence[Mapping[str, Any]]) -> str:
    """Returns the goals as a Markdown table, followed by the machines with their letters."""
    lines = ["| script | goal | met | found | measured |", "|---|---|---|---|---|"]
    machines: dict[str, str] = {}
    for entry in sorted(kept, key=lambda entry: SCRIPTS.index(entry["script"])):
        known = entry["conditions"]
        machine = f"{known['cpu_model']}, {known['usable_cpus']} CPUs, Python {known['python']}"
        letter = machines.setdefault(machine, chr(ord("A") + len(machines)))
        when = f"{known['date'][:10]}, {known['revision'][:9]}, {letter}"
        if load := known.get("load_average"):
            when += f", load {load[0]:.1f}"
        for goal in entry["goals"]:
            met = "yes" if goal["met"] == "met" else "**no**"
            cells = (f"`{entry['command']}`", goal["goal"], met, goal["found"], when)
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    lines.append("\nDate, commit, machine and its load average before the start; machines:")
    lines += [f"{letter} is {machine}." for machine, letter in machines.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
