"""Rates of a loop's body, measured without waiting for the device in between."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from voir.phase import StopProgram

from .pushers import (
    LazyLossPusher,
    LazyMetricPusher,
    Push,
    file_push,
    give_push,
    is_running_with_voir,
    smuggle_push,
    sumggle_push,
)

# Scripts import all of these from here.
__all__ = [
    "CPUTimer",
    "HostEvent",
    "LazyLossPusher",
    "LazyMetricPusher",
    "ManualTimedIterator",
    "Push",
    "StopProgram",
    "TimedIterator",
    "default_device",
    "default_event",
    "earlystop_count",
    "file_push",
    "give_push",
    "is_running_with_voir",
    "smuggle_push",
    "sumggle_push",
]


def earlystop_count() -> int:
    """Returns how many observations are wanted."""
    counts = {"VOIR_EARLYSTOP_COUNT": 60, "VOIR_EARLYSTOP_SKIP": 10}
    return sum(int(os.environ.get(name, default)) for name, default in counts.items())


class CPUTimer:
    """Time of a `with` block, by the host's clock."""

    def __init__(self) -> None:
        self._start = self._end = 0.0

    def start(self) -> None:
        """Starts."""
        self._start = time.perf_counter()

    def end(self) -> None:
        """Ends."""
        self._end = time.perf_counter()

    def __enter__(self) -> "CPUTimer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def elapsed(self) -> float:
        """Returns seconds."""
        return self._end - self._start


class HostEvent:
    """Replaces a device's event if no device is present: milliseconds of the host's clock."""

    def __init__(self, **_: Any) -> None:
        self._time = 0.0

    def record(self, *_: Any) -> None:
        """Records the time."""
        self._time = time.perf_counter()

    def synchronize(self) -> None:
        """Returns at once."""

    def elapsed_time(self, end: "HostEvent") -> float:
        """Returns the milliseconds from this event to another."""
        return (end._time - self._time) * 1000


