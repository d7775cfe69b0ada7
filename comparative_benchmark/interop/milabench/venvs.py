"""Environments of install groups, managed by uv if available, otherwise by pip."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

from comparative_benchmark.interop.milabench.placement import Placement, clean_environment
from openxla.benchmark.files import write_atomically

# Runs the scripts, and is imported by our modules in their environment.
ALWAYS = ("voir",)
_TOOLS = "pip-tools"
_PATIENCE_S = 600.0


class VenvError(RuntimeError):
    """An environment cannot be created; the message gives the reason."""


def make(venv: Path) -> None:
    """Creates an environment unless it exists.

    Raises:
      VenvError: it cannot be created.
    """
    if (venv / "bin" / "python").exists():
        return
    uv = shutil.which("uv")
    if uv:
        command = [uv, "venv", "--quiet", "--python", sys.executable, str(venv)]
    else:
        # Copying pip takes seconds, and our own pip can install into other environments.
        bare = ["--without-pip"] if _has_pip() else []
        command = [sys.executable, "-P", "-m", "venv", *bare, str(venv)]
    try:
        venv.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=_PATIENCE_S,
            env=installer_environment(),
        )
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(venv, ignore_errors=True)
        words = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        raise VenvError(f"cannot create {venv}: {words[-1] if words else error}") from error


def install_command(venv: Path, arguments: Sequence[str]) -> list[str]:
    """Returns the command that installs into an environment; arguments are those of pip."""
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
        make(tools)
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


def forget(placement: Placement) -> None:
    """Removes the environment of a benchmark's install group."""
    shutil.rmtree(placement.dirs["venv"], ignore_errors=True)


def _stamp(placement: Placement) -> Path:
    # Inside the environment, so that removing the environment also removes the stamp.
    return placement.dirs["venv"] / ".cbs-installed" / placement.bench.name


def _has_pip() -> bool:
    # Not `find_spec`, because setuptools hooks imports of pip.
    return bool(list(distributions(name="pip")))
