"""The process that executes a `benchfile.py`; `cbs` itself never imports one.

It is started as a script, with the numbers of two pipes and a JSON file with phase, configuration
and GPUs. Its path contains the package `milabench` that benchfiles import, but no other modules of
the suite.
"""

import asyncio
import inspect
import json
import runpy
import sys
import traceback
from pathlib import Path
from typing import Any


def main() -> int:
    """Runs one phase of one benchmark; returns the exit code."""
    import milabench  # type: ignore[import-not-found]

    questions, answers, file = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    asked = json.loads(file.read_text(encoding="utf-8"))
    channel = milabench.current = milabench.Channel(questions, answers)
    try:
        pack = _pack(asked)
        asyncio.run(_phase(pack, asked))
    except NotImplementedError as error:
        channel.say("unsupported", text=str(error) or "NotImplementedError")
        return 1
    except (Exception, SystemExit) as error:
        # The suite ran these commands, and has their output.
        ran_by_suite = isinstance(error, milabench.CommandFailedError) and error.code is not None
        channel.say(
            "failed",
            text=str(error) if ran_by_suite else f"{type(error).__name__}: {error}",
            ran_by_suite=ran_by_suite,
            traceback=traceback.format_exc()[-8000:],
        )
        return 1
    channel.say("done")
    return 0


def _pack(asked: dict[str, Any]) -> Any:
    benchfile = Path(asked["config"]["definition"]) / "benchfile.py"
    if not benchfile.is_file():
        raise FileNotFoundError(f"{benchfile} does not exist")
    pack = runpy.run_path(str(benchfile), run_name="<benchfile>").get("__pack__")
    if pack is None:
        raise TypeError(f"{benchfile} does not set __pack__")
    return pack({**asked["config"], "phase": asked["phase"]})


async def _phase(pack: Any, asked: dict[str, Any]) -> None:
    # A pack may override `run`; the inherited method calls `planned`.
    pack.planned = lambda command: _planned(command, asked)
    value = getattr(pack, asked["phase"])(**asked.get("arguments", {}))
    if inspect.isawaitable(value):
        await value


def _planned(command: Any, asked: dict[str, Any]) -> Any:
    from milabench import commands

    if asked["per_gpu"]:
        return commands.PerGPU(command, asked["gpus"])
    return commands.NJobs(command, asked["jobs"], asked["gpus"])


if __name__ == "__main__":
    sys.exit(main())
