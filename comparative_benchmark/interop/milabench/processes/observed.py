"""Events reported by one process of a benchmark: rates, losses, progress, devices."""

import json
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.backends import host_settings

# No milabench event is this long.
_LONGEST = 2**20
_SEQUENCE = re.compile(rb"\x1b\[([0-9:;<=>?]*)z")
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-9:;<=>?]*)?\Z")
_AS_HEX = bytes.maketrans(b":;<=>?", b"abcdef")

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")

TRAIN = "train"
# Further rates add no information and would fill the memory.
_MOST = 100_000
_LARGEST = 1e300
# Events with these task names come from milabench's monitors, not from measurements.
_EARLY_STOP = "early_stop"
_OWN_TASKS = (_EARLY_STOP, "main")


class EventLines:
    """Parses events from a stream of JSON lines.

    Attributes:
      garbage: number of lines that were not events.
    """

    def __init__(self) -> None:
        self.garbage = 0
        self._rest = b""
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yields the events completed by the next piece of the stream."""
        *lines, rest = (self._rest + data).split(b"\n")
        for line in lines:
            if self._skipping:
                # This is the end of a line that was too long.
                self._skipping = False
            elif line.strip() and (event := self._event(line)) is not None:
                yield event
        self._rest = rest
        if len(rest) > _LONGEST:
            self.garbage += not self._skipping
            self._rest, self._skipping = b"", True

    def close(self) -> None:
        """Counts an unfinished line as garbage."""
        self.garbage += bool(self._rest.strip())
        self._rest = b""

    def _event(self, line: bytes) -> dict[str, Any] | None:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict):
            return event
        self.garbage += 1
        return None


class SmuggledEvents:
    """Separates events in escape sequences from the rest of a program's output."""

    def __init__(self) -> None:
        self._lines = EventLines()
        self._pending = b""
        self._broken = 0

    @property
    def garbage(self) -> int:
        """Number of sequences and lines that were not events."""
        return self._broken + self._lines.garbage

    def feed(self, data: bytes) -> tuple[bytes, list[dict[str, Any]]]:
        """Returns the text and events in the next piece of the output."""
        if not self._pending and b"\x1b" not in data:
            return data, []
        whole = self._pending + data
        unfinished = _UNFINISHED.search(whole, max(0, whole.rfind(b"\x1b")))
        end = unfinished.start() if unfinished else len(whole)
        self._pending = whole[end:]
        if len(self._pending) > _LONGEST:
            self._broken += 1
            self._pending = b""
        events: list[dict[str, Any]] = []

        def take(match: re.Match[bytes]) -> bytes:
            try:
                smuggled = bytes.fromhex(match[1].translate(_AS_HEX).decode())
            except ValueError:
                self._broken += 1
                return b""
            events.extend(self._lines.feed(smuggled))
            return b""

        return _SEQUENCE.sub(take, whole[:end]), events

    def close(self) -> bytes:
        """Returns pending text that looked like the beginning of a sequence."""
        rest, self._pending = self._pending, b""
        if rest.startswith(b"\x1b["):
            self._broken += 1
            rest = b""
        self._lines.close()
        return rest


