"""The parent process of trials: planning, preparation, sessions and races.

The command that resumes a run is here, because it is printed when a run is interrupted, possibly
in the middle of an import: nothing that could be partially initialised may be imported for it.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path


def resume_command(command: Sequence[str], output: Path | None = None) -> str:
    """Returns the command line that resumes an interrupted run.

    Args:
      command: the command line of the run.
      output: results file of the run; added unless the command names one.
    """
    program, *arguments = command or ("cbs",)
    if program == "comparative_benchmark.engine":  # called from Python
        return "resume=True"
    named = any(word == "--output" or word.startswith(("-o", "--output=")) for word in arguments)
    if output and not named:
        arguments += ["-o", str(output)]
    if "--resume" not in arguments:
        arguments.append("--resume")
    return typed([program, *arguments])


def with_more_processes(command: Sequence[str], output: Path, processes: int) -> str:
    """Returns the command line that adds processes to a finished race."""
    words = list(command)
    for place in reversed(range(len(words))):
        if words[place] == "--processes":
            del words[place : place + 2]
        elif words[place].startswith("--processes="):
            del words[place]
    return f"{resume_command(words, output)} --processes {processes}"


def typed(command: Sequence[str]) -> str:
    """Returns a command line as a user would type it, given `sys.argv`."""
    program, *arguments = command
    path = Path(program)
    start = ["python", program] if path.suffix == ".py" else [path.name]
    if path.name == "__main__.py":
        start = ["python", "-m", path.parent.name]
    return shlex.join([*start, *arguments])
