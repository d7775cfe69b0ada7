"""Starts the GPU check on a bare machine: finds the GPU, then what the check itself needs.

    python -P -m gpu_check.bootstrap [--device D] [--wheels DIR] [more]
    python -P -m gpu_check.bootstrap [...] --exec ARGUMENTS-OF-PYTHON

Runs before any dependency is there, so it and what it imports at its top are standard library. It
replaces itself by `python -m gpu_check`, or runs Python with the arguments
after `--exec`, in an environment whose PYTHONPATH starts with

1. a temporary folder of what is missing or too old here, out of the wheel folder, and of metadata
   that make the checkout look installed (entry points, version);
2. the checkout.

Nothing is installed, and nothing is written into the checkout. Exit codes: 3 without a usable GPU,
1 where the check cannot start, each with one line.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from gpu_check import nvidia_driver, wheel_folder
from gpu_check.wheel_folder import FolderError, IncompleteError

CHECKOUT = Path(__file__).resolve().parents[2]
WHEELS_VARIABLE = "CBS_GPU_WHEELS"
BOOTSTRAP_VARIABLE = "CBS_GPU_CHECK_BOOTSTRAP"
WORK_VARIABLE = "CBS_GPU_CHECK_WORK"
EXIT_FAILED, EXIT_NO_GPU = 1, 3

_FRAMEWORKS = ("torch", "jax")
_EXEC = "--exec"
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


class SetUpError(Exception):
    """The check cannot start; the message is one line that says what to do."""


@dataclass(kw_only=True)
class SetUp:
    """What was made for the check: `bootstrap.json`.

    Attributes:
      python: the interpreter.
      site: the temporary folder of packages.
      wheels: the wheel folder, if there is one.
      installed_from_wheels: versions by name.
      missing_groups: reasons by group of `wheel_folder.GROUPS`.
    """

    python: str
    site: str
    wheels: str | None
    installed_from_wheels: dict[str, str] = field(default_factory=dict)
    missing_groups: dict[str, str] = field(default_factory=dict)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Exits with 1: 2 says that an output was wrong."""
        self.exit(EXIT_FAILED, f"{self.prog}: {message}\n")


def main(arguments: Sequence[str]) -> int:
    """Replaces this process by the check, or returns an exit code."""
    before, after = _split(arguments)
    options, more = _parser().parse_known_args(before)
    if options.device != "host-cpu" and not options.help and (why := nvidia_driver.problem()):
        return _complain(why, EXIT_NO_GPU)
    work = Path(tempfile.mkdtemp(prefix="cbs-gpu-check-"))
    try:
        wheels = find_wheels(options.wheels)
        environment = environment_of(work, set_up(work, wheels))
        if after is not None:
            return subprocess.run(
                [sys.executable, "-P", *after], env=environment, check=False
            ).returncode
        command = [sys.executable, "-P", "-m", "gpu_check"]
        command += ["--device", options.device, *(["--wheels", str(wheels)] if wheels else [])]
        command += [*(["--help"] if options.help else []), *more]
        # Only the check can remove the folder, at its end: nothing below runs then.
        os.execve(sys.executable, command, environment)  # noqa: S606  # no shell is wanted
    except SetUpError as error:
        return _complain(str(error), EXIT_FAILED)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def find_wheels(named: Path | None) -> Path | None:
    """Returns the wheel folder: the named one, `$CBS_GPU_WHEELS`, or `.gpu-wheels` if it exists.

    Raises:
      SetUpError: the folder that is meant does not exist.
    """
    if named is None and (variable := os.environ.get(WHEELS_VARIABLE)):
        named = Path(variable)
    if named is None:
        default = CHECKOUT / ".gpu-wheels"
        return default if default.is_dir() else None
    if not named.is_dir():
        raise SetUpError(
            f"the wheel folder {named} does not exist; create it with "
            f"`./scripts/gpu_wheels.sh --python {_PYTHON} --output {named}`"
        )
    return named.absolute()


