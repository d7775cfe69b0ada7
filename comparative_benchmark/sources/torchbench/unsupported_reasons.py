"""Reasons why a folder cannot run here, through no fault of the folder or the suite.

A missing package, data file, device or network ends a trial as `unsupported`; any other error of a
folder is its failure. Workers are kept off the network, so that folders that need it fail at once
with a reason.
"""

import ipaddress
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comparative_benchmark.analysis.machine import worker_settings
from comparative_benchmark.backends.missing_packages import (
    Lack,
    chain,
    importer_of,
    lack_of,
    requirements_beside,
)
from comparative_benchmark.sources.torchbench.folders import repository

# Set it to 1 to let folders download while they are loaded.
ALLOWED_VARIABLE = "CBS_FOREIGN_NETWORK"
# Programs that folders start for downloads.
_DOWNLOADERS = ("curl", "wget", "git", "gdown", "pip", "aws", "kaggle")

_BASE = "torchbenchmark"
# PyTorch's messages if it was built without CUDA, or finds no GPU.
_NO_GPU = (
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "deserialize object on a CUDA device but torch.cuda.is_available() is False",
)


class NetworkRefusedError(ConnectionRefusedError):
    """A folder tried to reach another machine."""


class NetworkGuard:
    """Refuses connections to anything but this machine; remembers refused ones."""

    def __init__(self) -> None:
        self.refused: list[str] = []

    def install(self) -> None:
        """Guards this process for good, and its child processes through proxy variables."""
        if os.environ.get(ALLOWED_VARIABLE) == "1":
            return
        os.environ.update(worker_settings.OFFLINE_VARIABLES)
        for name in ("connect", "connect_ex"):
            setattr(socket.socket, name, self._of_socket(getattr(socket.socket, name)))
        socket.getaddrinfo = self._of_lookup(socket.getaddrinfo)

    def reason(self, error: BaseException) -> str | None:
        """Returns the reason if missing network access caused an error; None if it did not."""
        for one in chain(error, implicit=True):
            named = any(
                kind.__name__ in worker_settings.OFFLINE_ERRORS for kind in type(one).__mro__
            )
            if named or worker_settings.is_offline_error(str(one)):
                return self._sentence(f"{type(one).__name__}: {one}")
            command = getattr(one, "cmd", None)
            words = command.split() if isinstance(command, str) else list(command or ())
            if words and Path(str(words[0])).name in _DOWNLOADERS:
                return self._sentence(f"{' '.join(map(str, words))[:120]} failed")
        return self._sentence(f"{type(error).__name__}: {error}") if self.refused else None

    def _sentence(self, target: str) -> str:
        where = f" to {self.refused[0]}" if self.refused else ""
        first = (target.strip().splitlines() or [""])[0][:300]
        return (
            f"network: the folder needs a connection{where}, but workers are offline ({first}); "
            f"download the data in install.py (--install), or set {ALLOWED_VARIABLE}=1"
        )

    def _check(self, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) and address else None
        if not isinstance(host, str | bytes) or _is_here(host):
            return
        name = host.decode() if isinstance(host, bytes) else host
        self.refused.append(name)
        raise NetworkRefusedError(f"workers have no network access: cannot connect to {name}")

    def _of_socket(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(this: socket.socket, address: Any) -> Any:
            self._check(address)
            return real(this, address)

        return guarded

    def _of_lookup(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def guarded(host: Any, *rest: Any, **named: Any) -> Any:
            self._check((host,))
            return real(host, *rest, **named)

        return guarded


def _is_here(host: str | bytes) -> bool:
    name = host.decode(errors="replace") if isinstance(host, bytes) else host
    if name in ("", "localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def reason(error: BaseException, folder: Path, packages: Path | None) -> str | None:
    """Returns why an error excuses a folder; None if it does not.

    Args:
      error: the error that the folder raised.
      folder: the folder's path.
      packages: directory of packages that its install.py installed; None if it has not run.
    """
    for one in chain(error, implicit=False):
        if (lack := lack_of(one)) is not None:
            return _missing(lack, one, folder, packages)
        if isinstance(one, FileNotFoundError) and (file := _file(one, folder)):
            return file
        if isinstance(one, AssertionError | RuntimeError) and "install.py" in str(one):
            return f"data: {_line(one)}; pass --install to run install.py"
        if isinstance(one, TypeError) and "must derive from BaseException" in str(one):
            return f"{folder.name} raises something other than an error: {_line(one)}"
        if any(words in str(one) for words in _NO_GPU):
            return f"{folder.name} needs an NVIDIA GPU: {_line(one)}"
    return None


def _missing(lack: Lack, error: BaseException, folder: Path, packages: Path | None) -> str | None:
    if lack.package == _BASE:
        return _of_base(lack.module, folder) if isinstance(error, ImportError) else None
    own = folder / lack.package
    if any(own.glob("*.py")) or own.with_suffix(".py").is_file():
        return None  # the folder's own module, which it must import relatively
    remedy = lack.remedy
    listed = requirements_beside(folder, folder, lack)
    if (folder / "install.py").is_file() and packages is None and not lack.belongs_to_pytorch:
        remedy = "pass --install to run the folder's install.py in a separate environment"
    return lack.sentence(
        requirements=f"{folder.name}/{listed.name}" if listed else None,
        importer=importer_of(error, _BASE) or folder.name,
        remedy=remedy,
    )


def _of_base(name: str, folder: Path) -> str | None:
    """Returns the missing part of TorchBench; None if it belongs to the folder itself."""
    kind, _, inside = name.removeprefix(f"{_BASE}.").partition(".")
    if kind not in ("models", "canary_models"):
        return f"{folder.name} imports something from {name} that cbs does not provide"
    sibling = inside.partition(".")[0]
    if sibling == folder.name:
        return None
    return f"{folder.name} imports code from {sibling}, but no folder {sibling} is next to it"


def _file(error: FileNotFoundError, folder: Path) -> str | None:
    """Returns which data are missing, if they are not part of the folder."""
    if not isinstance(error.filename, str | bytes) or not error.filename:
        return None
    path = Path(error.filename if isinstance(error.filename, str) else error.filename.decode())
    elsewhere = path.is_absolute() and not path.is_relative_to(folder)
    beside = elsewhere and path.is_relative_to(repository(folder))
    fetched = ".data" in path.parts
    if not (beside or fetched or (folder / "install.py").is_file()):
        return None
    return f"data: {path} does not exist; the folder's install.py may download it (--install)"


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
