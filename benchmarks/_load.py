"""Processes that load the CPUs, all of the time or at intervals.

python benchmarks/_load.py [ON_S OFF_S]      until its standard input is closed
"""

import contextlib
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ON_S, OFF_S = 0.7, 0.9


@contextlib.contextmanager
def on_off_load(on_s: float = ON_S, off_s: float = OFF_S) -> Iterator[int]:
    """Runs a process that spins for `on_s` and sleeps for `off_s`; yields its process ID.

    When this process ends in any way, it closes the other's standard input, which ends it too.
    """
    command = [sys.executable, str(Path(__file__).resolve()), str(on_s), str(off_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Runs `count` processes that use a CPU all the time."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(on_off_load(ON_S, 0.0))
        yield


def main(arguments: list[str]) -> None:
    on_s, off_s = map(float, arguments) if arguments else (ON_S, OFF_S)
    while True:
        end = time.monotonic() + on_s
        while time.monotonic() < end:
            pass
        # A pipe is readable if the other side has closed it.
        if select.select([sys.stdin], [], [], off_s)[0]:
            return


if __name__ == "__main__":
    main(sys.argv[1:])