def set_up(work: Path, wheels: Path | None) -> SetUp:
    """Makes the temporary folder of packages, and writes `bootstrap.json`.

    Raises:
      SetUpError: torch and jax are both missing, or something that all of the check needs.
    """
    if not any(map(importlib.util.find_spec, _FRAMEWORKS)):
        raise SetUpError(
            f"{sys.executable} has neither torch nor jax; set PYTHON to a Python with one of them"
        )
    site = work / "site"
    site.mkdir()
    made = SetUp(python=sys.executable, site=str(site), wheels=str(wheels) if wheels else None)
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    _complete(made, project["dependencies"], wheels)
    write_metadata(project, site)
    (work / "bootstrap.json").write_text(json.dumps(asdict(made), indent=2), encoding="utf-8")
    return made


def _complete(made: SetUp, core: Sequence[str], wheels: Path | None) -> None:
    """Unpacks what is missing or too old, group by group.

    Raises:
      SetUpError: the core is not complete.
    """
    make = f"`./scripts/gpu_wheels.sh --python {_PYTHON}`"
    if not wheel_folder.import_packaging(wheels):
        raise SetUpError(
            f"packages of the suite are missing ({', '.join(core)}); run {make} on a machine with "
            "a package index, and pass the folder with --wheels"
        )
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
                wheel_folder.unpack(wheel, Path(made.site))
        except (IncompleteError, FolderError) as error:
            if group == wheel_folder.CORE:
                place = f"Python {_PYTHON} and {wheels}" if wheels else f"Python {_PYTHON}"
                raise SetUpError(
                    f"packages are missing from {place}: {error}; create a wheel "
                    f"folder with {make}, and pass it with --wheels"
                ) from error
            made.missing_groups[group] = str(error)
            continue
        found = {wheel.name: wheel.version for wheel in chosen}
        installed |= found
        made.installed_from_wheels |= found


def write_metadata(project: Mapping[str, Any], site: Path) -> None:
    """Makes the checkout look installed: backends are found by entry points, versions by metadata.

    It comes first on the path, where it hides an installed suite: nothing is found twice.

    Args:
      project: the table `project` of pyproject.toml.
      site: where the `.dist-info` folder goes.
    """
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    extras = project["optional-dependencies"]
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    for extra, requirements in extras.items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f'Requires-Dist: {needed}; extra == "{extra}"' for needed in requirements]
    (info / "METADATA").write_text("\n".join([*lines, ""]), encoding="utf-8")
    groups = {"console_scripts": project["scripts"], **project["entry-points"]}
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items()), ""]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


def environment_of(work: Path, made: SetUp) -> dict[str, str]:
    """Returns the variables of the check."""
    folders = (CHECKOUT, CHECKOUT / "common_benchmark_suite", CHECKOUT / "scripts")
    roots = [made.site, *map(str, folders)]
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*roots, *(p for p in given if p and p not in roots)]),
        # Each process would compile the suite and the unpacked packages again, else.
        "PYTHONPYCACHEPREFIX": str(work / "pycache"),
        WORK_VARIABLE: str(work),
        BOOTSTRAP_VARIABLE: str(work / "bootstrap.json"),
    }
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    if library := nvidia_driver.loaded_library():
        variables["LD_LIBRARY_PATH"] = _with_plain_name(library, work / "lib")
    return variables


def _with_plain_name(library: Path, folder: Path) -> str:
    """Returns a search path on which the driver is called `libcuda.so`, as IREE looks for it.

    Where only the runtime of CUDA is installed there is no such name, but `libcuda.so.1` alone.
    """
    folder.mkdir()
    (folder / "libcuda.so").symlink_to(library)
    given = os.environ.get("LD_LIBRARY_PATH")
    return os.pathsep.join([*([given] if given else []), str(folder)])


def _split(arguments: Sequence[str]) -> tuple[Sequence[str], Sequence[str] | None]:
    """Returns the arguments before `--exec`, and those after it if it is there."""
    if _EXEC not in arguments:
        return arguments, None
    at = arguments.index(_EXEC)
    return arguments[:at], arguments[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="gpu_check", add_help=False, allow_abbrev=False)
    parser.add_argument("--device", choices=["host-gpu", "host-cpu"], default="host-gpu")
    parser.add_argument("--wheels", type=Path)
    parser.add_argument("-h", "--help", action="store_true")
    return parser


def _complain(message: str, code: int) -> int:
    print(f"gpu_check: {' '.join(message.split())}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
