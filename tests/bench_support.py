"""Benchmark folders as milabench has them, with scripts that need nothing but Python."""

import argparse
import subprocess
import sys
import textwrap
from pathlib import Path

from comparative_benchmark.packages.milabench import config, running, venvs
from comparative_benchmark.packages.milabench.placement import Placement

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
def tell(**event):
    os.write(int(os.environ["DATA_FD"]), json.dumps(event).encode() + b"\\n")
def rates(values):
    for value in values:
        tell(task="train", rate=value, units="items/s")
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
    """Writes a configuration of folders beside it: each with lines of YAML."""
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
        venvs.note_installed(place, None)
    return benches


def run(path, base, **how):
    """Runs a configuration; returns the exit code and the results by name."""
    benches = installed(config.read(path), base)
    code, results = running.run(benches, base, running.How(results=base / "results.json", **how))
    return code, {result.definition.model: result for result in results}


def options(**fields):
    """Returns parsed options of `cbs bench`."""
    fallback = {"select": [], "exclude": [], "config": None, "base": None}
    return argparse.Namespace(**{**fallback, **fields})


def processes_with(text):
    """Returns the processes whose command line or environment holds a text."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
