"""Runs install.py of model folders, each in a separate environment; ours is never changed.

An environment is named after the folder's content, so it is made once. It finds our packages after
its own: a folder computes with our PyTorch, and constraints keep pip from replacing it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import attrs
from filelock import FileLock

from comparative_benchmark.analysis.machine.other_processes import run_supervised
from comparative_benchmark.analysis.machine.worker_settings import for_worker
from comparative_benchmark.sources.torchbench.folders import Folder, digest, repository
from openxla.benchmark import files
from openxla.benchmark.installation import root_dir

_UTILS = Path(__file__).parent / "host_install"
_HOST = Path(__file__).parent / "host"
# Packages that are ours in all environments: a worker imports them before the folder.
PINNED = ("torch", "torchvision", "torchaudio", "torchtext", "numpy", "triton")
_PATIENCE_S = 1800
_LOG = "install.log"
_DONE = "installed"
_NETWORK = (
    "Failed to establish a new connection",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Network is unreachable",
    "Connection refused",
    "Could not resolve host",
    "ConnectionError",
    "URLError",
    "OfflineModeIsEnabled",
)


@attrs.define(kw_only=True)
class Installed:
    """The environments of folders.

    Attributes:
      packages: by a folder's path, the directory of packages that were installed for it.
      failures: by a folder's path, why it cannot be run.
      said: messages for the user.
    """

    packages: dict[Path, Path] = attrs.field(factory=dict)
    failures: dict[Path, str] = attrs.field(factory=dict)
    said: list[str] = attrs.field(factory=list)


def packages_of(folders: Sequence[Folder], *, install: bool) -> Installed:
    """Returns the environments of folders that have an install.py.

    Args:
      folders: the folders to run.
      install: whether to create missing environments; otherwise only existing ones are used.
    """
    installed = Installed()
    waiting = []
    for folder in folders:
        if not folder.installs or folder.problem:
            continue
        place = environment_of(folder)
        if install and not (place / _DONE).is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{place}.lock"):
                # Another process may have finished it meanwhile.
                done = (place / _DONE).is_file()
                reason = None if done else run_install(folder, place)
            if reason:
                installed.failures[folder.path] = reason
                continue
            if not done:
                installed.said.append(f"{folder.name}: ran install.py in the environment {place}")
        if (place / _DONE).is_file():
            installed.packages[folder.path] = site_packages(place)
        else:
            waiting.append(folder.name)
    if waiting:
        names = ", ".join(waiting[:5]) + (", ..." if len(waiting) > 5 else "")
        installed.said.append(f"install.py has not run for {names}; pass --install to run it")
    return installed


def environment_of(folder: Folder) -> Path:
    """Returns the path for a folder's environment.

    Its name depends on what determines the installed packages, not on data that install.py adds.
    """
    inputs = [folder.path / "install.py", *sorted(folder.path.glob("requirements*"))]
    named = "".join(path.read_text(errors="replace") for path in inputs if path.is_file())
    identity = f"{folder.name}\n{named}\n{sys.version}\n{_constraints()}"
    sha256 = hashlib.sha256(identity.encode(errors="replace")).hexdigest()
    return root_dir() / "torchbench" / f"{folder.name}-{sha256[:12]}"


def site_packages(place: Path) -> Path:
    """Returns the package directory of an environment."""
    return Path(sysconfig.get_path("purelib", "venv", vars={"base": str(place)}))


def run_install(folder: Folder, place: Path) -> str | None:
    """Makes an environment and runs install.py in it; returns the error, or None on success."""
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    venv.create(place, with_pip=False, symlinks=True)
    _show_ours(place)
    (place / "constraints.txt").write_text(_constraints(), encoding="utf-8")
    log = place / _LOG
    with log.open("wb") as output:
        code = run_supervised(
            [str(place / "bin" / "python"), "install.py"],
            env=_environment(place, folder),
            timeout_s=_PATIENCE_S,
            cwd=folder.path,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    if code == 0:
        files.write_atomically(place / _DONE, digest(folder.path) + "\n")
        return None
    text = log.read_text(encoding="utf-8", errors="replace")
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "no message")
    if code is None:
        return f"install.py took longer than {_PATIENCE_S} s; see {log}"
    kind = "network: " if any(word in text for word in _NETWORK) else ""
    return f"{kind}install.py failed with exit code {code}: {last.strip()[:200]}; see {log}"


def _show_ours(place: Path) -> None:
    """Lets an environment find our packages, after its own."""
    ours = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    lines = [f"import site; site.addsitedir({path!r})" for path in ours]
    (site_packages(place) / "ours.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _environment(place: Path, folder: Folder) -> dict[str, str]:
    variables = for_worker(os.environ)
    for name in ("PYTHONHOME", "VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER"):
        variables.pop(name, None)
    constraints = str(place / "constraints.txt")
    return {
        **variables,
        **{name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_"))},
        "PATH": os.pathsep.join([str(place / "bin"), variables.get("PATH", os.defpath)]),
        "VIRTUAL_ENV": str(place),
        "CBS_TORCHBENCH_REPO": str(repository(folder.path)),
        "PYTHONPATH": os.pathsep.join([str(_UTILS), str(_HOST)]),
        "PYTHONNOUSERSITE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PIP_CONSTRAINT": constraints,
        "UV_CONSTRAINT": constraints,
        "PIP_REQUIRE_VIRTUALENV": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_RETRIES": "1",
        "PIP_TIMEOUT": "10",
    }


def _constraints() -> str:
    """Returns pip constraints that pin our packages; local versions are on no index."""
    lines = []
    for name in PINNED:
        try:
            lines.append(f"{name}=={version(name)}")
        except PackageNotFoundError:
            continue
    return "".join(f"{line}\n" for line in lines)
