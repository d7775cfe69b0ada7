"""One phase of one benchmark: whether it can be done, and the doing."""

from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.backends import cpus
from comparative_benchmark.packages.milabench import execution, venvs
from comparative_benchmark.packages.milabench.command_lines import CommandLine, Limits
from comparative_benchmark.packages.milabench.config import Bench
from comparative_benchmark.packages.milabench.phase_records import (
    INSTALL,
    RUN,
    PhaseOutcome,
    Wishes,
)
from comparative_benchmark.packages.milabench.placement import Placement, unmet
from comparative_benchmark.packages.milabench.talk import LONGEST_S, Talk
from comparative_benchmark.results.record import Status

# More would measure the scheduler, and could end the machine.
_MOST_PER_CPU = 16


def do(phase: str, placement: Placement, wishes: Wishes) -> PhaseOutcome:
    """Does a phase of a benchmark; never raises for what foreign code does."""
    outcome = PhaseOutcome()
    bench = placement.bench
    if problem := unmet(bench):
        outcome.fail(Status.UNSUPPORTED, problem)
        return outcome
    if problem := _folder_problem(bench.folder):
        outcome.fail(Status.FAILED, f"{bench.place}: {problem}")
        return outcome
    if phase == RUN and (problem := _too_many(bench)):
        outcome.fail(Status.UNSUPPORTED, problem)
        return outcome
    placement.make_folders()
    Talk(phase, placement, wishes, outcome).hold()
    return outcome


def add_packages(placement: Placement, packages: Sequence[str]) -> PhaseOutcome:
    """Installs further packages into a benchmark's environment."""
    outcome = PhaseOutcome()
    venv = placement.dirs["venv"]
    command = CommandLine(
        argv=tuple(venvs.install_command(venv, ["--quiet", *packages])),
        cwd=str(placement.base),
        env=venvs.installer_environment(),
        tag=f"{placement.bench.name}.{INSTALL}.ours",
    )
    limits = Limits(duration_s=LONGEST_S, network=True, disk=placement.base)
    [ended] = execution.run([command], limits=limits, log_dir=placement.log_dir)
    if ended.code:
        names = ", ".join(packages)
        outcome.fail(Status.FAILED, f"cannot install {names}: {ended.last_words}")
    return outcome


def _too_many(bench: Bench) -> str | None:
    usable = len(cpus.usable_cpus())
    if bench.plan.per_gpu or bench.plan.jobs <= (most := _MOST_PER_CPU * usable):
        return None
    return (
        f"its plan starts {bench.plan.jobs} processes at once, but {usable} CPUs allow only {most}"
    )


def _folder_problem(folder: Path) -> str | None:
    if not folder.is_dir():
        return f"folder {folder} does not exist"
    if not (folder / "benchfile.py").is_file():
        return f"{folder} has no benchfile.py"
    # Folders of one collection share files by links.
    home = folder.resolve().parent
    for item in folder.iterdir():
        if item.is_symlink() and not item.resolve().is_relative_to(home):
            return f"{item} links to a path outside its collection"
    return None
