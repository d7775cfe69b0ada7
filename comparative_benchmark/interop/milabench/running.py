"""`cbs bench run`: runs benchmarks in sequence and saves each result immediately."""

import datetime
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attrs

from comparative_benchmark.analysis.machine import host
from comparative_benchmark.errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, EXIT_WRONG, UsageError
from comparative_benchmark.interop.milabench import measuring, phases
from comparative_benchmark.interop.milabench.config import Bench
from comparative_benchmark.interop.milabench.measuring import Replicate, to_result
from comparative_benchmark.interop.milabench.phases import not_installed
from comparative_benchmark.interop.milabench.placement import Placement, gpus, unmet
from comparative_benchmark.interop.milabench.processes import kept
from comparative_benchmark.interop.milabench.processes.observed import ForeignCpu
from comparative_benchmark.interop.milabench.table import Dash
from comparative_benchmark.interop.milabench.talk import RUN, PhaseOutcome, Wishes, planned
from comparative_benchmark.results.record import (
    EnvironmentName,
    ExecutionEnvironment,
    Result,
    Status,
)
from comparative_benchmark.results.results_file import ResultsFile, converted
from comparative_benchmark.terminal.tables import script_name


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
      auto_batch: whether to search for the best batch size if a benchmark leaves it open.
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
    found = []
    for bench in benches:
        before = file.path.read_bytes()
        places = _places(Placement(base=base, bench=bench, run_name=name), how)
        if how.auto_batch and measuring.is_automatic(bench):
            places = [_with_best_batch(place, how, run_id) for place in places]
        results = _in_turns(places, how, run_id)
        if kept.restored(file.path, before):
            print(f"{bench.name}: restored {file.path}, which it had changed", file=sys.stderr)
        for result in results:
            file.append(result)
            found.append(result)
            reason = f": {result.reason}" if result.reason else ""
            print(f"{script_name(result)}: {result.status.value}{reason}", file=sys.stderr)
    return _exit_code(found), found


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


def _with_best_batch(placement: Placement, how: How, run_id: str) -> Placement:
    """Runs a benchmark with several batch sizes; returns it with the fastest one."""
    once = attrs.evolve(how, repeat=1, alone=False, auto_batch=False)

    def rate(factor: int) -> float | None:
        bench = attrs.evolve(placement.bench, batch_factor=factor)
        run_name = f"{placement.run_name}.batch{factor}"
        tried = attrs.evolve(placement, bench=bench, run_name=run_name)
        [result] = _in_turns([tried], once, run_id)
        throughput = result.measured.throughput
        found = throughput.rate if throughput and result.status is Status.OK else None
        told = f"{found:.5g} {throughput.units}" if throughput and found else result.reason
        print(f"{bench.name}: batch size x {factor}: {told}", file=sys.stderr)
        return found

    best = measuring.best_factor(rate)
    return attrs.evolve(placement, bench=attrs.evolve(placement.bench, batch_factor=best))


def _in_turns(places: Sequence[Placement], how: How, run_id: str) -> list[Result]:
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
            outcomes[alone] = phases.do(RUN, attrs.evolve(placement, run_name=name), wishes)
            if not alone:
                ended = outcomes[alone].ended
                foreign_cpu_share = foreign.share(sum(command.cpu_s for command in ended))
    return Replicate(
        outcome=outcomes[False],
        alone=outcomes.get(True),
        wall_s=time.monotonic() - started,
        foreign_cpu_share=foreign_cpu_share,
    )


def _exit_code(results: Sequence[Result]) -> int:
    """Returns 2 for a wrong output, 1 for another failure, 3 if nothing could be measured."""
    statuses = {result.status for result in results}
    if Status.WRONG_OUTPUT in statuses:
        return EXIT_WRONG
    if statuses - {Status.OK, Status.UNSUPPORTED}:
        return EXIT_FAILED
    return EXIT_OK if Status.OK in statuses else EXIT_MISSING


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
    found = {}
    for path in sorted(placement.dirs["venv"].glob("lib/python*/site-packages/*.dist-info")):
        name, _, version = path.name.removesuffix(".dist-info").rpartition("-")
        found[name] = version
    return found
