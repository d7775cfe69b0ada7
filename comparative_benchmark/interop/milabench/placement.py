"""Folders of a benchmark and environment variables of its processes."""

import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.analysis.machine import nvml, worker_settings
from comparative_benchmark.backends import host_settings
from comparative_benchmark.interop.milabench.arguments import BATCH_FACTOR, filled
from comparative_benchmark.interop.milabench.config import Bench, scalars
from openxla.benchmark.root import root_dir

BASE_VARIABLE = "MILABENCH_BASE"
CONFIG_VARIABLE = "MILABENCH_CONFIG"
SYSTEM_VARIABLE = "MILABENCH_SYSTEM"
# Communication backends, by PyTorch's device names.
_COLLECTIVES = {"cuda": "nccl", "rocm": "rccl", "xpu": "ccl", "hpu": "hccl"}
_DEVICES = {"rocm": "cuda"}
_MOST_WORKERS = 16
_PROVIDED = Path(__file__).parent / "provided"
HOST_PATH = _PROVIDED / "host"
SCRIPT_PATH = _PROVIDED / "script"


@attrs.frozen(kw_only=True)
class Gpu:
    """A GPU, as used in plans."""

    device: str
    selection_variable: str = "CUDA_VISIBLE_DEVICES"


def gpus() -> list[Gpu]:
    """Returns the visible GPUs."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [Gpu(device=name) for name in visible.split(",") if name.strip() not in ("", "-1")]
    library = nvml.library()
    count = nvml.count(library) if library is not None else 0
    return [Gpu(device=str(number)) for number in range(count)]


def unmet(bench: Bench) -> str | None:
    """Returns a requirement that this machine does not meet; None if the benchmark may run."""
    if bench.needs:
        return f"it needs {bench.needs}"
    if bench.least_gpus > (found := len(gpus())):
        return f"it needs {bench.least_gpus} GPUs, but this machine has {found or 'none'}"
    return None


def base_dir(given: Path | None) -> Path:
    """Returns the folder of environments, data and runs.

    This is `--base`, else `$MILABENCH_BASE`, else `milabench` in the root folder of artifacts.
    """
    if given is None and (configured := os.environ.get(BASE_VARIABLE)):
        given = Path(configured)
    return given.expanduser().absolute() if given is not None else root_dir() / "milabench"


def current_venv() -> Path:
    """Returns the active environment, detected as milabench does, or else our own."""
    for name in ("CONDA_PREFIX", "VIRTUAL_ENV"):
        if given := os.environ.get(name):
            return Path(given)
    return Path(sys.prefix)


def arch() -> str:
    """Returns milabench's name for the accelerator of this machine: `cuda`, or `cpu`."""
    return "cuda" if gpus() else "cpu"


