"""Runs the phases of benchmarks: install, prepare, pin and run.

Each phase first checks whether it can run. `run` saves each result immediately.
"""

import datetime
import os
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.analysis.machine import host
from comparative_benchmark.backends import host_settings
from comparative_benchmark.engine import session
from comparative_benchmark.errors import EXIT_FAILED, EXIT_OK, UsageError
from comparative_benchmark.interop.milabench import measuring, workspace
from comparative_benchmark.interop.milabench.channel import (
    INSTALL,
    LONGEST_S,
    PIN,
    PREPARE,
    RUN,
    Channel,
    PhaseOutcome,
    Wishes,
    planned,
)
from comparative_benchmark.interop.milabench.config import Bench
from comparative_benchmark.interop.milabench.measuring import Replicate, to_result
from comparative_benchmark.interop.milabench.processes import execution
from comparative_benchmark.interop.milabench.processes.execution import CommandLine, Limits
from comparative_benchmark.interop.milabench.processes.observed import ForeignCpu
from comparative_benchmark.interop.milabench.table import Dash
from comparative_benchmark.interop.milabench.workspace import Placement, gpus, unmet
from comparative_benchmark.results.outcome import exit_code_of
from comparative_benchmark.results.record import (
    EnvironmentName,
    ExecutionEnvironment,
    Result,
    Status,
)
from comparative_benchmark.results.results_file import ResultsFile, converted
from comparative_benchmark.terminal.status import StatusScreen
from comparative_benchmark.terminal.tables import script_name

# More processes would measure the scheduler, and could exhaust the machine.
_MOST_PER_CPU = 16

UNPINNED = "unpinned"
Outcome = tuple[Status, str | None]
_FINE: Outcome = (Status.OK, None)


def do(phase: str, placement: Placement, wishes: Wishes) -> PhaseOutcome:
    """Runs a phase of a benchmark; never raises because of errors in foreign code."""
    outcome = PhaseOutcome()
    bench = placement.bench
    # A benchmark may be pinned on a machine that cannot run it, as in milabench.
    if not (phase == PIN and bench.folder.is_dir()) and (problem := unmet(bench)):
        outcome.fail(Status.UNSUPPORTED, problem)
    elif problem := _folder_problem(bench.folder):
        outcome.fail(Status.FAILED, f"{bench.place}: {problem}")
    elif phase == RUN and (problem := _too_many(bench)):
        outcome.fail(Status.UNSUPPORTED, problem)
    else:
        placement.make_folders()
        Channel(phase, placement, wishes, outcome).serve()
    return outcome


def add_packages(placement: Placement, packages: Sequence[str]) -> PhaseOutcome:
    """Installs additional packages into a benchmark's environment."""
    outcome = PhaseOutcome()
    venv = placement.dirs["venv"]
    command = CommandLine(
        argv=tuple(workspace.install_command(venv, ["--quiet", *packages])),
        cwd=str(placement.base),
        env=workspace.installer_environment(),
        tag=f"{placement.bench.name}.{INSTALL}.ours",
    )
    limits = Limits(duration_s=LONGEST_S, network=True, disk=placement.base)
    [ended] = execution.run([command], limits=limits, log_dir=placement.log_dir)
    if ended.code != 0:
        reason = ended.reason or ended.last_words
        outcome.fail(Status.FAILED, f"cannot install {', '.join(packages)}: {reason}")
    return outcome


def _too_many(bench: Bench) -> str | None:
    usable = len(host_settings.usable_cpus())
    if bench.plan.per_gpu or bench.plan.jobs <= (most := _MOST_PER_CPU * usable):
        return None
    return (
        f"the plan has {bench.plan.jobs} concurrent processes, but {usable} CPUs allow only {most}"
    )


def _folder_problem(folder: Path) -> str | None:
    if not folder.is_dir():
        return f"folder {folder} does not exist"
    if not (folder / "benchfile.py").is_file():
        return f"{folder} has no benchfile.py"
    # Links within a collection are allowed, because its folders share files.
    home = folder.resolve().parent
    for item in folder.iterdir():
        # Path.resolve raises an error for cycles of links.
        if item.is_symlink() and not Path(os.path.realpath(item)).is_relative_to(home):
            return f"{item} links to a path outside its collection"
    return None


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
    for place in places if force else ():
        workspace.forget_venv(place)

    def one(place: Placement) -> Outcome:
        if workspace.is_installed(place, variant):
            print(f"{place.bench.name}: already installed (--force reinstalls it)")
            return _FINE
        print(f"{place.bench.name}: installing into {place.dirs['venv']}")
        with StatusScreen().following(), session.during(place.bench.name, "installing"):
            return _install(place, variant)

    return _each(places, one, "installed")


