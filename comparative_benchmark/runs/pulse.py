"""Tells whoever listens what workers are doing, while none of them is timed.

The sessions of a process are many, in several threads, and what shows their progress is one; so
there is one listener. Whoever is timed has the machine to itself: nobody is told of it until the
phase is over.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# In these the worker takes times: a line that is drawn would take them from its CPU.
TIMED = frozenset({"execute", "measure", "profile"})

# Is told whom a worker serves, and its phase.
Listener = Callable[[str, str], None]
_BEATS_S = 1.0
_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tells a listener of all workers, from any thread, while the block lasts."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def beat(whom: str, phase: str, *, entered: bool = False) -> None:
    """Says that a worker is in a phase.

    Args:
      whom: it serves.
      phase: of it.
      entered: whether it has just come to it: then even a timed one is told, as nothing is measured
        yet.
    """
    if entered or phase not in TIMED:
        for listener in _listeners:
            listener(whom, phase)


@contextmanager
def during(whom: str, phase: str) -> Iterator[None]:
    """Goes on saying that a program that tells nothing, e.g. pip, works, while the block lasts."""
    over = threading.Event()

    def go_on() -> None:
        beat(whom, phase, entered=True)
        while not over.wait(_BEATS_S):
            beat(whom, phase)

    thread = threading.Thread(target=go_on, daemon=True, name=f"pulse of {phase}")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
