#!/usr/bin/env python3
"""Makes a directory of wheels for `./scripts/gpu_check.sh` on a machine without a network.

The folder contains the packages that the suite needs in addition to torch, jax and numpy, in the
versions of the locks, for one Python on x86-64 Linux. If IREE's runtime fits, it also contains tiny
models that IREE compiled for CUDA. `gpu_check.wheel_folder` describes and reads the folder.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gpu_check import wheel_folder
from gpu_check.wheel_folder import CORE, GROUPS, PROGRAMS, FolderError, Wheel

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
IREE = "iree"
PROGRAM_TYPES = ("vmfb_cuda", "irpa")
# Later ones are left out first.
MODELS = tuple(
    name
    for dtype, inputs in (("FP32", "F32"), ("FP16", "F16"), ("BF16", "BF16"))
    for name in (
        f"RESNET_TINY_{dtype}_JAX_3X32X32X{inputs}_BATCH1",
        f"BERT_TINY_{dtype}_JAX_32XI32_BATCH1",
    )
)
# pip needs each platform by name; it does not add the older, compatible ones.
_PLATFORMS = (
    *("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014"),
    *("manylinux_2_12", "manylinux2010", "manylinux1"),
)
_MB = 10**6


class WheelsError(Exception):
    """The folder cannot be made; the message contains the reason."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes the folder; returns 1 and prints the reason if that fails."""
    options = _parser().parse_args(arguments)
    output = options.output.absolute()
    try:
        _refuse_foreign(output)
        output.parent.mkdir(parents=True, exist_ok=True)
        # In the same parent folder, because a rename is atomic on one file system only.
        with tempfile.TemporaryDirectory(dir=output.parent, prefix=f"{output.name}-") as scratch:
            draft = Path(scratch) / "folder"
            draft.mkdir()
            make(draft, Path(scratch), options)
            if output.exists():
                output.rename(Path(scratch) / "old")
            draft.rename(output)
    except (WheelsError, FolderError, OSError) as error:
        print(f"gpu_wheels: {error}", file=sys.stderr)
        return 1
    print(f"{options.output}: {_size(output) / _MB:.1f} MB for Python {options.python}")
    return 0


def make(draft: Path, scratch: Path, options: argparse.Namespace) -> None:
    """Fills a folder.

    Raises:
      WheelsError: a package is not available, or the core does not fit.
      FolderError: a wheel is damaged.
    """
    index = Index(scratch / "wheels", options.python, pins=locked_versions() | dict(options.take))
    # It comes first, because it reads the others.
    index.fetch(["packaging"])
    if not wheel_folder.import_packaging(index.directory):
        raise WheelsError("cannot import the package packaging from its wheel")
    limit = int(options.limit_mb * _MB)
    groups: dict[str, list[str]] = {}
    taken: dict[str, Path] = {}
    for group in GROUPS:
        if group in options.without:
            continue
        wheels = index.closure(roots(group))
        more = {wheel.name: wheel.path for wheel in wheels if wheel.name not in taken}
        size, total = _size(*more.values()), _size(*taken.values())
        if total + size > limit:
            _say_left_out(group, size, total, limit)
            if group == CORE:
                raise WheelsError(f"the core does not fit into {options.limit_mb:g} MB")
            continue
        taken |= more
        groups[group] = [path.name for path in more.values()]
        print(f"{group:<13} {len(more):>3} wheels {size / _MB:6.1f} MB")
    for path in taken.values():
        shutil.copy(path, draft)
    programs = options.programs and IREE in groups
    if programs:
        programs = add_programs(draft, scratch, limit)
    contents = {"python": options.python, "groups": groups, "programs": programs}
    (draft / wheel_folder.CONTENTS).write_text(json.dumps(contents, indent=2), encoding="utf-8")


