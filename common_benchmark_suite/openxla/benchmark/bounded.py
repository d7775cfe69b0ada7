"""Reads untrusted files in a process with a deadline and a memory limit.

A file of a few kilobytes can keep a parser busy for hours, or use all memory. The separate process
also contains crashes of native parsers.
"""

import contextlib
import copyreg
import json
import os
import pickle  # both ends are this program, and no file contains pickles
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from select import select
from types import MappingProxyType
from typing import Any, TypeVar

from openxla.benchmark.text import one_line

T = TypeVar("T")

DEADLINE_S = 30.0
MEMORY_BYTES = 2 * 2**30
# Threads of numeric libraries reserve memory that counts towards the limit.
_ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"
)
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[3])
from openxla.benchmark import bounded
bounded.serve(int(sys.argv[1]), int(sys.argv[2]))
"""


class TooCostlyError(RuntimeError):
    """Reading failed, took too much time or memory, or ended its process."""


def call(
    function: Callable[..., T],
    *arguments: Any,
    deadline_s: float = DEADLINE_S,
    memory_bytes: int = MEMORY_BYTES,
) -> T:
    """Calls a function in a new process, and returns its result.

    Args:
      function: a module-level function.
      arguments: its arguments; they and the returned value are pickled.
      deadline_s: seconds until the process is killed.
      memory_bytes: limit on memory of the process; mapped files do not count.

    Raises:
      TooCostlyError: the function did not return; the message names the reason.
      Exception: any exception class of this project, as raised by the function.
    """
    request = pickle.dumps((function, arguments, memory_bytes, deadline_s))
    path = [entry for entry in sys.path if isinstance(entry, str)]
    commands, to_child = os.pipe()
    answers, from_child = os.pipe()
    with (
        os.fdopen(to_child, "wb") as pipe,
        os.fdopen(answers, "rb") as answer_pipe,
        subprocess.Popen(
            [
                *(sys.executable, "-P", "-c", _PROGRAM),
                *(str(commands), str(from_child), json.dumps(path)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(commands, from_child),
            env={**os.environ, **_ONE_THREAD},
        ) as child,
    ):
        os.close(commands)
        os.close(from_child)
        try:
            with contextlib.suppress(BrokenPipeError):
                pipe.write(request)
                pipe.flush()
            content = _read(answer_pipe.fileno(), time.monotonic() + deadline_s)
        finally:
            child.kill()
        if content is None:
            raise TooCostlyError(f"timed out after {deadline_s:.0f} s")
    if not content:
        raise TooCostlyError(_ending(child.returncode, memory_bytes))
    succeeded, value = pickle.loads(content)  # noqa: S301  # see the import
    if succeeded:
        result: T = value
        return result
    raise value


def serve(commands: int, answers: int) -> None:
    """Calls the requested function, in the child process."""
    with os.fdopen(commands, "rb") as pipe:
        function, arguments, memory_bytes, deadline_s = pickle.load(pipe)  # noqa: S301
    _set_limit(resource.RLIMIT_DATA, memory_bytes)
    # Even if the parent is killed, this process ends.
    _set_limit(resource.RLIMIT_CPU, int(deadline_s) + 1)
    _set_limit(resource.RLIMIT_CORE, 0)
    try:
        answer = _encoded((True, function(*arguments)))
    except MemoryError:
        answer = _encoded((False, TooCostlyError(_too_large(memory_bytes))))
    except BaseException as error:  # a native parser may raise anything
        answer = _encoded((False, _portable(error)))
    with os.fdopen(answers, "wb") as pipe:
        pipe.write(answer)
    os._exit(0)


def _set_limit(kind: int, limit: int) -> None:
    hard = resource.getrlimit(kind)[1]  # only root can raise it
    least = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (least, least))


def _portable(error: BaseException) -> Exception:
    """Returns an exception that the parent can unpickle: one of this project's, or a summary."""
    known = type(error).__module__.partition(".")[0] in ("openxla", "comparative_benchmark")
    if known and isinstance(error, Exception):
        return type(error)(*error.args)
    if isinstance(error, RecursionError):
        return TooCostlyError("it is nested too deeply")
    return TooCostlyError(one_line(f"{type(error).__name__}: {error}"))


def _encoded(answer: object) -> bytes:
    copyreg.pickle(MappingProxyType, lambda proxy: (_proxy, (dict(proxy),)))
    return pickle.dumps(answer)


def _proxy(content: dict[Any, Any]) -> Any:
    return MappingProxyType(content)


def _read(descriptor: int, until: float) -> bytes | None:
    """Returns everything until the pipe closes; None after the deadline."""
    content = bytearray()
    while select([descriptor], [], [], max(0.0, until - time.monotonic()))[0]:
        data = os.read(descriptor, 1 << 20)
        if not data:
            return bytes(content)
        content += data
    return None


def _ending(code: int, memory_bytes: int) -> str:
    if code == -signal.SIGXCPU:
        return "it took too long"
    how = exit_description(code)
    return f"it crashed the process that read it ({how}), or {_too_large(memory_bytes)}"


def exit_description(code: int) -> str:
    """Returns `exit code 3`, or `killed by SIGSEGV` for the negative code of a killed process."""
    # Signals for real-time uses have no name.
    names = {item.value: item.name for item in signal.Signals}
    return f"killed by {names.get(-code, f'signal {-code}')}" if code < 0 else f"exit code {code}"


def _too_large(memory_bytes: int) -> str:
    return f"it needs more than {memory_bytes / 2**30:.0f} GiB of memory"