def _install(place: Placement, variant: str | None) -> Outcome:
    venv = place.dirs["venv"]
    try:
        workspace.make_venv(venv)
    except workspace.VenvError as error:
        return Status.FAILED, str(error)
    outcome = do(INSTALL, place, Wishes(variant=variant))
    if outcome.status is Status.OK and not (venv / "bin" / "voir").exists():
        outcome = add_packages(place, workspace.ALWAYS_INSTALLED)
    if outcome.status is Status.OK:
        workspace.note_installed(place, variant)
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
            "variant 'unpinned' installs from requirements.in and has no lock file; "
            "choose an architecture, e.g. --variant cuda"
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
            return Status.FAILED, "the variant is unpinned; choose an architecture with --variant"
        # Benchmarks of one group share an environment, so their locks must agree.
        group = (b.folder for b in benches if b.install_group == place.bench.install_group)
        wished = {folder / "requirements.in" for folder in group if folder != place.bench.folder}
        mates = [os.path.relpath(p, place.bench.folder) for p in sorted(wished) if p.is_file()]
        arguments = {**wishes.arguments, "input_files": mates}
        outcome = do(PIN, place, attrs.evolve(wishes, arguments=arguments))
        return outcome.status, outcome.reason

    places = [Placement(base=base, bench=bench, run_name=PIN) for bench in benches]
    # Benchmarks of one folder have the same requirements.
    unique = {place.bench.folder: place for place in reversed(places)}
    return _each(list(reversed(unique.values())), one, "pinned")


def not_installed(place: Placement) -> str | None:
    """Returns what the user must do before the benchmark can run; None if it can."""
    if place.bench.venv or workspace.was_installed(place):
        return None
    config = shlex.quote(place.bench.place.rsplit(":", 2)[0])
    return f"not installed; run `cbs bench install --config {config} --select {place.bench.name}`"


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


@attrs.frozen(kw_only=True)
class How:
    """Settings of a run.

    Attributes:
      results: file to which results are added.
      run_name: name of the log folder; None for the start time.
      repeat: replicates of each benchmark.
      dash: `short`, `long` or `no`.
      echo: whether the output of scripts is shown.
      alone: whether each replicate also runs one of several processes alone.
      auto_batch: whether to search for the best batch size if a benchmark leaves it open; if
        environments race, the first one's is used in all.
      environments: existing environments to race; if empty, each benchmark uses its own.
    """

    results: Path
    run_name: str | None = None
    repeat: int = 1
    dash: str = "no"
    echo: bool = False
    alone: bool = False
    auto_batch: bool = False
    environments: Sequence[EnvironmentName] = ()


def run(benches: Sequence[Bench], base: Path, how: How) -> tuple[int, list[Result]]:
    """Runs benchmarks and saves their results; returns the exit code and the results.

    Raises:
      UsageError: the name of the run is not a valid folder name.
      ResultsFileError: the file cannot be written.
    """
    name = how.run_name or f"{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S.%f}"
    if "/" in name or name in (".", ".."):
        raise UsageError(f"--run-name {name!r} is not a valid folder name")
    file = ResultsFile(how.results)
    run_id = file.start_run(execution_environment=execution_environment(), command=sys.argv)
    measured = []
    for bench in benches:
        before = file.path.read_bytes()
        places = _places(Placement(base=base, bench=bench, run_name=name), how)
        if how.auto_batch and measuring.is_automatic(bench):
            # With different batch sizes, environments could not be compared.
            best = _best_batch_factor(places[0], how, run_id)
            places = [_with_batch_factor(place, best) for place in places]
        results = _alternate(places, how, run_id)
        if execution.restored(file.path, before):
            print(f"{bench.name} modified {file.path}; the file was restored", file=sys.stderr)
        for result in results:
            file.append(result)
            measured.append(result)
            reason = f": {result.reason}" if result.reason else ""
            print(f"{script_name(result)}: {result.status.value}{reason}", file=sys.stderr)
    return exit_code_of(measured), measured