def roots(group: str) -> list[str]:
    """Returns the names of the packages that a group requires directly."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = GROUPS[group] or project["dependencies"]
    names = [canonicalize_name(Requirement(text).name) for text in texts]
    return [name for name in names if not wheel_folder.belongs_to_machine(name)]


class Index:
    """The package index, restricted to the versions in the locks.

    Args:
      directory: new folder for the wheels.
      python: version of the target machine.
      pins: versions by name.
    """

    def __init__(self, directory: Path, python: str, pins: Mapping[str, str]) -> None:
        self.directory = directory
        directory.mkdir()
        self._python = python
        self._pins = pins
        self._wheels: dict[str, Wheel] = {}
        # Variables of markers that may differ from this interpreter.
        self._around = {
            "python_version": python,
            "python_full_version": f"{python}.0",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "os_name": "posix",
            "platform_machine": "x86_64",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
        }

    def closure(self, names: Iterable[str]) -> list[Wheel]:
        """Returns the wheels of packages and of their requirements, without the machine's packages.

        Raises:
          WheelsError: one is not available.
          FolderError: one is damaged.
        """
        from packaging.utils import canonicalize_name

        found: dict[str, Wheel] = {}
        waiting = list(names)
        while waiting:
            self.fetch(name for name in waiting if name not in self._wheels)
            wheels = {path: wheel_folder.read_wheel(path) for path in self.directory.glob("*.whl")}
            self._wheels = {wheel.name: wheel for wheel in wheels.values()}
            found |= {name: self._wheels[name] for name in waiting}
            needed = [
                canonicalize_name(requirement.name)
                for name in waiting
                for requirement in wheel_folder.requirements_of(found[name], self._around)
            ]
            waiting = [
                name
                for name in dict.fromkeys(needed)
                if name not in found and not wheel_folder.belongs_to_machine(name)
            ]
        return list(found.values())

    def fetch(self, names: Iterable[str]) -> None:
        """Downloads wheels of packages into the directory.

        Raises:
          WheelsError: one is not locked, or pip cannot get it.
        """
        wanted = list(names)
        if unlocked := [name for name in wanted if name not in self._pins]:
            raise WheelsError(f"no lock file contains {', '.join(unlocked)}")
        if not wanted:
            return
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary=:all:"]
        command += ["--python-version", self._python, "--implementation", "cp"]
        for platform in _PLATFORMS:
            command += ["--platform", f"{platform}_x86_64"]
        command += ["--dest", str(self.directory)]
        command += [f"{name}=={self._pins[name]}" for name in wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            why = done.stderr.strip().splitlines() or ["no message"]
            raise WheelsError(f"pip cannot download {', '.join(wanted)}: {why[-1]}")


def locked_versions() -> dict[str, str]:
    """Returns the versions in the locks of the checkout, which agree with each other."""
    locks = [*ROOT.glob("comparative_benchmark/*/requirements.txt"), ROOT / "requirements/dev.txt"]
    lines = (line for lock in locks for line in lock.read_text(encoding="utf-8").splitlines())
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def add_programs(draft: Path, scratch: Path, limit: int) -> bool:
    """Compiles tiny models for CUDA and publishes the ones that fit; returns whether any do.

    Raises:
      WheelsError: the exporter or the store fails.
    """
    made = scratch / "models"
    arguments = ["-name", "|".join(MODELS), "--types", ",".join(PROGRAM_TYPES), "-o", str(made)]
    code, said = _cbs("generate", *arguments, "--root-dir", str(scratch / "root"))
    if not made.is_dir():
        raise WheelsError(f"cannot compile programs for CUDA (exit code {code}): {said}")
    total, before = _size(draft), _size(draft)
    kept = []
    for name in MODELS:
        size = _size(made / name)
        failure = _failure(made / name)
        if failure is None and total + size <= limit:
            total += size
            kept.append(name)
            continue
        shutil.rmtree(made / name, ignore_errors=True)
        if failure:
            print(f"{PROGRAMS:<13} {name} omitted: {failure}")
        else:
            _say_left_out(f"{PROGRAMS:<13} {name}", size, total, limit)
    if not kept:
        return False
    code, said = _cbs("publish", str(made), str(draft / PROGRAMS))
    if code:
        raise WheelsError(f"cannot publish the programs: {said}")
    print(f"{PROGRAMS:<13} {len(kept):>3} models {(total - before) / _MB:6.1f} MB")
    return True


def _failure(model: Path) -> str | None:
    """Returns why a model has no program, from its manifest; None if it has one."""
    path = model / "manifest.json"
    if not path.is_file():
        return "nothing was exported"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    if set(PROGRAM_TYPES) <= {file["artifact_type"] for file in manifest["files"]}:
        return None
    reasons = "; ".join(failure["reason"] for failure in manifest["failures"])
    return " ".join(reasons.split()) or "the manifest lists no program"


def _cbs(command: str, *arguments: str) -> tuple[int, str]:
    """Runs `cbs artifacts`; returns exit code and last line."""
    module = [sys.executable, "-P", "-m", "comparative_benchmark", "artifacts", command]
    done = subprocess.run([*module, *arguments], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode, lines[-1] if lines else ""


def _refuse_foreign(output: Path) -> None:
    """Prevents other folders from being replaced.

    Raises:
      WheelsError: the path exists and is not a wheel folder.
    """
    if output.exists() and not (output / wheel_folder.CONTENTS).is_file():
        raise WheelsError(
            f"{output} exists and is not a wheel folder; choose another with --output"
        )


def _say_left_out(what: str, size: int, total: int, limit: int) -> None:
    print(
        f"{what:<13} omitted: {size / _MB:.1f} MB in addition to {total / _MB:.1f} MB exceeds the "
        f"limit of {limit / _MB:g} MB; include it with --limit-mb {-(-(size + total) // _MB)}, or "
        "omit what the machine has (--without torch-models if transformers is installed)"
    )


def _size(*paths: Path) -> int:
    """Returns the bytes of files, and of all files in folders."""
    files = (file for path in paths for file in (path.rglob("*") if path.is_dir() else [path]))
    return sum(file.stat().st_size for file in files if file.is_file())


def _python(text: str) -> str:
    if text not in PYTHONS:
        raise argparse.ArgumentTypeError(
            f"unsupported Python version {text!r}; choices are {', '.join(PYTHONS)}"
        )
    return text


def _version(text: str) -> tuple[str, str]:
    name, separator, version = text.partition("==")
    if not separator or not name or not version:
        raise argparse.ArgumentTypeError(f"expected NAME==VERSION, got {text!r}")
    return name.strip().lower().replace("_", "-"), version.strip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpu_wheels", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add(
        "--python",
        type=_python,
        required=True,
        help=f"Python version on the machine: {', '.join(PYTHONS)}",
    )
    add(
        "--output",
        type=Path,
        default=ROOT / ".gpu-wheels",
        help="directory to write to (default: .gpu-wheels)",
    )
    add(
        "--limit-mb",
        type=float,
        default=40,
        help="maximum size of the directory in MB (default: %(default)g)",
    )
    add(
        "--without",
        action="append",
        default=[],
        choices=[group for group in GROUPS if group != CORE],
        help="group of packages to omit, e.g. because the machine has it; may be repeated",
    )
    add(
        "--take",
        action="append",
        default=[],
        type=_version,
        metavar="NAME==VERSION",
        help="version to use instead of the locked one, e.g. a flax version for the machine's jax",
    )
    add(
        "--no-programs",
        dest="programs",
        action="store_false",
        help="do not compile models for CUDA with IREE",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
