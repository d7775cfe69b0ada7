"""Starts the GPU check on a bare machine: finds the GPU, then the packages that the check needs.

    python -P -m gpu_check.bootstrap [--device D] [--wheels DIR] [more]
    python -P -m gpu_check.bootstrap [...] --exec ARGUMENTS-OF-PYTHON

This module and `wheel_folder` run before any dependency is available, so they import only the
standard library. Bootstrap replaces itself with `python -m gpu_check`, or runs Python with the
arguments after `--exec`. In both cases PYTHONPATH starts with

1. a temporary folder: packages from the wheel folder that are missing or too old here, and metadata
   that make the checkout look installed (entry points, version);
2. the checkout.

It installs nothing, and writes nothing into the checkout. It exits with 3 without a usable GPU, and
with 1 if the check cannot start, and prints one line in both cases.
"""

import argparse
import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from gpu_check import wheel_folder
from gpu_check.wheel_folder import FolderError, IncompleteError

CHECKOUT = Path(__file__).resolve().parents[2]
WHEELS_VARIABLE = "CBS_GPU_WHEELS"
WORK_VARIABLE = "CBS_GPU_CHECK_WORK"
# A `SetUp`, in the folder that `WORK_VARIABLE` names.
SET_UP_FILE = "bootstrap.json"
EXIT_FAILED, EXIT_NO_GPU = 1, 3

_DRIVER = "libcuda.so.1"
_CUDA_ERROR_NO_DEVICE = 100
_REHEARSE = "rehearse the same steps on the CPU with `--device host-cpu`"
_FRAMEWORKS = ("torch", "jax")
_EXEC = "--exec"
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class SetUpError(Exception):
    """The check cannot start; the message is one line with the remedy."""


@dataclass(kw_only=True)
class SetUp:
    """Packages of the check.

    Attributes:
      installed_from_wheels: versions by name.
      missing_groups: reasons by group of `wheel_folder.GROUPS`.
    """

    installed_from_wheels: dict[str, str] = field(default_factory=dict)
    missing_groups: dict[str, str] = field(default_factory=dict)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exits with 1, since 2 stands for a wrong output."""
        self.exit(EXIT_FAILED, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str]) -> int:
    """Replaces this process with the check, or returns an exit code."""
    is_exec = _EXEC in arguments
    end = arguments.index(_EXEC) if is_exec else len(arguments)
    options, more = _parser().parse_known_args(arguments[:end])
    if options.device != "host-cpu" and not options.help and (reason := gpu_problem()):
        return _fail(reason, EXIT_NO_GPU)
    work = Path(tempfile.mkdtemp(prefix="cbs-gpu-check-"))
    try:
        wheels = find_wheels(options.wheels)
        set_up(work, wheels)
        environment = environment_of(work)
        if is_exec:
            return subprocess.run(
                [sys.executable, "-P", *arguments[end + 1 :]], env=environment, check=False
            ).returncode
        command = [sys.executable, "-P", "-m", "gpu_check", "--device", options.device]
        command += ["--wheels", str(wheels)] if wheels else []
        command += [*(["--help"] if options.help else []), *more]
        # The check removes the folder when it ends: `finally` does not run after a successful exec.
        os.execve(sys.executable, command, environment)  # noqa: S606  # no shell is wanted
    except SetUpError as error:
        return _fail(str(error), EXIT_FAILED)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def gpu_problem(
    load: Callable[[str], Any] = ctypes.CDLL, list_gpus: Callable[[], int] | None = None
) -> str | None:
    """Returns why no NVIDIA GPU can be used, in one line with the remedy; None if one can be used.

    The driver is asked, because frameworks may be missing or broken.

    Args:
      load: loads a shared library, or raises an `OSError`.
      list_gpus: returns the number of GPUs that `nvidia-smi` lists.
    """
    try:
        driver = load(_DRIVER)
    except OSError:
        if (list_gpus or gpus_of_nvidia_smi)():
            return _unusable(f"nvidia-smi lists a GPU, but {_DRIVER} cannot be loaded")
        return f"no NVIDIA GPU found ({_DRIVER} cannot be loaded): {_REHEARSE}"
    count = ctypes.c_int(0)
    code = driver.cuInit(0)
    if code not in (0, _CUDA_ERROR_NO_DEVICE):
        return _unusable(f"cuInit returned error {code}")
    if not code and (code := driver.cuDeviceGetCount(ctypes.byref(count))):
        return _unusable(f"cuDeviceGetCount returned error {code}")
    if count.value:
        return None
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hidden = "" if visible is None else f", with CUDA_VISIBLE_DEVICES={visible!r}"
    return f"no NVIDIA GPU found (the driver reports none{hidden}): {_REHEARSE}"


def gpus_of_nvidia_smi() -> int:
    """Returns the number of GPUs that `nvidia-smi -L` lists; 0 if it fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def loaded_driver(maps: Path = Path("/proc/self/maps")) -> Path | None:
    """Returns the file of the driver library that this process has loaded; None without one."""
    for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
        path = Path(line.partition("/")[1] + line.partition("/")[2])
        if path.name.startswith("libcuda.so"):
            return path
    return None


