"""Benchmark folders in milabench's layout, with scripts that need only Python."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from comparative_benchmark.interop.milabench import config, phases, workspace
from comparative_benchmark.interop.milabench.channel import PhaseOutcome
from comparative_benchmark.interop.milabench.measuring import Replicate, to_result
from comparative_benchmark.interop.milabench.processes.execution import Ended
from comparative_benchmark.interop.milabench.processes.observed import Observed
from comparative_benchmark.interop.milabench.workspace import Placement
from comparative_benchmark.results.record import Status
from comparative_benchmark.results.results_file import ResultsFile

# Runs main.py by plain Python: voir is not installed where these tests run.
BENCHFILE = """
from milabench.commands import CmdCommand
from milabench.pack import Package

class Plain(Package):
    def build_run_plan(self):
        return CmdCommand(self, "python", self.dirs.code / "main.py", *self.argv)

__pack__ = Plain
"""
TOLD = """
import json, os, sys, time
def emit(**event):
    os.write(int(os.environ["DATA_FD"]), json.dumps(event).encode() + b"\\n")
def rates(values):
    for value in values:
        emit(task="train", rate=value, units="items/s")
"""
GOOD = "rates([100.0, 101.0] * 6)"


def write(folder, main=GOOD, *, benchfile=BENCHFILE, prepare=None):
    """Writes a benchmark's folder; returns it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "benchfile.py").write_text(benchfile)
    (folder / "main.py").write_text(TOLD + textwrap.dedent(main))
    (folder / "requirements.in").write_text("")
    if prepare is not None:
        script = folder / "prepare.py"
        script.write_text(f"#!{sys.executable}\n{textwrap.dedent(prepare)}")
        script.chmod(0o755)
    return folder


def configured(path, **benches):
    """Writes a configuration of folders next to it: each with lines of YAML."""
    text = ""
    for name, lines in benches.items():
        text += f"{name}:\n  inherits: _defaults\n  install_variant: unpinned\n"
        text += f"  install_group: shared\n  definition: {name}\n"
        text += "".join(f"  {line}\n" for line in lines)
    path.write_text(text)
    return path


def installed(benches, base):
    """Makes the environment of benchmarks that need nothing, without an installer."""
    for bench in benches:
        place = Placement(base=base, bench=bench, run_name="test")
        venv = place.dirs["venv"]
        if not venv.exists():
            command = [sys.executable, "-m", "venv", "--without-pip", str(venv)]
            subprocess.run(command, check=True, capture_output=True)
        workspace.note_installed(place, None)
    return benches


def run(path, base, **how):
    """Runs a configuration; returns the exit code and the results by name."""
    benches = installed(config.read(path), base)
    code, results = phases.run(benches, base, phases.How(results=base / "results.json", **how))
    return code, {result.definition.model: result for result in results}


def options(**fields):
    """Returns parsed options of `cbs bench`."""
    fallback = {"select": [], "exclude": [], "config": None, "base": None}
    fallback |= {"override": [], "system": None, "use_current_env": False}
    return argparse.Namespace(**{**fallback, **fields})


@contextlib.contextmanager
def nothing_outside(place, base):
    """Asserts that the block changes no file outside the base."""

    def files():
        found = {}
        for folder, names, inside in os.walk(place):
            names[:] = [name for name in names if Path(folder, name) != place / base]
            found |= {Path(folder, name): Path(folder, name).read_bytes() for name in inside}
        return found

    before = files()
    yield
    assert files() == before


def processes_with(text):
    """Returns the processes whose command line or environment contains a text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


# Results with known rates, of scripts that never ran.
NOISE = (0.0, 1.0, -1.0, 0.5, -0.5, 0.25, 1.0, -0.75, 0.0, 0.5, -1.0, 0.0)


def _ended(tmp_path, rates, *, tag, code):
    seen = Observed()
    for loss in (2.5, 1.5):
        seen.take({"task": "train", "loss": loss})
    for rate in rates:
        seen.take({"task": "train", "rate": rate, "units": "items/s"})
    return Ended(
        tag=tag,
        observed=seen,
        log_file=tmp_path / "b.log",
        code=code,
        wall_s=2.0,
        cpu_s=1.0,
        peak_memory_bytes=50_000_000,
        isolated=True,
    )


def noisy(rate):
    """Rates about one."""
    return [rate * (1 + value / 100) for value in NOISE]


def made(tmp_path, bench, replicates, *, status=Status.OK, **fields):
    """A result of replicates, each a list of (rates, exit code) of its processes.

    `status` is how the benchfile ended.
    """
    found = [
        Replicate(
            outcome=PhaseOutcome(
                status=status,
                reason="so",
                ended=[
                    _ended(tmp_path, rates, tag=f"{bench.name}.{i}", code=code)
                    for i, (rates, code) in enumerate(processes)
                ],
            ),
            wall_s=2.0,
        )
        for processes in replicates
    ]
    return to_result(
        bench, found, device="host-cpu", versions={}, config=dict(bench.config), **fields
    )


def keep(path, results_of, *, time=None):
    """Adds the results that a function makes of a new run; returns them."""
    file = ResultsFile(path)
    run_id = file.start_run(execution_environment=phases.execution_environment(), command=["cbs"])
    results = results_of(run_id)
    file.append(*results)
    if time is not None:
        document = json.loads(path.read_text())
        document["runs"][-1]["trigger"]["timestamp"] = time
        document["runs"][-1]["execution_environment"]["git_revision"] = f"as of {time}"
        path.write_text(json.dumps(document))
    return results
