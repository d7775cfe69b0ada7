"""Helpers of the tests of reproducers: a directory of data only, and fresh environments."""

import importlib.util
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import distribution
from pathlib import Path

from results_support import completed

from comparative_benchmark.engine import trial as trials
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import Status
from comparative_benchmark.results.results_file import encode, plain
from comparative_benchmark.studies.reproduce import writing
from openxla.benchmark import devices
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.workload_store import Due
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.workloads import workload_of

TEMPLATES = Path(writing.__file__).parent / "templates"


def load_check(
    directory, truth, reference, parameters, *, generates=False, data_type="fp32", **others
):
    """Returns the `check.py` of a reproducer with these outputs, and files of all arrays.

    `others` are `inputs` and `neighbours`, which tests may leave out.
    """
    saved = {}
    arrays = {"inputs": (), "neighbours": (), **others, "truth": truth, "reference": reference}
    for stem, values in arrays.items():
        files = array_files.save_all(directory / "expected", stem, values)
        saved[stem] = [directory / "expected" / file["file"] for file in files]
    found = writing.expected_limits(
        Due(**saved), parameters, generates=generates, data_type=data_type
    )
    text = json.dumps({**found, "recorded": "ok"}, allow_nan=False)
    (directory / "expected.json").write_text(text)
    path = directory / "check.py"
    path.write_text((TEMPLATES / "check.py.txt").read_text())
    spec = importlib.util.spec_from_file_location("check", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, saved


class FreshEnvironment:
    """A virtual environment that contains only links to some installed packages.

    Made without an index: every file that a distribution lists is linked from the environment that
    the tests run in, and its commands get launchers, as an installer would write them. Packages
    that these need have to be named, too; `pip` is not there.
    """

    def __init__(self, directory: Path, packages: Iterable[str]) -> None:
        self.directory = directory
        venv.EnvBuilder(symlinks=True, with_pip=False).create(directory)
        self.python = directory / "bin" / "python"
        folder = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self._site = directory / "lib" / folder / "site-packages"
        for package in packages:
            self._link(package)

    def run(self, *command: str, cwd: Path, timeout_s: float = 300):
        """Runs a command there, without variables of ours."""
        environment = {
            "PATH": f"{self.directory / 'bin'}{os.pathsep}{os.defpath}",
            "HOME": str(cwd),
        }
        return subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def _link(self, package: str) -> None:
        found = distribution(package)
        for file in found.files or ():
            source, target = Path(found.locate_file(file)), self._site / file
            # Launchers of commands are outside of the packages' folder; byte code is made again.
            if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)
        for point in found.entry_points.select(group="console_scripts"):
            launcher = self.directory / "bin" / point.name
            launcher.write_text(
                f"#!{self.python}\nimport sys\nfrom {point.module} import {point.attr}\n"
                f"sys.exit({point.attr}())\n"
            )
            launcher.chmod(0o755)


def results_file(path, name, competitor, suites=(), **changes):
    """Writes a results file with one result of a case, as if it had been measured."""
    (case,) = catalog.select(catalog.all_benchmarks(suites), name=name)
    (found,) = trials.parse_competitors(competitor, "cpu")
    trial = trials.Trial(
        case=case, workload=workload_of(case), competitor=found, device=devices.HOST_CPU
    )
    ended = ProcessRecord(status=Status.FAILED, phase="compile", reason="a reason")
    result = to_result(trial, TrialOutcome(processes=[ended]), run_id="r")
    host = {"threads": 1, "cpu_model": "A CPU", "logical_cpus": 2, "system": "Linux 6"}
    around = {"host": host, "git_revision": "abc123", "python_environment": []}
    record = {"run_id": "r", "definition": plain(result.definition), "versions": {}, **changes}
    runs = [{"run_id": "r", "execution_environment": around}]
    path.write_bytes(encode(completed({"runs": runs, "benchmarks": [record]})))
    return path


def make(results, target, *options, environment, timeout_s=600):
    """Runs `cbs repro` on the only case of a results file."""
    command = [sys.executable, "-m", "comparative_benchmark", "repro", str(results), "models/"]
    return subprocess.run(
        [*command, "-o", str(target), *options],
        cwd=target.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
