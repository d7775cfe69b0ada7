"""Helpers that fixtures of every scope use."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import attrs
import pytest

from openxla.benchmark.plugins import is_built_in


@attrs.frozen
class Run:
    """A finished `cbs run`."""

    code: int
    out: str
    err: str
    output: Path

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.output.read_text())

    @property
    def statuses(self) -> dict[str, str]:
        """Status by `MODEL backend:compiler`."""
        return {
            f"{d['model']} {d['backend']}:{d['compiler']}": record["status"]
            for record in self.document["benchmarks"]
            for d in (record["definition"],)
        }


def cbs_command(*arguments: str, output: Path) -> list[str]:
    """Returns the command line of `cbs run` on host-cpu."""
    module = [sys.executable, "-m", "comparative_benchmark", "run", "-device", "host-cpu"]
    return [*module, "-o", str(output), *arguments]


def run_cbs(
    *arguments: str,
    directory: Path,
    environment: dict[str, str],
    timeout_s: float = 900,
    unsteady: int = 0,
) -> Run:
    """Runs `cbs run` to its end; results go to `results.json` of the directory.

    Args:
      unsteady: number of trials that are always unsteady. If more are unsteady because the machine
        was busy, the run is repeated, at most three times.
        A run that continues from existing results is made once.
    """
    output = directory / "results.json"
    tries = 1 if output.exists() else 3
    while True:
        done = subprocess.run(
            cbs_command(*arguments, output=output),
            env=environment,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        run = Run(done.returncode, done.stdout, done.stderr, output)
        # Shown if a test fails, because its assertion may not show the reason.
        print(f"exit code {run.code}\n{run.out[-4000:]}\n{run.err[-4000:]}")
        tries -= 1
        if not (tries and output.exists()):
            return run
        if list(run.statuses.values()).count("unsteady") <= unsteady:
            return run
        output.unlink()


def python_path(*folders: Path, given: str | None = None) -> str:
    """Returns a PYTHONPATH of these folders, followed by the given or present one.

    The tests' own package is on the present one: without it, a process has no `test_numpy`.
    """
    rest = os.environ["PYTHONPATH"] if given is None else given
    return os.pathsep.join([*map(str, folders), rest])


def selected(request: pytest.FixtureRequest, test: Callable[..., None], parameter: str) -> list:
    """Returns the values of a parameter with which a test was selected for this session.

    So a fixture makes results only for tests that run.
    """
    return [
        item.callspec.params[parameter]
        for item in request.session.items
        if getattr(item, "function", None) is test
    ]


def processes_of(marker: str) -> list[int]:
    """Returns the processes, except this one, with the marker in environment or arguments."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in told and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


def wait_for(condition: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Polls until the condition is true; fails after a timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        time.sleep(0.05)


def shipped(group: str) -> list[str]:
    """Returns the names that the suite itself registers; installed packages may add others."""
    return [point.name for point in entry_points(group=group) if is_built_in(point)]


def documented_plugin(folder: Path, document: Path, name: str, group: str, entry: str) -> None:
    """Makes a package with one file from a document, and the line that registers it.

    Args:
      folder: to be put on PYTHONPATH.
      document: whose Python block starts with `name` in its docstring.
      name: of the thing that is added; `entry` is its module and object.
      group: of the entry point.
    """
    (source,) = re.findall(rf'```python\n("""{name}.*?)```', document.read_text(), re.DOTALL)
    (folder / f"{entry.partition(':')[0]}.py").write_text(source)
    registered = folder / "my_plugin-1.dist-info"
    registered.mkdir()
    (registered / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1\n")
    (registered / "entry_points.txt").write_text(f"[{group}]\n{name} = {entry}\n")