def find_wheels(option: Path | None) -> Path | None:
    """Returns the wheel folder: the option, `$CBS_GPU_WHEELS`, or `.gpu-wheels` if it exists.

    Raises:
      SetUpError: the folder that the option or the variable names does not exist.
    """
    if option is None and (variable := os.environ.get(WHEELS_VARIABLE)):
        option = Path(variable)
    if option is None:
        default = CHECKOUT / ".gpu-wheels"
        return default if default.is_dir() else None
    if not option.is_dir():
        raise SetUpError(
            f"the wheel folder {option} does not exist; create it with "
            f"`./scripts/gpu_wheels.sh --python {_PYTHON} --output {option}`"
        )
    return option.absolute()


def set_up(work: Path, wheels: Path | None) -> SetUp:
    """Makes the folder of packages and `SET_UP_FILE`.

    Raises:
      SetUpError: torch and jax are both missing, or a package of the core is.
    """
    if not any(map(importlib.util.find_spec, _FRAMEWORKS)):
        raise SetUpError(
            f"{sys.executable} has neither torch nor jax; set PYTHON to a Python with one of them"
        )
    site = work / "site"
    site.mkdir()
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    made = _unpack_missing(project["dependencies"], wheels, site)
    write_metadata(project, site)
    (work / SET_UP_FILE).write_text(json.dumps(asdict(made), indent=2), encoding="utf-8")
    return made


def _unpack_missing(core: Sequence[str], wheels: Path | None, site: Path) -> SetUp:
    """Unpacks packages that are missing or too old, group by group.

    Raises:
      SetUpError: the core is not complete.
    """
    make = f"`./scripts/gpu_wheels.sh --python {_PYTHON}`"
    if not wheel_folder.import_packaging(wheels):
        raise SetUpError(
            f"packages of the suite are missing ({', '.join(core)}); run {make} on a machine with "
            "a package index, and pass the folder with --wheels"
        )
    made = SetUp()
    installed = wheel_folder.installed_versions()
    usable: dict[str, wheel_folder.Wheel] = {}
    try:
        contents = wheel_folder.groups_of(wheels) if wheels else {}
    except FolderError as error:
        raise SetUpError(str(error)) from error
    for group, requirements in wheel_folder.GROUPS.items():
        try:
            if wheels:
                usable |= wheel_folder.usable_wheels(wheels, contents.get(group, ()))
            chosen = wheel_folder.choose(requirements or core, usable, installed)
            for wheel in chosen:
                wheel_folder.unpack(wheel, site)
        except (IncompleteError, FolderError) as error:
            if group == wheel_folder.CORE:
                place = f"Python {_PYTHON} and {wheels}" if wheels else f"Python {_PYTHON}"
                raise SetUpError(
                    f"packages are missing from {place}: {error}; create a wheel "
                    f"folder with {make}, and pass it with --wheels"
                ) from error
            made.missing_groups[group] = str(error)
            continue
        versions = {wheel.name: wheel.version for wheel in chosen}
        installed |= versions
        made.installed_from_wheels |= versions
    return made


def write_metadata(project: Mapping[str, Any], site: Path) -> None:
    """Makes the checkout look installed, since backends are looked up by entry points.

    The folder comes first on the path and hides an installed suite, so nothing is found twice.

    Args:
      project: the table `project` of pyproject.toml.
      site: the folder of packages.
    """
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    for extra, requirements in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f'Requires-Dist: {text}; extra == "{extra}"' for text in requirements]
    (info / "METADATA").write_text("\n".join([*lines, ""]), encoding="utf-8")
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def environment_of(work: Path) -> dict[str, str]:
    """Returns the environment variables of the check."""
    checkout = (CHECKOUT, CHECKOUT / "common_benchmark_suite", CHECKOUT / "scripts")
    roots = [str(work / "site"), *map(str, checkout)]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*roots, *(p for p in given if p and p not in roots)]),
        # Without it, each process would compile the suite and the unpacked packages again.
        "PYTHONPYCACHEPREFIX": str(work / "pycache"),
        WORK_VARIABLE: str(work),
    }
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    if driver := loaded_driver():
        # IREE loads `libcuda.so`, but machines with only CUDA's runtime have `libcuda.so.1` alone.
        library = work / "lib"
        library.mkdir()
        (library / "libcuda.so").symlink_to(driver)
        folders = [variables.get("LD_LIBRARY_PATH"), str(library)]
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, folders))
    return variables


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gpu_check", add_help=False, allow_abbrev=False)
    parser.add_argument("--device", choices=["host-gpu", "host-cpu"], default="host-gpu")
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("-h", "--help", action="store_true")
    return parser


def _unusable(reason: str) -> str:
    return f"the NVIDIA GPU cannot be used: {reason}; repair the driver, or {_REHEARSE}"


def _fail(message: str, code: int) -> int:
    print(f"gpu_check: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
