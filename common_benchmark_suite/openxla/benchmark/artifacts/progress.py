"""Progress, rate and remaining time of a transfer."""

import collections
import threading
import time
from collections.abc import Callable

import attrs

# Window for the rate: recent enough to show that a connection has become slow.
_WINDOW_S = 5.0
_INTERVAL_S = 0.2


@attrs.frozen(kw_only=True)
class Progress:
    """The state of a transfer.

    Attributes:
      done_bytes: bytes so far, including those that were present at the start.
      total_bytes: bytes in total.
      done_files: files so far.
      total_files: files in total.
      rate_bytes_per_s: rate over the last seconds, excluding data that was present.
      remaining_s: remaining time at that rate; None if nothing is moving.
    """

    done_bytes: int
    total_bytes: int
    done_files: int
    total_files: int
    rate_bytes_per_s: float
    remaining_s: float | None

    def __str__(self) -> str:
        left = "-" if self.remaining_s is None else f"{self.remaining_s:.0f} s"
        return (
            f"{self.done_files}/{self.total_files} files, "
            f"{human_bytes(self.done_bytes)} of {human_bytes(self.total_bytes)}, "
            f"{human_bytes(self.rate_bytes_per_s)}/s, {left} left"
        )


OnProgress = Callable[[Progress], None]


class Meter:
    """Counts bytes and files of several threads; calls a listener a few times per second."""

    def __init__(
        self, *, total_bytes: int, total_files: int, on_progress: OnProgress | None = None
    ) -> None:
        self._total_bytes, self._total_files = total_bytes, total_files
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._done_bytes = self._moved_bytes = self._done_files = 0
        now = time.monotonic()
        self._samples = collections.deque([(now, 0)])
        self._shown_at = now

    def moved(self, count: int) -> None:
        """Adds transferred bytes; a negative number subtracts bytes that proved bad."""
        with self._lock:
            self._done_bytes += count
            self._moved_bytes += max(0, count)
            self._show(force=False)

    def present(self, count: int) -> None:
        """Adds bytes that were present already."""
        with self._lock:
            self._done_bytes += count

    def finished_file(self) -> None:
        """Adds a file."""
        with self._lock:
            self._done_files += 1
            self._show(force=self._done_files == self._total_files)

    def _show(self, *, force: bool) -> None:
        if self._on_progress is None:
            return
        now = time.monotonic()
        if force or now - self._shown_at >= _INTERVAL_S:
            self._shown_at = now
            self._on_progress(self._progress(now))

    def _progress(self, now: float) -> Progress:
        self._samples.append((now, self._moved_bytes))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_S:
            self._samples.popleft()
        then, moved = self._samples[0]
        rate = (self._moved_bytes - moved) / (now - then) if now > then else 0.0
        left = max(0, self._total_bytes - self._done_bytes)
        return Progress(
            done_bytes=self._done_bytes,
            total_bytes=self._total_bytes,
            done_files=self._done_files,
            total_files=self._total_files,
            rate_bytes_per_s=rate,
            remaining_s=0.0 if not left else left / rate if rate else None,
        )


def human_bytes(count: float) -> str:
    """Returns a human-readable size, e.g. `1.5 GiB`."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} TiB"