@attrs.frozen(kw_only=True)
class Placement:
    """The folders of one benchmark."""

    base: Path
    bench: Bench
    run_name: str

    @property
    def dirs(self) -> dict[str, Path]:
        """Folders by milabench's names; all benchmarks share data and cache."""
        name, group = self.bench.name, self.bench.install_group
        return {
            "base": self.base,
            "code": self.bench.folder,
            "venv": self.bench.venv or self.base / "venv" / group,
            "data": self.base / "data",
            "runs": self.base / "runs",
            "extra": self.base / "extra" / name,
            "cache": self.base / "cache",
        }

    @property
    def log_dir(self) -> Path:
        """Folder for the logs of this run."""
        return self.base / "runs" / self.run_name

    def make_folders(self) -> None:
        """Creates the folders that scripts expect."""
        for name in ("data", "runs", "extra", "cache"):
            self.dirs[name].mkdir(parents=True, exist_ok=True)

    def config(self, variant: str | None = None) -> dict[str, Any]:
        """Returns a pack's configuration: the YAML fields, paths, tag, machine and variant."""
        bench = self.bench
        found = {
            **bench.config,
            "definition": str(bench.folder),
            "tag": [bench.name],
            "dirs": {name: str(path) for name, path in self.dirs.items()},
            "run_name": self.run_name,
            "install_variant": variant or bench.install_variant or self.arch,
            "num_machines": 1,
            "system": {
                "arch": self.arch,
                "sshkey": None,
                "docker_image": None,
                "self": {"hostname": socket.gethostname()},
                "nodes": [
                    {
                        "name": "local",
                        "ip": "127.0.0.1",
                        "port": 29500,
                        "user": "",
                        "main": True,
                        "hostname": socket.gethostname(),
                    }
                ],
                **bench.config.get("system", {}),
            },
        }
        return dict(filled(found, {**scalars(bench.config), **self._names()}))

    @property
    def arch(self) -> str:
        """The accelerator: as given in the system description, or as detected."""
        told = self.bench.config.get("system") or {}
        return str(told.get("arch") or arch())

    def _names(self) -> dict[str, str]:
        count, processors = len(gpus()), len(host_settings.usable_cpus())
        share = processors // max(1, count)
        names = {
            "arch": self.arch,
            "system.arch": self.arch,
            "device_name": _DEVICES.get(self.arch, self.arch),
            "ccl": _COLLECTIVES.get(self.arch, "gloo"),
            "cpu_count": str(processors),
            "cpu_per_gpu": str(share),
            "gpu_count": str(count),
            "n_worker": str(min(max(1, share), _MOST_WORKERS)),
            "milabench_name": self.bench.name,
            "benchmark_folder": str(self.bench.folder),
            BATCH_FACTOR: str(self.bench.batch_factor),
        }
        return names | {f"milabench_{name}": str(path) for name, path in self.dirs.items()}

    def environment(self, more: Mapping[str, str], *, scripts: bool = True) -> dict[str, str]:
        """Returns all variables for a command in the benchmark's environment.

        Only variables that programs need are taken from the shell. Of our modules, only those that
        benchmarks import from milabench's own distribution are on the path.
        """
        venv = self.dirs["venv"]
        found = clean_environment()
        found["PATH"] = os.pathsep.join([str(venv / "bin"), found.get("PATH", os.defpath)])
        found["VIRTUAL_ENV"] = str(venv)
        if scripts:
            found["PYTHONPATH"] = os.pathsep.join([str(SCRIPT_PATH), str(HOST_PATH)])
        return found | {name: str(value) for name, value in more.items()}

    def shell_environment(self) -> dict[str, str]:
        """Returns the variables for a shell in the benchmark's environment."""
        dirs = {f"MILABENCH_DIR_{n.upper()}": str(path) for n, path in self.dirs.items()}
        return self.environment(
            {
                **dirs,
                "MILABENCH_DATA_DIR": str(self.dirs["data"]),
                "MILABENCH_BASE": str(self.base),
                "XDG_CACHE_HOME": str(self.dirs["cache"]),
            }
        )


def clean_environment() -> dict[str, str]:
    """Returns the variables that programs need, without secrets or paths of our modules."""
    dropped = (
        *("PYTHONPATH", "PYTHONHOME", "PYTHONSAFEPATH", "VIRTUAL_ENV"),
        *(CONFIG_VARIABLE, SYSTEM_VARIABLE),
    )
    found = {n: v for n, v in worker_settings.for_worker(os.environ).items() if n not in dropped}
    # Write no bytecode into the folders of benchmarks.
    return {**found, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def host_environment() -> dict[str, str]:
    """Returns the variables for a process that executes a benchfile in our environment."""
    return {**clean_environment(), "PYTHONPATH": str(HOST_PATH)}


def host_command(questions: int, answers: int, file: Path) -> list[str]:
    """Returns the command line of a process that executes a benchfile."""
    # -P keeps the script's folder off the path; our modules there would shadow others.
    script = Path(__file__).parent / "processes" / "host.py"
    return [sys.executable, "-P", str(script), str(questions), str(answers), str(file)]


def as_json(value: Any) -> str:
    """Returns JSON for the process that executes a benchfile."""
    return json.dumps(value, default=str)
