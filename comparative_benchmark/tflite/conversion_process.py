"""The conversion in a process of its own, and what the worker hears of it.

The child tells its phases while it is in them, so that they are timed here, by one clock, and the
deadline of each phase holds for the child, too.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import PhaseTimer, UnsupportedError

_MODULE = "comparative_benchmark.tflite.export"


def convert(request: Mapping[str, Any], phase: PhaseTimer) -> dict[str, Any]:
    """Returns what `export` answers to a request: path, digest and size of the file, and more.

    Args:
      request: see `export.answer`; `directory` has to exist.
      phase: times the phases of the child.

    Raises:
      UnsupportedError: TFLite can not hold the model in that way.
      MemoryError: the child was killed, as the kernel does where memory runs out.
      RuntimeError: the conversion failed; the message is the child's.
    """
    path = Path(request["directory"]) / "conversion.json"
    path.write_text(json.dumps(dict(request)), encoding="utf-8")
    # A pipe of our own: libraries write what they like to stdout, which goes to the log.
    reading, writing = os.pipe()
    command = [sys.executable, "-m", _MODULE, str(path), str(writing)]
    with subprocess.Popen(command, pass_fds=(writing,)) as child:
        os.close(writing)
        messages: dict[str, Any] = {}
        with ExitStack() as current, os.fdopen(reading, encoding="utf-8") as lines:
            for line in lines:
                message = json.loads(line)
                messages |= message
                if "phase" in message:
                    current.close()
                    if message["phase"]:
                        current.enter_context(phase(message["phase"]))
            # Still in the phase that the child was in when it failed: the error is told with it.
            return _answer(messages, child.wait())


def _answer(messages: Mapping[str, Any], status: int) -> dict[str, Any]:
    if "error" in messages:
        _raise(messages["error"])
    if status < 0 and messages.get("probing"):
        raise UnsupportedError(
            "LiteRT can not run the int8 file of this model: it ends the process (signal "
            f"{-status}), as quotients of very different ranges do; take the compiler "
            "dynamic-range, or the model in TensorFlow"
        )
    if status == -signal.SIGKILL:
        raise MemoryError("the conversion was killed, as the kernel does where memory runs out")
    if status < 0:
        raise RuntimeError(
            f"TensorFlow's converter ends the process ({_signal(-status)}); see the log"
        )
    if status or "answer" not in messages:
        raise RuntimeError(f"the conversion ended with {status} and no answer; see the log")
    answer: dict[str, Any] = messages["answer"]
    return answer


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # one for real-time uses
        return f"signal {number}"


def _raise(error: Mapping[str, str]) -> None:
    if error["kind"] == "unsupported":
        raise UnsupportedError(error["message"])
    if error["kind"] == "MemoryError":
        raise MemoryError(error["message"])
    raise RuntimeError(f"the conversion failed: {error['kind']}: {error['message']}")
