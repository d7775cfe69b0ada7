"""Runs one phase of a benchmark after checking whether it can run."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from comparative_benchmark.backends import host_settings
from comparative_benchmark.engine import session
from comparative_benchmark.errors import EXIT_FAILED, EXIT_OK, UsageError
from comparative_benchmark.interop.milabench import venvs
from comparative_benchmark.interop.milabench.config import Bench
from comparative_benchmark.interop.milabench.placement import Placement, unmet
from comparative_benchmark.interop.milabench.processes import execution
from comparative_benchmark.interop.milabench.processes.kept import CommandLine, Limits
from comparative_benchmark.interop.milabench.talk import (
    INSTALL,
    LONGEST_S,
    PIN,
    PREPARE,
    RUN,
    PhaseOutcome,
    Talk,
    Wishes,
)
from comparative_benchmark.results.record import Status
from comparative_benchmark.terminal.console import StatusScreen

# More processes would measure the scheduler, and could exhaust the machine.
_MOST_PER_CPU = 16


def do(phase: str, placement: Placement, wishes: Wishes) -> PhaseOutcome:
    """Runs a phase of a benchmark; never raises because of errors in foreign code."""
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
    """Installs additional packages into a benchmark's environment."""
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
    usable = len(host_settings.usable_cpus())
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
    # Links within a collection are allowed, because its folders share files.
    home = folder.resolve().parent
    for item in folder.iterdir():
        if item.is_symlink() and not item.resolve().is_relative_to(home):
            return f"{item} links to a path outside its collection"
    return None


UNPINNED = "unpinned"
Outcome = tuple[Status, str | None]
_FINE: Outcome = (Status.OK, None)


def install(benches: Sequence[Bench], base: Path, *, variant: str | None, force: bool) -> int:
    """Creates environments and installs missing benchmarks; returns 0, or 1 if one failed.

    Raises:
      UsageError: a benchmark uses an existing environment.
    """
    if venv := next((bench.venv for bench in benches if bench.venv), None):
        raise UsageError(
            f"--use-current-env installs nothing; install the requirements into {venv} yourself"
        )
    places = [Placement(base=base, bench=bench, run_name=INSTALL) for bench in benches]
    if force:
        for place in places:
            venvs.forget(place)

    def one(place: Placement) -> Outcome:
        if venvs.is_installed(place, variant):
            print(f"{place.bench.name}: already installed (--force reinstalls it)")
            return _FINE
        print(f"{place.bench.name}: installing into {place.dirs['venv']}")
        with StatusScreen().following(), session.during(place.bench.name, "installing"):
            return _install(place, variant)

    return _each(places, one, "installed")


def _install(place: Placement, variant: str | None) -> Outcome:
    venv = place.dirs["venv"]
    try:
        venvs.make(venv)
    except venvs.VenvError as error:
        return Status.FAILED, str(error)
    outcome = do(INSTALL, place, Wishes(variant=variant))
    if outcome.status is Status.OK and not (venv / "bin" / "voir").exists():
        outcome = add_packages(place, venvs.ALWAYS)
    if outcome.status is Status.OK:
        venvs.note_installed(place, variant)
    return outcome.status, outcome.reason


def prepare(benches: Sequence[Bench], base: Path) -> int:
    """Prepares each benchmark; returns 0, or 1 if one failed."""

    def one(place: Placement) -> Outcome:
        if problem := not_installed(place):
            return Status.FAILED, problem
        outcome = do(PREPARE, place, Wishes(echo=True))
        return outcome.status, outcome.reason

    places = [Placement(base=base, bench=bench, run_name=PREPARE) for bench in benches]
    return _each(places, one, "prepared")


def pin(
    benches: Sequence[Bench],
    base: Path,
    *,
    variant: str | None,
    constraints: Sequence[Path],
    clear_previous: bool,
    pip_compile: Sequence[str],
) -> int:
    """Locks the requirements of each benchmark; returns 0, or 1 if one failed.

    Raises:
      UsageError: the variant is the unpinned one.
    """
    if variant == UNPINNED:
        raise UsageError(
            "variant 'unpinned' installs from requirements.in and has no lock; "
            "name an architecture, e.g. --variant cuda"
        )
    wishes = Wishes(
        variant=variant,
        arguments={
            "clear_previous": clear_previous,
            "pip_compile_args": list(pip_compile),
            "constraints": [str(path) for path in constraints],
        },
    )

    def one(place: Placement) -> Outcome:
        if variant is None and place.bench.install_variant == UNPINNED:
            return Status.FAILED, "its variant is unpinned; name an architecture with --variant"
        outcome = do(PIN, place, wishes)
        return outcome.status, outcome.reason

    places = [Placement(base=base, bench=bench, run_name=PIN) for bench in benches]
    # Benchmarks of one folder have the same requirements.
    unique = {place.bench.folder: place for place in reversed(places)}
    return _each(list(reversed(unique.values())), one, "pinned")


def not_installed(place: Placement) -> str | None:
    """Returns what the user must do before the benchmark can run; None if it can."""
    if place.bench.venv or venvs.was_installed(place):
        return None
    return f"it is not installed; run `cbs bench install --select {place.bench.name}`"


def _each(places: Sequence[Placement], one: Callable[[Placement], Outcome], done: str) -> int:
    failed = 0
    for place in places:
        status, reason = one(place)
        if status is Status.OK:
            print(f"{place.bench.name}: {done}")
            continue
        failed += status is not Status.UNSUPPORTED
        log = place.log_dir
        where = f" (output: {log})" if log.is_dir() else ""
        print(f"cbs: {place.bench.name}: {status.value}: {reason}{where}", file=sys.stderr)
    return EXIT_FAILED if failed else EXIT_OK
