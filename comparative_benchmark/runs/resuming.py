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
    return typed([program, *arguments, *resuming])


def typed(command: Sequence[str]) -> str:
    """Returns a command line, of which `sys.argv` tells a path, as a user types it."""
    program, *arguments = command
    path = Path(program)
    start = ["python", program] if path.suffix == ".py" else [path.name]
    if path.name == "__main__.py":
        start = ["python", "-m", path.parent.name]
    return shlex.join([*start, *arguments])
