"""Calls a function in a child process, so that its imports do not affect the worker.

The child reports its phases while they run, so that the parent times them by its own clock and
applies the deadline of each phase to the child. It writes lines of JSON to a pipe: `{"phase":
name}` when a phase begins, `{"ms": time}` when it ends, `{"if_killed": text}` before code that a
signal may kill, and finally `{"answer": value}` or `{"error": {...}}`.
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

from comparative_benchmark.backends.api import PhaseTimer, UnsupportedError, load_object, untimed
from openxla.benchmark import bounded

_MODULE = __name__
# The exception to raise here, by the name of the child's exception type.
_ERRORS = {"UnsupportedError": UnsupportedError, "MemoryError": MemoryError}


class Channel:
    """The child's connection to the worker."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def send(self, **message: Any) -> None:
        """Sends one message."""
        print(json.dumps(message), file=self._stream, flush=True)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A `PhaseTimer`; a phase that fails does not report its end."""
        self.send(phase=name)
        start = time.perf_counter_ns()
        yield
        self.send(ms=(time.perf_counter_ns() - start) / 1e6)

    @contextmanager
    def unsupported_if_killed(self, reason: str) -> Iterator[None]:
        """Reports a kill by a signal as missing support; `{signal}` in `reason` is its number.

        SIGKILL is still reported as a lack of memory.
        """
        self.send(if_killed=reason)
        yield
        self.send(if_killed=None)


def call(
    function: str, arguments: Mapping[str, Any], phase: PhaseTimer = untimed, *, name: str
) -> tuple[Any, dict[str, float]]:
    """Calls a function in a child process, which sees no GPU.

    Args:
      function: `module:name`; it is called with a `Channel` and the arguments.
      arguments: JSON values, as is the function's return value.
      phase: times the phases of the child.
      name: name of the process in messages, e.g. `the export process`.

    Returns:
      The function's return value, and the time of each phase in ms by the child's own clock.

    Raises:
      UnsupportedError: the function raised it.
      MemoryError: memory ran out, or the child was killed, as by the kernel's OOM killer.
      RuntimeError: the function raised anything else, or the child died.
    """
    own_times_ms: dict[str, float] = {}
    said: dict[str, Any] = {}
    receiving, sending = os.pipe()
    with os.fdopen(receiving, encoding="utf-8") as lines, ExitStack() as current:
        try:
            process = subprocess.Popen(
                # Keep the current directory off the path, as in `engine.session`.
                [
                    *(sys.executable, "-P", "-m", _MODULE),
                    *(str(sending), function, json.dumps(dict(arguments))),
                ],
                # Keep the child's framework from allocating GPU memory.
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.DEVNULL,
                pass_fds=(sending,),
            )
        finally:
            os.close(sending)
        with process:
            inside = ""
            for message in map(json.loads, lines):
                said |= message
                if "phase" in message:
                    inside = message["phase"]
                    current.enter_context(phase(inside))
                elif "ms" in message:
                    own_times_ms[inside] = own_times_ms.get(inside, 0.0) + message["ms"]
                    current.close()
            # Raise inside the phase in which the child failed, so that the error is reported for
            # it.
            return _answer(said, process.wait(), name), own_times_ms


def _answer(said: Mapping[str, Any], status: int, name: str) -> Any:
    if told := said.get("error"):
        error = _ERRORS.get(told["kind"], RuntimeError)(told["message"])
        error.add_note(f"In {name}:\n{told['traceback']}")
        raise error
    if status == -signal.SIGKILL:
        raise MemoryError(f"{name} was killed, probably because memory ran out")
    if status < 0 and (reason := said.get("if_killed")):
        raise UnsupportedError(reason.format(signal=-status))
    if status or "answer" not in said:
        how = f"{'was' if status < 0 else 'ended with'} {bounded.exit_description(status)}"
        raise RuntimeError(f"{name} {how}; see the end of the log file")
    return said["answer"]


def main(descriptor: int, function: str, arguments: str) -> int:
    """Calls the function; returns the exit code."""
    # Processes that a framework's compiler starts must not keep the pipe open.
    os.set_inheritable(descriptor, False)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        channel = Channel(stream)
        try:
            channel.send(answer=load_object(function)(channel, **json.loads(arguments)))
        except Exception as error:
            kind, text = type(error).__name__, "".join(traceback.format_exception(error))
            message = str(error) if kind == "UnsupportedError" else f"{kind}: {error}"
            print(text, file=sys.stderr, flush=True)
            channel.send(
                error={"kind": kind, "message": message[:4000], "traceback": text[-20000:]}
            )
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
