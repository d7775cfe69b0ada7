"""Phases of a trial in the worker: time and peak memory of each."""

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

from comparative_benchmark.engine.worker.protocol import Message

# Phases of a backend.
PHASES = ("import", "load", "h2d", "trace", "lower", "compile", "first_run", "execute", "d2h")

# Phases known only to sessions: start, generation of artifacts, verification and timing of
# generation, parts of a training step, fraction of compiled code, and time in a command before the
# first phase.
SESSION_PHASES = (
    *("start", "prepare", "preprocess", "reference", "second_reference"),
    *("measure", "outputs", "run_on", "fresh_runs", "profile"),
    *("verification_compile", "generation_compile", "generation", "step_parts", "update_check"),
    "compiled_shares",
)


# Bound before a model is imported, so that models cannot replace the clock in `time`.
_CLOCK = time.perf_counter_ns


@attrs.define
class PhaseRecord:
    """Time spent in a phase, and the peak memory of the process when the phase was last left."""

    ms: float = 0.0
    host_memory_peak_bytes: int | None = None


class PhaseClock:
    """Times phases and announces each, so that the session knows in which phase a worker died."""

    def __init__(self, announce: Callable[[Message], None]) -> None:
        self.records: dict[str, PhaseRecord] = {}
        self._announce = announce
        self._stack: list[str] = []
        self._is_whole = False

    @property
    def current(self) -> str | None:
        """The innermost open phase."""
        return self._stack[-1] if self._stack else None

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Times a phase; repeated entries add up.

        After an exception the phase stays `current`, so that it can be reported with the error.
        """
        if self._is_whole:
            yield
            return
        self._announce({"type": "phase", "phase": name})
        self._stack.append(name)
        start = _CLOCK()
        yield
        elapsed_ms = (_CLOCK() - start) / 1e6
        self._stack.pop()
        record = self.records.setdefault(name, PhaseRecord())
        record.ms += elapsed_ms
        record.host_memory_peak_bytes = peak_memory_bytes()
        if self._stack:
            self._announce({"type": "phase", "phase": self._stack[-1]})

    def abandon(self) -> None:
        """Leaves the phases that were ended by an exception."""
        self._stack.clear()

    @contextmanager
    def whole(self, name: str) -> Iterator[None]:
        """Times a phase and attributes all nested phases to it.

        Used for repeated work of a backend, which must not add to the phases of the first time.
        """
        with self(name):
            self._is_whole = True
            try:
                yield
            finally:
                self._is_whole = False


def peak_memory_bytes() -> int | None:
    """Returns the peak resident memory of this process, or None if unavailable.

    `VmHWM` of /proc/self/status: unlike `ru_maxrss`, it is not inherited across fork and exec.
    """
    return _status_bytes("VmHWM:")


def forget_peak_memory() -> bool:
    """Resets the peak to the current resident memory (Linux, proc(5): `clear_refs`).

    Returns whether this succeeded; some containers do not allow it.
    """
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def resident_memory_bytes() -> int | None:
    """Returns the current resident memory, or None if unavailable."""
    return _status_bytes("VmRSS:")


def give_back_memory() -> None:
    """Returns freed memory to the system; otherwise glibc keeps it for the next model."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _status_bytes(name: str) -> int | None:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return None