def _places(placement: Placement, how: How) -> list[Placement]:
    """Returns the placements of a benchmark: one, or one per racing environment."""
    return [
        attrs.evolve(
            placement,
            bench=placement.bench.in_environment(environment),
            run_name=f"{placement.run_name}.{environment.name}",
        )
        for environment in how.environments
    ] or [placement]


def _with_batch_factor(placement: Placement, factor: int) -> Placement:
    return attrs.evolve(placement, bench=attrs.evolve(placement.bench, batch_factor=factor))


def _best_batch_factor(placement: Placement, how: How, run_id: str) -> int:
    """Runs a benchmark with several batch sizes; returns the factor of the fastest one."""
    name = placement.bench.name
    once = attrs.evolve(how, repeat=1, alone=False, auto_batch=False)

    def rate(factor: int) -> float | None:
        tried = _with_batch_factor(placement, factor)
        tried = attrs.evolve(tried, run_name=f"{placement.run_name}.batch{factor}")
        [result] = _alternate([tried], once, run_id)
        throughput = result.measured.throughput
        value = throughput.rate if throughput and result.status is Status.OK else None
        text = f"{value:.5g} {throughput.units}" if throughput and value else result.reason
        print(f"{name}: batch size x {factor}: {text}", file=sys.stderr)
        return value

    return measuring.best_factor(rate)


def _alternate(places: Sequence[Placement], how: How, run_id: str) -> list[Result]:
    """Returns a result per placement; replicates alternate so that drift affects all equally."""
    replicates: list[list[Replicate]] = [[] for _ in places]
    for number in range(how.repeat):
        order = range(len(places)) if number % 2 == 0 else reversed(range(len(places)))
        for side in order:
            done = replicates[side]
            if all(replicate.outcome.status is Status.OK for replicate in done):
                done.append(_replicate(places[side], how, number))
    return [
        to_result(
            place.bench,
            done,
            run_id=run_id,
            device="host-gpu" if gpus() else "host-cpu",
            versions=_versions(place),
            config=place.config(),
        )
        for place, done in zip(places, replicates, strict=True)
    ]


def _replicate(placement: Placement, how: How, number: int) -> Replicate:
    started = time.monotonic()
    if not unmet(placement.bench) and (problem := not_installed(placement)):
        outcome = PhaseOutcome()
        outcome.fail(Status.FAILED, problem)
        return Replicate(outcome=outcome, wall_s=0.0)
    name = f"{placement.run_name}.{number}" if number else placement.run_name
    runs = [(name, False)]
    if how.alone and planned(placement.bench.plan) > 1:
        # Alternate, so that drift affects both equally.
        runs.insert(number % 2, (f"{name}.alone", True))
    outcomes: dict[bool, PhaseOutcome] = {}
    foreign_cpu_share = None
    with Dash(how.dash, placement.bench.name) as dash:
        for name, alone in runs:
            foreign = ForeignCpu()
            wishes = Wishes(
                listen=dash.listen,
                echo=how.echo,
                say=dash.say,
                protect=(str(how.results.absolute()),),
                alone=alone,
            )
            outcomes[alone] = do(RUN, attrs.evolve(placement, run_name=name), wishes)
            if not alone:
                ended = outcomes[alone].ended
                foreign_cpu_share = foreign.share(sum(command.cpu_s for command in ended))
    return Replicate(
        outcome=outcomes[False],
        alone=outcomes.get(True),
        wall_s=time.monotonic() - started,
        foreign_cpu_share=foreign_cpu_share,
    )


def execution_environment() -> ExecutionEnvironment:
    """Returns a description of this machine."""
    threads = host.default_threads()
    return converted(
        {
            "python_environment": host.python_environment(),
            "host": host.describe(threads=threads.number, threads_from=threads.rule),
            "git_revision": host.git_revision(),
        },
        ExecutionEnvironment,
    )


def _versions(placement: Placement) -> dict[str, str]:
    """Returns the package versions of the benchmark's environment."""
    versions = {}
    for path in sorted(placement.dirs["venv"].glob("lib/python*/site-packages/*.dist-info")):
        name, _, version = path.name.removesuffix(".dist-info").rpartition("-")
        versions[name] = version
    return versions
