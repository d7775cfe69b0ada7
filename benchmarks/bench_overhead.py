#!/usr/bin/env python3
"""Measures the overhead of `cbs bench` per event, and per run of a script that only sleeps.

`python benchmarks/bench_overhead.py` installs the template into a temporary base and runs it, in
half a minute. `--quick` has no effect.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _timing import print_goal

from comparative_benchmark.interop.milabench.processes.observed import (
    EventLines,
    Observed,
    SmuggledEvents,
)
from comparative_benchmark.results.results_file import read_document

_EVENTS = 50_000
_PIECE = 1 << 16
_AS_SMUGGLED = str.maketrans("abcdef", ":;<=>?")


def main() -> int:
    line = json.dumps({"task": "train", "rate": 637.7, "units": "items/s"})
    hidden = "".join(
        f"\x1b[{part.encode().hex().translate(_AS_SMUGGLED)}z" for part in (line, "\n")
    )
    for name, data in (
        ("JSON lines", f"{line}\n".encode() * _EVENTS),
        ("escape sequences", hidden.encode() * _EVENTS),
    ):
        each_us = _per_event_us(data, hidden=name != "JSON lines")
        print_goal(f"an event in {name} < 20 us", met=each_us < 20, found=f"{each_us:.1f} us")
    _run_template()
    return 0


def _per_event_us(data: bytes, *, hidden: bool) -> float:
    lines, smuggled, observed = EventLines(), SmuggledEvents(), Observed()
    started = time.perf_counter()
    for start in range(0, len(data), _PIECE):
        piece = data[start : start + _PIECE]
        for event in smuggled.feed(piece)[1] if hidden else lines.feed(piece):
            observed.take(event)
    seconds = time.perf_counter() - started
    assert observed.events == _EVENTS
    return seconds / _EVENTS * 1e6


def _run_template() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        cbs = [sys.executable, "-P", "-m", "comparative_benchmark", "bench"]
        env = {**os.environ, "MILABENCH_BASE": f"{temporary}/base"}
        env["MILABENCH_CONFIG"] = f"{temporary}/sleeps/dev.yaml"

        def bench(*arguments: str) -> float:
            started = time.perf_counter()
            subprocess.run([*cbs, *arguments], check=True, env=env, stdout=subprocess.DEVNULL)
            return time.perf_counter() - started

        bench("new", "sleeps", "--directory", temporary)
        print(f"install: {bench('install'):.1f} s, prepare: {bench('prepare'):.1f} s")
        wall_s = bench("run")
        [result] = read_document(Path(temporary) / "base" / "results.json").benchmarks
        throughput = result.measured.throughput
        assert throughput
        [process] = throughput.processes
        rate = throughput.rate or 0.0
        found = f"{rate:.1f} {throughput.units}"
        goal = "64 items in a sleep of 0.1 s are 635-640 items/s"
        print_goal(goal, met=635 <= rate <= 640, found=found)
        more_s = wall_s - process.wall_s
        found = f"{more_s:.2f} s, of {wall_s:.2f} s"
        goal = "`cbs bench run` takes < 2 s more than its script"
        print_goal(goal, met=more_s < 2, found=found)


if __name__ == "__main__":
    sys.exit(main())