def default_event() -> Any:
    """Returns the class of events of the device that torch would use."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return torch.cuda.Event
    return HostEvent


def default_device() -> Any:
    """Returns the device that torch would use."""
    torch = sys.modules.get("torch")
    return torch.device("cuda" if torch.cuda.is_available() else "cpu") if torch else "cpu"


class TimedIterator:
    """Wraps a loader: each pass of the loop's body is timed from event to event.

    Events are read when the loop ends, or enough was observed: until then nothing waits for the
    device. With torch.distributed the first process alone reports, with the batches of all.
    """

    def __init__(
        self,
        loader: Any,
        event_fn: Any = None,
        rank: int = 0,
        push: "Push | None" = None,
        device: Any = None,
        earlystop: "int | None" = None,
        raise_stop_program: bool = False,
        batch_size_fn: "Callable[[Any], int] | None" = None,
        **_: Any,
    ) -> None:
        self.loader = loader
        self.event_fn = event_fn or default_event()
        self.device = device
        self.early_stop = earlystop_count() if earlystop is None else earlystop
        self.raise_stop_program = raise_stop_program
        self.batch_size_fn = batch_size_fn
        self.message_push = push or give_push()
        self.task = "train"
        self.total_obs = 0
        self.unit = 1000
        self.events: list[tuple[Any, Any, int]] = []
        self.rank: int | None = rank if _distributed() is not None else None

    @classmethod
    def with_sumggler(cls, *args: Any, **kwargs: Any) -> "TimedIterator":
        """Returns one that reports by escape sequences."""
        return cls(*args, **{**kwargs, "push": sumggle_push()})

    @classmethod
    def with_stdout(cls, *args: Any, **kwargs: Any) -> "TimedIterator":
        """Returns one that prints."""
        return cls(*args, **{**kwargs, "push": file_push()})

    @classmethod
    def with_give(cls, *args: Any, **kwargs: Any) -> "TimedIterator":
        """Returns one that gives to voir."""
        return cls(*args, **{**kwargs, "push": give_push()})

    def __getattr__(self, name: str) -> Any:
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader)

    def __enter__(self) -> "TimedIterator":
        return self

    def __exit__(self, *_: object) -> None:
        self._push()

    def __iter__(self) -> "Iterator[Any]":
        self.log_progress()
        return self.wrapped(iter(self.loader))

    def wrapped(self, iterator: "Iterator[Any]") -> "Iterator[Any]":
        """Yields what an iterator yields, and times what is done with it."""
        start = self._event()
        for data in iterator:
            yield data
            end = self._event()
            self.events.append((start, end, self.deduce_batch_size(data)))
            self.log_progress()
            if self.is_done():
                break
            # Work between two items is not part of the loop's body.
            start = self._event()
        self._push()
        if self.is_done() and self.raise_stop_program:
            raise StopProgram

    def _event(self) -> Any:
        event = self.event_fn(enable_timing=True)
        event.record()
        return event

    def deduce_batch_size(self, data: Any) -> int:
        """Returns how many items a batch has."""
        if self.batch_size_fn is not None:
            return self.batch_size_fn(data)
        if isinstance(data, dict):
            return len(next(iter(data.values())))
        try:
            return len(data[0]) if len(data) == 2 else len(data)
        except (TypeError, ValueError, IndexError, KeyError):
            return 0

    def progress(self) -> int:
        """Returns how much was observed."""
        return len(self.events) + self.total_obs

    def is_done(self) -> bool:
        """Returns whether there are enough observations."""
        return self.early_stop is not None and self.progress() >= self.early_stop

    def on_iterator_stop_iterator(self) -> None:
        """Called outside of timed code."""

    def batch_size(self, count: int) -> int:
        """Returns the items of all processes together."""
        distributed = _distributed()
        if distributed is None:
            return count
        torch = sys.modules["torch"]
        total = torch.tensor([count], dtype=torch.int64, device=self.device)
        distributed.reduce(total, dst=0)
        return int(total.item())

    def _push(self) -> None:
        self.on_iterator_stop_iterator()
        events, self.events = self.events, []
        for start, end, count in events:
            end.synchronize()
            elapsed_s = start.elapsed_time(end) / self.unit
            items = self.batch_size(count)
            if elapsed_s > 0 and items:
                self.log_rate(items / elapsed_s)
        self.total_obs += len(events)

    def log_rate(self, rate: float) -> None:
        """Reports a rate."""
        self.message(rate=rate, units="items/s", task=self.task)

    def log_progress(self) -> None:
        """Reports the progress of the observation."""
        if self.early_stop is not None:
            self.message(progress=(self.progress(), self.early_stop), task="early_stop")

    def message(self, **fields: Any) -> None:
        """Reports values, in the first process."""
        if not self.rank:
            self.message_push(**fields)


class ManualTimedIterator(TimedIterator):
    """Wraps a loader whose script reports the end of a step, e.g. after several batches."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.acc_batch_size = 0
        self.start: Any = None

    def wrapped(self, iterator: "Iterator[Any]") -> "Iterator[Any]":
        """Yields what an iterator yields, and adds up how much that was."""
        self.start = self._event()
        for data in iterator:
            # Before the loop's body, which may end a step.
            self.acc_batch_size += self.deduce_batch_size(data)
            yield data
            if self.is_done():
                break
        self._push()
        if self.is_done() and self.raise_stop_program:
            raise StopProgram

    def step(self, batch_override: "int | None" = None) -> None:
        """Ends a step; `batch_override` is its number of items, by default its batches' total."""
        end = self._event()
        count = self.acc_batch_size if batch_override is None else batch_override
        self.events.append((self.start or end, end, count))
        self.start, self.acc_batch_size = end, 0
        self.log_progress()


def _distributed() -> Any:
    """Returns torch.distributed if it is in use, without importing torch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available():
        return None
    return torch.distributed if torch.distributed.is_initialized() else None
