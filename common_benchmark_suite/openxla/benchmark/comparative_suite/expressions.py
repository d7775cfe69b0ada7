"""Regular expressions from users, with a time limit per search."""

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 5.0


class Expression:
    """A compiled expression with a time limit for each search.

    Python's matcher backtracks: `(.*)*(.*)*z` takes practically forever on a long name. It checks
    for signals meanwhile, so a timer can end it, but only in the main thread.

    Raises:
      re.error: the expression is malformed, or a search takes too long.
    """

    def __init__(self, text: str) -> None:
        self._pattern = re.compile(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Returns the match of the whole text."""
        with _limited():
            return self._pattern.fullmatch(text)

    def search(self, text: str) -> re.Match[str] | None:
        """Returns the first match within a text."""
        with _limited():
            return self._pattern.search(text)


@contextmanager
def _limited() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _end)
    rest_s, interval_s = signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, rest_s, interval_s)
        signal.signal(signal.SIGALRM, before)


def _end(*_: Any) -> None:
    raise re.error(f"matching a name takes over {PATIENCE_S:g} s; nest fewer repetitions")
