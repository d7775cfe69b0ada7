"""Progress bars of preparations."""

from collections.abc import Iterator
from typing import Any


def tqdm(iterable: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Returns tqdm's bar; the plain items if tqdm is not installed."""
    try:
        from tqdm import tqdm as bar
    except ImportError:
        return _Plain(iterable)
    return bar(iterable, *args, **kwargs)


class _Plain:
    def __init__(self, iterable: Any) -> None:
        self._iterable = iterable

    def __iter__(self) -> "Iterator[Any]":
        return iter(self._iterable)

    def __enter__(self) -> "_Plain":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, _: int = 1) -> None:
        """Shows nothing."""


def timed_flush(*_: Any, **__: Any) -> None:
    """There is nothing to flush: output is not buffered."""
