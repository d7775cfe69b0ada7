"""Channels on which scripts report rates and losses: voir, or their output."""

import json
import sys
from collections.abc import Callable
from typing import Any

from voir.helpers import current_overseer
from voir.smuggle import SmuggleWriter

Push = Callable[..., Any]


def write_line(fields: Any, file: Any) -> None:
    """Writes a line of JSON in one call, so that other threads cannot write into it."""
    file.write(json.dumps(fields) + "\n")


def file_push(file: Any = None) -> Push:
    """Returns a function that prints its arguments as JSON."""

    def message(**fields: Any) -> None:
        fields.setdefault("task", "train")
        write_line(fields, file or sys.stdout)

    return message


def sumggle_push() -> Push:
    """Returns a function that hides its arguments in escape sequences of the output."""
    return file_push(SmuggleWriter(sys.stdout))


smuggle_push = sumggle_push


def is_running_with_voir() -> bool:
    """Returns whether voir runs the script."""
    return current_overseer.get() is not None


def give_push() -> Push:
    """Returns what gives to voir; without voir, what prints."""
    overseer = current_overseer.get()
    return overseer.give if overseer is not None else file_push()


class LazyMetricPusher:
    """Delays values on the device until the script waits for the device anyway."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.delayed: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def append(self, *args: Any, **kwargs: Any) -> None:
        """Keeps values."""
        self.delayed.append((args, kwargs))

    def record(self, *args: Any, **kwargs: Any) -> None:
        """Keeps values, without a wait."""
        self.append(*args, **kwargs)

    def materialize(self, *args: Any, **kwargs: Any) -> Any:
        """Returns what is pushed for values; may wait for the device."""
        return kwargs

    def push(self, pusher: Push) -> None:
        """Pushes all delayed values."""
        delayed, self.delayed = self.delayed, []
        for args, kwargs in delayed:
            pusher(**self.materialize(*args, **kwargs))


class LazyLossPusher(LazyMetricPusher):
    """Keeps losses as tensors."""

    def record(self, loss: Any) -> None:
        """Keeps a loss."""
        self.append(loss.detach() if hasattr(loss, "detach") else loss)

    def materialize(self, loss: Any) -> Any:
        """Returns a loss as a number."""
        value = loss.item() if hasattr(loss, "item") else float(loss)
        return {"loss": value, "task": self.task}
