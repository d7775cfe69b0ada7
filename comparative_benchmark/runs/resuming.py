"""The command that goes on from a run that was ended early.

It is said when a run is interrupted, in the middle of an import perhaps: nothing is imported here
that could be half there.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path


def going_on(command: Sequence[str]) -> str:
    """Returns the command line that goes on from a run that was ended early."""
    program, *arguments = command or ("cbs",)
    if program == "comparative_benchmark.runs":  # called from Python
        return "resume=True"
    resuming = [] if "--resume" in arguments else ["--resume"]
    return shlex.join([*_started(program), *arguments, *resuming])


def typed(command: Sequence[str]) -> str:
    """Returns a command line, of which `sys.argv` tells a path, as a user types it."""
    program, *arguments = command
    return shlex.join([*_started(program), *arguments])


def _started(program: str) -> list[str]:
    path = Path(program)
    if path.name == "__main__.py":
        return ["python", "-m", path.parent.name]
    return ["python", program] if path.suffix == ".py" else [path.name]
