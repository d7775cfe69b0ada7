"""Keeps a worker off the network, so that folders that need it fail at once with a reason."""

import ipaddress
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comparative_benchmark.analysis.machine import worker_settings
from comparative_benchmark.backends.missing_packages import chain

# Set it to 1 to let folders download while they are loaded.
ALLOWED_VARIABLE = "CBS_FOREIGN_NETWORK"
# Programs that folders start for downloads.
_DOWNLOADERS = ("curl", "wget", "git", "gdown", "pip", "aws", "kaggle")


class NetworkRefusedError(ConnectionRefusedError):
    """A folder tried to reach another machine."""


class Guard:
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
        """Returns the reason if an error is due to lack of network access; None if it is not."""
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

    def _sentence(self, what: str) -> str:
        where = f" to {self.refused[0]}" if self.refused else ""
        first = (what.strip().splitlines() or [""])[0][:300]
        return (
            f"network: the folder needs a connection{where}, but workers have none ({first}); "
            f"download its data in install.py (--install), or set {ALLOWED_VARIABLE}=1"
        )

    def _check(self, address: Any) -> None:
        host = address[0] if isinstance(address, tuple) and address else None
        if not isinstance(host, str | bytes) or _is_here(host):
            return
        name = host.decode() if isinstance(host, bytes) else host
        self.refused.append(name)
        raise NetworkRefusedError(f"workers cannot connect to other machines: {name}")

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
