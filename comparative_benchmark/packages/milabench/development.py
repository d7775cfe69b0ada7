"""`cbs bench dev`: a shell in a benchmark's environment, in its folder."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.packages.milabench.config import Bench
from comparative_benchmark.packages.milabench.doing import not_installed
from comparative_benchmark.packages.milabench.placement import Placement
from comparative_benchmark.terminal.options import UsageError


def shell(benches: Sequence[Bench], base: Path, command: str | None) -> int:
    """Runs the user's shell, or a command in it; returns its exit code.

    Raises:
      UsageError: more than one benchmark is selected, or it is not installed.
    """
    if len({bench.folder for bench in benches}) > 1:
        names = ", ".join(bench.name for bench in benches)
        raise UsageError(f"dev works on one benchmark; --select one of {names}")
    placement = Placement(base=base, bench=benches[0], run_name="dev")
    if problem := not_installed(placement):
        raise UsageError(problem)
    placement.make_folders()
    env = placement.shell_environment()
    program = os.environ.get("SHELL") or "/bin/sh"
    if sys.stdin.isatty() and command is None:
        print(f"environment of {benches[0].name} (`exit` to leave); try `voir --dash main.py`")
    sys.stdout.flush()
    arguments = ["-c", command] if command is not None else []
    return subprocess.run(
        [program, *arguments], cwd=benches[0].folder, env=env, check=False
    ).returncode
