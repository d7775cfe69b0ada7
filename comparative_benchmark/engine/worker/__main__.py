"""The worker process: `python -m comparative_benchmark.engine.worker COMMANDS ANSWERS`.

Reads commands from one pipe and writes answers to another; both are given as descriptor numbers.
Output of models and frameworks goes to stdout and stderr, which the session redirects to a log
file. The worker exits when the command pipe closes, which includes the death of its parent.
"""

import contextlib
import ctypes
import faulthandler
import json
import os
import queue
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from comparative_benchmark.engine.worker import isolation
from comparative_benchmark.engine.worker.protocol import Decoder, Message, encode

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # <linux/prctl.h>


def main(arguments: list[str]) -> int:
    """Executes commands until `exit` or the end of the pipe."""
    commands, answers = map(int, arguments)
    for descriptor in (commands, answers):
        # Compilers started by a framework must not keep our pipes open.
        os.set_inheritable(descriptor, False)
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _pin()
    _volunteer_for_out_of_memory_killer()
    not_hidden = _hide()
    # The kernel kills this process when its parent dies, even if this process is stopped.
    _set_option(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Daemons started by descendants get this process as their parent. When this process ends, they
    # pass to its parent, which kills them.
    _set_option(_PR_SET_CHILD_SUBREAPER, 1)

    def send(message: Message) -> None:
        data = encode(message)
        while data:
            data = data[os.write(answers, data) :]

    send({"type": "hello", "truth_not_isolated": not_hidden})
    # Import after the greeting, so that a broken installation is reported as an answer.
    from comparative_benchmark.engine.worker.executor import Executor

    isolation.end_where_we_go_on()

    executor = Executor(announce=send)
    for command in _read(commands):
        if command["command"] == "exit":
            return 0
        send(executor.handle(command))
    return 0


def _read(descriptor: int) -> Iterator[Message]:
    """Yields commands; reads them in a thread, so that the parent's death ends even a long call."""
    received: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def listen() -> None:
        decoder = Decoder()
        while data := os.read(descriptor, 65536):
            for message in decoder.feed(data):
                received.put(message)
        os._exit(0)

    threading.Thread(target=listen, daemon=True, name="commands").start()
    while True:
        yield received.get()


def _pin() -> None:
    """Pins this process and its children to the CPUs given by the session."""
    if cpus := os.environ.get("CBS_CPUS"):
        os.sched_setaffinity(0, {int(cpu) for cpu in cpus.split(",")})


def _hide() -> str | None:
    """Hides the folders given by the session; returns the reason if this failed."""
    folders = os.environ.pop("CBS_HIDDEN", None)
    return isolation.hide(json.loads(folders)) if folders else None


def _volunteer_for_out_of_memory_killer() -> None:
    """Asks the kernel to kill this process before the parent if memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _set_option(option: int, value: int) -> None:
    """Sets an option of this process, if the system has it (Linux, prctl(2))."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value)


if __name__ == "__main__":
    # Exit without running destructors, because some frameworks' destructors hang or crash.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
