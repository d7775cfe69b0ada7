"""A function called in a process of its own: what it imports and leaves behind is not the worker's.

The child tells its phases while it is in them, so that they are timed here, by one clock, and the
deadline of each phase holds for the child, too. It writes lines of JSON to a pipe:
`{"phase": name}` where a phase begins, `{"ms": time}` where it ends, `{"if_killed": text}` where it
may die of a signal, and at last `{"answer": value}` or `{"error": {...}}`.
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

_MODULE = __name__
# By the type of what was raised in there: what is raised here.
_ERRORS = {"UnsupportedError": UnsupportedError, "MemoryError": MemoryError}


class Channel:
    """How the child tells the worker what happens."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def send(self, **message: Any) -> None:
        """Sends one message."""
        print(json.dumps(message), file=self._stream, flush=True)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A `PhaseTimer`; a phase that fails has no end."""
        self.send(phase=name)
        start = time.perf_counter_ns()
        yield
        self.send(ms=(time.perf_counter_ns() - start) / 1e6)

    @contextmanager
    def unsupported_if_killed(self, reason: str) -> Iterator[None]:
        """Takes the child's death by a signal for a lack of the tool; `{signal}` is its number."""
        self.send(if_killed=reason)
        yield
        self.send(if_killed=None)


def call(
    function: str, arguments: Mapping[str, Any], phase: PhaseTimer = untimed, *, name: str
) -> tuple[Any, dict[str, float]]:
    """Calls a function in a process of its own, which sees no GPU.

    Args:
      function: `module:name`; it is called with a `Channel` and the arguments.
      arguments: JSON values, as is what the function returns.
      phase: times the phases of the child.
      name: what messages call the process, e.g. `the export process`.

    Returns:
      What the function has returned, and the time of each phase in ms by the child's own clock.

    Raises:
      UnsupportedError: the function has raised it.
      MemoryError: memory ran out, or the child was killed, as the kernel does then.
      RuntimeError: the function has raised anything else, or the child has died.
    """
    own_times_ms: dict[str, float] = {}
    said: dict[str, Any] = {}
    receiving, sending = os.pipe()
    with os.fdopen(receiving, encoding="utf-8") as lines, ExitStack() as current:
        try:
            process = subprocess.Popen(
                # Without the current directory on the path, as in `run.session`.
                [
                    *(sys.executable, "-P", "-m", _MODULE),
                    *(str(sending), function, json.dumps(dict(arguments))),
                ],
                # A framework takes no memory of a GPU for what it does there.
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
            # Still in the phase that the child was in when it failed: the error is told with it.
            return _answer(said, process.wait(), name), own_times_ms


def _answer(said: Mapping[str, Any], status: int, name: str) -> Any:
    if told := said.get("error"):
        error = _ERRORS.get(told["kind"], RuntimeError)(told["message"])
        error.add_note(f"In {name}:\n{told['traceback']}")
        raise error
    if status < 0 and (reason := said.get("if_killed")):
        raise UnsupportedError(reason.format(signal=-status))
    if status == -signal.SIGKILL:
        raise MemoryError(f"{name} was killed, as the kernel does where memory runs out")
    if status or "answer" not in said:
        how = f"was killed by {_signal(-status)}" if status < 0 else f"ended with {status}"
        raise RuntimeError(f"{name} {how}; the log file holds its last words")
    return said["answer"]


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one for real-time uses
        return f"signal {number}"


def main(descriptor: int, function: str, arguments: str) -> int:
    """Calls the function; returns the exit code."""
    # Compilers that a framework starts must not keep the pipe open.
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
