"""Progress output of long operations."""

import contextlib
import threading
import time
from collections.abc import Iterator


@contextlib.contextmanager
def long_action(message: str, interval: float = 1) -> "Iterator[None]":
    """Prints the elapsed time of a `with` block periodically."""
    done = threading.Event()
    started = time.monotonic()

    def tell() -> None:
        while not done.wait(interval):
            print(f"\r{message} {time.monotonic() - started:10.2f} s", end="", flush=True)

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
