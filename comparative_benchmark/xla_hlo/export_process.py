"""Runs the export process and times its phases; frameworks stay in there."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import PhaseTimer, UnsupportedError
from comparative_benchmark.xla_hlo.exported_program import ExportedProgram, ExportRequest

_MODULE = "comparative_benchmark.xla_hlo.export"
# By the type of what was raised in there: what is raised here.
_ERRORS = {"UnsupportedError": UnsupportedError, "MemoryError": MemoryError}


def export(
    request: ExportRequest, directory: Path, phase: PhaseTimer
) -> tuple[ExportedProgram, dict[str, float]]:
    """Exports a model in a process of its own.

    The phases `load`, `trace` and `lower` are entered and left as the process says.

    Args:
      request: what to export.
      directory: where the program goes; exists.
      phase: times them here.

    Returns:
      The program, and the time of each phase in ms by the clock of the process itself.

    Raises:
      UnsupportedError: nothing exports such a model.
      MemoryError: memory ran out.
      RuntimeError: the export failed; the message names the error, a note holds its traceback.
    """
    request.write(directory)
    own_times_ms: dict[str, float] = {}
    receiving, sending = os.pipe()
    with os.fdopen(receiving, encoding="utf-8") as stream:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(directory), str(sending)],
                # A framework takes no memory of a GPU for what it does there.
                env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
                stdin=subprocess.DEVNULL,
                pass_fds=(sending,),
            )
        finally:
            os.close(sending)
        with process:
            messages = map(json.loads, stream)
            for message in messages:
                _raise_error(message)
                name = message["phase"]
                with phase(name):
                    end = next(messages, None)
                    if end is None:
                        raise _ended(process)
                    _raise_error(end)
                own_times_ms[name] = own_times_ms.get(name, 0.0) + end["ms"]
    if process.returncode:
        raise _ended(process)
    return ExportedProgram.read(directory, request.form), own_times_ms


def _raise_error(message: dict[str, Any]) -> None:
    """Raises what the process has raised, if that is what the message says."""
    if (told := message.get("error")) is None:
        return
    error = _ERRORS.get(told["kind"], RuntimeError)(told["message"])
    error.add_note(f"In the export process:\n{told['traceback']}")
    raise error


def _ended(process: "subprocess.Popen[bytes]") -> RuntimeError:
    code = process.wait()
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
    return RuntimeError(f"the export process {how}; the log file holds its last words")
