"""Reports on devices and the process while a script runs, through voir or the output."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from voir.instruments.cpu import cpu_monitor, process_monitor
from voir.instruments.gpu import gpu_monitor as devices
from voir.instruments.gpu import select_backend
from voir.instruments.io import io_monitor
from voir.instruments.monitor import monitor
from voir.instruments.network import network_monitor
from voir.smuggle import SmuggleWriter
from voir.tools import instrument_definition

from .pushers import write_line

_PATTERNS = (
    *("value", "progress", "rate", "units", "loss", "time", "gpudata", "memory_peak"),
    *("cpudata", "process", "iodata", "netdata"),
)


def get_rank() -> int:
    """Returns this process's rank under torchrun; -1 without torchrun."""
    try:
        return int(os.environ.get("RANK", "-1"))
    except ValueError:
        return -1


@instrument_definition  # type: ignore[untyped-decorator]
def monitor_monogpu(ov: Any, poll_interval: float = 1, arch: Any = None) -> Any:
    """Reports on the devices."""
    return monitor(ov, poll_interval, lambda: select_backend(arch, force=True), gpudata=devices())


@instrument_definition  # type: ignore[untyped-decorator]
def monitor_process_monogpu(ov: Any, poll_interval: float = 3, arch: Any = None) -> Any:
    """Reports on this process."""
    return monitor(ov, poll_interval, process=process_monitor(os.getpid()))


@instrument_definition  # type: ignore[untyped-decorator]
def monitor_node(ov: Any, poll_interval: float = 1, arch: Any = None) -> Any:
    """Reports on the machine."""
    return monitor(
        ov,
        poll_interval,
        lambda: select_backend(arch, force=True),
        gpudata=devices(),
        iodata=io_monitor(),
        netdata=network_monitor(),
        cpudata=cpu_monitor(),
    )


class _Monitor:
    """A thread that reports the return values of functions at an interval."""

    def __init__(self, interval_s: float, log: Any, sources: "dict[str, Any]") -> None:
        self._interval_s, self._log, self._sources = interval_s, log, sources
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def start(self) -> None:
        """Starts."""
        self._thread.start()

    def stop(self) -> None:
        """Stops, and waits for that."""
        self._stopped.set()
        self._thread.join(timeout=self._interval_s)

    def _report(self) -> None:
        while not self._stopped.is_set():
            now = time.time()
            for name, source in self._sources.items():
                # An unresponsive device must not end the script.
                with contextlib.suppress(Exception):
                    self._log({"task": "main", "time": now, name: source()})
            self._stopped.wait(self._interval_s)


def _smuggling(monogpu: bool, poll_interval: float) -> "tuple[Callable[[Any], None], _Monitor]":
    writer = SmuggleWriter(sys.stdout)

    def log(data: Any) -> None:
        # At the end of a script its output may be closed already.
        with contextlib.suppress(ValueError):
            write_line(data, writer)

    select_backend(None, force=True)
    sources: dict[str, Any] = {"gpudata": devices()}
    # Not the process: voir looks at it, and at each of its children, for a second.
    if not monogpu:
        sources |= {"iodata": io_monitor(), "netdata": network_monitor(), "cpudata": cpu_monitor()}
    return log, _Monitor(poll_interval, log, sources)


@contextlib.contextmanager
def smuggle_monitor(
    poll_interval: float = 10, *_: Any, monogpu: bool = True, enabled: bool = True, **__: Any
) -> "Iterator[Any]":
    """Reports through the output inside a `with` block; yields a function that reports more."""
    if not enabled:
        yield None
        return
    log, monitor = _smuggling(monogpu, poll_interval)
    monitor.start()
    try:
        yield log
    finally:
        monitor.stop()


def monogpu_monitor(*args: Any, **kwargs: Any) -> Any:
    """Reports on devices."""
    return smuggle_monitor(*args, monogpu=True, **kwargs)


def multigpu_monitor(*args: Any, **kwargs: Any) -> Any:
    """Reports on the machine."""
    return smuggle_monitor(*args, monogpu=False, **kwargs)


def bench_monitor(*args: Any, **kwargs: Any) -> Any:
    """Reports on devices; among several processes, only the first does."""
    rank = get_rank()
    kwargs["enabled"] = rank <= 0 and kwargs.get("enabled", True)
    return smuggle_monitor(*args, monogpu=rank == -1, **kwargs)


def setupvoir(monogpu: bool = True, enabled: bool = True, interval: float = 3) -> Any:
    """Returns a function that reports, and the monitor of the devices, which the caller stops."""
    log, monitor = _smuggling(monogpu, interval)
    if enabled:
        monitor.start()
    return log, monitor


def milabench_sys_monitor(monogpu: bool = False) -> Any:
    """Returns what `setupvoir` does."""
    return setupvoir(monogpu)


def log_patterns() -> "tuple[str, ...]":
    """Returns the names of all values that are reported."""
    return _PATTERNS


def voirfile_monitor(ov: Any, options: Any) -> None:
    """Requires the instruments that the options of a voirfile ask for."""
    from voir.instruments import dash, early_stop, log

    rank = get_rank()
    if getattr(options, "dash", False):
        ov.require(dash)
    needed = [log(*_PATTERNS, context="task")]
    if rank <= 0:
        needed.append(early_stop(n=options.stop, key="rate", task="train", signal="stop"))
    poll = getattr(options, "gpu_poll", 3)
    if rank == -1:
        needed += [monitor_monogpu(poll_interval=poll), monitor_process_monogpu(poll_interval=poll)]
    elif rank == 0:
        needed.append(monitor_node(poll_interval=poll))
    ov.require(*needed)