class ForeignCpu:
    """Measures the CPU time that other programs use, from its construction on."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cpus = host_settings.usable_cpus()
        self._started = (time.monotonic(), self._busy_s())

    def share(self, own_s: float) -> float | None:
        """Returns the share of CPU time used by other programs; None if it is unavailable.

        Args:
          own_s: CPU time of the measured program.
        """
        before, now = self._started, (time.monotonic(), self._busy_s())
        if before[1] is None or now[1] is None or now[0] <= before[0]:
            return None
        foreign_s = now[1] - before[1] - own_s
        return max(0.0, foreign_s / (now[0] - before[0]) / len(self._cpus))

    def _busy_s(self) -> float | None:
        """Returns the time in which our CPUs were busy or stolen."""
        try:
            text = (self._root / "proc" / "stat").read_text(encoding="ascii")
        except OSError:
            return None
        wanted = {f"cpu{number}" for number in self._cpus}
        total = 0
        for line in text.splitlines():
            name, *ticks = line.split()
            if name in wanted:
                user, nice, system, _, _, irq, softirq, steal = map(int, ticks[:8])
                total += user + nice + system + irq + softirq + steal
        return total * _TICK_S


@attrs.define(kw_only=True)
class Observed:
    """Data reported by one process, updated with each event.

    Attributes:
      rates: by task, in order.
      units: units of the rates, by task.
      losses: losses of the training, in order; beyond a limit, the last entry is overwritten.
      nan_loss: number of the first non-finite loss; None if all were finite.
      progress: last valid progress of the training.
      stop_asked: whether it asked to be stopped.
      wanted: number of rates that it announced, once it has observed them all.
      device_memory_mb: highest use of all devices together; None if not reported.
      device_use: mean load, from 0 to 1.
      oddities: counts of invalid data, by kind.
    """

    rates: dict[str, list[float]] = attrs.field(factory=dict)
    units: dict[str, str] = attrs.field(factory=dict)
    losses: list[float] = attrs.field(factory=list)
    loss_count: int = 0
    nan_loss: int | None = None
    progress: tuple[int, int | None] | None = None
    device_memory_mb: float | None = None
    device_loads: list[float] = attrs.field(factory=list)
    stop_asked: bool = False
    wanted: int | None = None
    oddities: Counter[str] = attrs.field(factory=Counter)
    events: int = 0

    def take(self, event: Mapping[str, Any]) -> None:
        """Processes an event; invalid data is counted as an oddity."""
        self.events += 1
        task = event.get("task")
        task = task if isinstance(task, str) else TRAIN
        if "rate" in event:
            self._rate(task, event)
        if "loss" in event and task not in _OWN_TASKS:
            self._loss(event["loss"])
        if "progress" in event and task not in _OWN_TASKS:
            self._progress(event["progress"])
        if "gpudata" in event:
            self._device(event["gpudata"])
        if event.get("$event") == "stop":
            self.stop_asked = True
        if task == _EARLY_STOP:
            self._early_stop(event.get("progress"))

    @property
    def task(self) -> str | None:
        """The measured task: training, or else the one with most rates."""
        if self.rates.get(TRAIN):
            return TRAIN
        return max(self.rates, key=lambda task: len(self.rates[task]), default=None)

    @property
    def measured(self) -> list[float]:
        """The rates of the measured task."""
        return self.rates[self.task] if self.task is not None else []

    @property
    def measured_units(self) -> str:
        """The units of those rates, e.g. `items/s`."""
        return self.units.get(self.task or "", "items/s")

    @property
    def is_complete(self) -> bool:
        """Whether it has reported all rates that it announced."""
        return self.wanted is not None and len(self.measured) >= self.wanted

    @property
    def device_use(self) -> float | None:
        """Mean load of the devices, from 0 to 1; None if not reported."""
        return math.fsum(self.device_loads) / len(self.device_loads) if self.device_loads else None

    def _rate(self, task: str, event: Mapping[str, Any]) -> None:
        value = _number(event["rate"])
        if value is None or not 0 < value < _LARGEST:
            self.oddities["rates that are not positive numbers"] += 1
            return
        units = event.get("units")
        units = units if isinstance(units, str) and 0 < len(units) < 40 else "items/s"
        if self.units.setdefault(task, units) != units:
            self.oddities["rates with different units from the first"] += 1
            return
        rates = self.rates.setdefault(task, [])
        if len(rates) < _MOST:
            rates.append(value)
        else:
            self.oddities[f"rates ignored after the first {_MOST}"] += 1

    def _loss(self, loss: Any) -> None:
        value = _number(loss)
        if value is None:
            self.oddities["losses that are not numbers"] += 1
            return
        self.loss_count += 1
        if not math.isfinite(value):
            if self.nan_loss is None:
                self.nan_loss = self.loss_count
        elif len(self.losses) < _MOST:
            self.losses.append(value)
        else:
            self.losses[-1] = value

    def _progress(self, progress: Any) -> None:
        if not isinstance(progress, list | tuple) or len(progress) != 2:
            self.oddities["progress values that are not pairs"] += 1
            return
        done, total = (value if type(value) is int else None for value in progress)
        if done is None or done < 0 or (total is not None and not 0 <= done <= total):
            self.oddities["progress values out of bounds"] += 1
            return
        # A new epoch restarts at 0.
        if done and self.progress and done < self.progress[0]:
            self.oddities["progress values that decreased"] += 1
        self.progress = (done, total)

    def _early_stop(self, progress: Any) -> None:
        if isinstance(progress, list | tuple) and len(progress) == 2:
            done, wanted = progress
            if type(done) is int and type(wanted) is int and 0 < wanted <= done:
                self.wanted = wanted

    def _device(self, data: Any) -> None:
        if not isinstance(data, Mapping) or not data:
            return
        used = 0.0
        for device in data.values():
            if not isinstance(device, Mapping):
                self.oddities["device data that is not a mapping"] += 1
                return
            memory = device.get("memory")
            value = _number(memory[0]) if isinstance(memory, list) and memory else None
            used += value if value is not None and 0 <= value < _LARGEST else 0.0
            load = _number(device.get("load"))
            if load is not None and 0 <= load <= 1 and len(self.device_loads) < _MOST:
                self.device_loads.append(load)
        self.device_memory_mb = max(used, self.device_memory_mb or 0.0)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf
