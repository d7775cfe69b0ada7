"""The workspace of a benchmark: its folders, environment variables and virtual environment.

Virtual environments belong to install groups; uv manages them if available, otherwise pip.
"""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import attrs
from filelock import FileLock

from comparative_benchmark.analysis.machine import nvml, worker_settings
from comparative_benchmark.backends import host_settings
from comparative_benchmark.interop.milabench.config import BATCH_FACTOR, Bench, filled, scalars
from openxla.benchmark.files import write_atomically
from openxla.benchmark.installation import root_dir

BASE_VARIABLE = "MILABENCH_BASE"
CONFIG_VARIABLE = "MILABENCH_CONFIG"
SYSTEM_VARIABLE = "MILABENCH_SYSTEM"
# Communication backends, by PyTorch's device names.
_COLLECTIVES = {"cuda": "nccl", "rocm": "rccl", "xpu": "ccl", "hpu": "hccl"}
_DEVICES = {"rocm": "cuda"}
# This machine, in milabench's description of a system.
_NODE = {"name": "local", "ip": "127.0.0.1", "port": 29500, "user": "", "main": True}
_MOST_WORKERS = 16
_PROVIDED = Path(__file__).parent / "provided"
HOST_PATH = _PROVIDED / "host"
SCRIPT_PATH = _PROVIDED / "script"

# Runs the scripts, and is imported by our modules in their environment.
ALWAYS_INSTALLED = ("voir",)
_TOOLS = "pip-tools"
_PATIENCE_S = 600.0


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
        return f"requires {bench.needs}"
    if bench.least_gpus > (count := len(gpus())):
        return f"requires {bench.least_gpus} or more GPUs, but this machine has {count or 'none'}"
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
        own = {"hostname": socket.gethostname()}
        fields = {
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
                "self": own,
                "nodes": [{**_NODE, **own}],
                **bench.config.get("system", {}),
            },
        }
        return dict(filled(fields, {**scalars(bench.config), **self._names()}))

    @property
    def arch(self) -> str:
        """The accelerator: as given in the system description, or as detected."""
        system = self.bench.config.get("system") or {}
        return str(system.get("arch") or arch())

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
        variables = clean_environment()
        variables["PATH"] = os.pathsep.join([str(venv / "bin"), variables.get("PATH", os.defpath)])
        variables["VIRTUAL_ENV"] = str(venv)
        if scripts:
            variables["PYTHONPATH"] = os.pathsep.join([str(SCRIPT_PATH), str(HOST_PATH)])
        return variables | {name: str(value) for name, value in more.items()}

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
    passed = {n: v for n, v in worker_settings.for_worker(os.environ).items() if n not in dropped}
    # Write no bytecode into the folders of benchmarks.
    return {**passed, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}


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


class VenvError(RuntimeError):
    """An environment cannot be created; the message gives the reason."""


def make_venv(venv: Path) -> None:
    """Creates an environment unless it exists.

    Raises:
      VenvError: it cannot be created.
    """
    try:
        venv.parent.mkdir(parents=True, exist_ok=True)
        # Benchmarks of one group may be installed at once.
        with FileLock(venv.parent / f".{venv.name}.lock"):
            if not (venv / "bin" / "python").exists():
                _make_venv(venv)
    except OSError as error:
        raise VenvError(f"cannot create {venv}: {error}") from error


def _make_venv(venv: Path) -> None:
    uv = shutil.which("uv")
    if uv:
        command = [uv, "venv", "--quiet", "--python", sys.executable, str(venv)]
    else:
        # Copying pip takes seconds, and our own pip can install into other environments.
        bare = ["--without-pip"] if _has_pip() else []
        command = [sys.executable, "-P", "-m", "venv", *bare, str(venv)]
    try:
        subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE_S,
            env=installer_environment(),
        )
    except BaseException as error:
        # Also after Ctrl-C: an incomplete environment would look like a complete one.
        shutil.rmtree(venv, ignore_errors=True)
        if not isinstance(error, OSError | subprocess.SubprocessError):
            raise
        words = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise VenvError(f"cannot create {venv}: {words[-1] if words else error}") from error


def install_command(venv: Path, arguments: Sequence[str]) -> list[str]:
    """Returns the command that installs into an environment; it takes pip's arguments."""
    python = str(venv / "bin" / "python")
    if uv := shutil.which("uv"):
        # Compile as pip does: scripts write no bytecode and would compile their imports every time.
        return [uv, "pip", "install", "--compile-bytecode", "--python", python, *arguments]
    if _has_pip():
        return [sys.executable, "-P", "-m", "pip", "--python", python, "install", *arguments]
    return [python, "-P", "-m", "pip", "install", *arguments]


def compile_command(base: Path, arguments: Sequence[str]) -> list[str]:
    """Returns the command that locks requirements, with the arguments of `pip-compile`.

    Raises:
      VenvError: uv is missing, and pip-tools cannot be installed.
    """
    if uv := shutil.which("uv"):
        return [uv, "pip", "compile", "--quiet", *arguments]
    tools = base / "venv" / ".tools"
    if not (tools / "bin" / "pip-compile").exists():
        make_venv(tools)
        command = install_command(tools, ["--quiet", _TOOLS, "pip"])
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=installer_environment()
        )
        if done.returncode:
            words = done.stderr.strip().splitlines()
            raise VenvError(f"cannot install {_TOOLS}: {words[-1] if words else ''}")
    return [
        *(str(tools / "bin" / "python"), "-P", "-m", "piptools", "compile", "--quiet"),
        *("--resolver", "backtracking", "--no-emit-index-url", "--no-emit-find-links"),
        *arguments,
    ]


def installer_environment() -> dict[str, str]:
    """Returns the environment variables for pip and uv, including their settings.

    Failures are reported by an installer's last line, which uv would wrap at a smaller width.
    """
    own = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))}
    environment = clean_environment()
    del environment["PYTHONDONTWRITEBYTECODE"]
    return {**environment, "COLUMNS": "10000", **own}


def fingerprint(placement: Placement, variant: str | None) -> str:
    """Returns a digest of an installation's inputs: requirements, benchfile, interpreter."""
    digest = hashlib.sha256(f"{sys.version}\0{variant}".encode())
    folder = placement.bench.folder
    for path in sorted([*folder.glob("requirements*"), folder / "benchfile.py"]):
        if path.is_file():
            digest.update(f"{path.name}\0".encode() + path.read_bytes())
    digest.update(json.dumps(placement.config(variant).get("pip"), default=str).encode())
    return digest.hexdigest()


def is_installed(placement: Placement, variant: str | None) -> bool:
    """Returns whether a benchmark is installed with its current requirements."""
    stamp, venv = _stamp(placement), placement.dirs["venv"]
    if not (stamp.is_file() and (venv / "bin" / "python").exists()):
        return False
    return stamp.read_text(encoding="utf-8").strip() == fingerprint(placement, variant)


def was_installed(placement: Placement) -> bool:
    """Returns whether a benchmark was ever installed into its current environment."""
    return _stamp(placement).is_file() and (placement.dirs["venv"] / "bin" / "python").exists()


def note_installed(placement: Placement, variant: str | None) -> None:
    """Records that a benchmark is installed."""
    _stamp(placement).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(_stamp(placement), fingerprint(placement, variant).encode() + b"\n")


def forget_venv(placement: Placement) -> None:
    """Removes the environment of a benchmark's install group."""
    shutil.rmtree(placement.dirs["venv"], ignore_errors=True)


def _stamp(placement: Placement) -> Path:
    # Inside the environment, so that removing the environment also removes the stamp.
    return placement.dirs["venv"] / ".cbs-installed" / placement.bench.name


def _has_pip() -> bool:
    # Not `find_spec`, because setuptools hooks imports of pip.
    return bool(list(distributions(name="pip")))
