"""The jobs of a fleet, and batches of jobs that fit the scheduler.

A job measures one workload with all of its competitors, since ratios are valid only within a
machine. It exists once for each class and repeat.
"""

import hashlib
import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import msgspec

from comparative_benchmark.api.measuring import plan_run
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.description import Fleet
from comparative_benchmark.fleet.spool import UNREADABLE, Work
from comparative_benchmark.request import RunRequest, command_line
from openxla.benchmark.files import sha256_of, write_atomically
from openxla.benchmark.text import one_line

# Expected seconds of a process, without a history: start, compilation, warm-up and rounds.
_SECONDS_PER_PROCESS = 10.0
_PROCESSES = 3
# Part of a batch's time limit that its jobs may be expected to take.
_FULL = 0.5
_KEY_LENGTH = 32


@attrs.frozen(kw_only=True)
class Unit:
    """A workload of a run on a device: cases that are compared with each other.

    Attributes:
      run: index of the run in FLEET.toml.
      digest: digest of the workload; of the whole request and all of its workloads if the cases are
        not in the catalogue.
      label: the workload as shown in tables.
      cases: names of the cases; empty for all cases of the run.
      competitors: names of the competitors, in the order of the run.
      trials: number of trials.
      device: the device.
    """

    run: int
    digest: str
    label: str
    cases: tuple[str, ...]
    competitors: tuple[str, ...]
    trials: int
    device: str = "host-cpu"


@attrs.frozen(kw_only=True)
class Job:
    """One unit on one class, for one repeat.

    Attributes:
      key: digest of workload, competitors, options, class, repeat, revision and campaign.
      arguments: arguments of `cbs run`, without the results file.
      repeat: number of the repeat, from 0.
      trials: expected number of results.
      expected_s: expected duration.
    """

    key: str
    label: str
    machine_class: str
    repeat: int
    arguments: tuple[str, ...]
    trials: int
    expected_s: float

    def work(self, attempt: int = 0) -> Work:
        """Returns the job as its node needs it."""
        return Work(
            key=self.key,
            attempt=attempt,
            label=self.label,
            repeat=self.repeat,
            arguments=self.arguments,
            trials=self.trials,
        )


@attrs.frozen(kw_only=True)
class Plan:
    """All jobs of a campaign.

    Attributes:
      fleet: name of the fleet.
      campaign: name that distinguishes one execution of the fleet from the next.
      revision: revision of the suite.
      file_sha256: digest of the FLEET.toml.
    """

    fleet: str
    campaign: str
    revision: str
    file_sha256: str
    jobs: tuple[Job, ...]

    def by_key(self) -> dict[str, Job]:
        """Returns the jobs by their keys."""
        return {job.key: job for job in self.jobs}


def units_of(fleet: Fleet, report: Callable[[str], None]) -> list[Unit]:
    """Returns the units of all runs, on each device of the fleet's classes.

    Args:
      fleet: the fleet.
      report: called with lines about competitors that will not run.

    Raises:
      UsageError: a run selects nothing, or an option is invalid.
    """
    return [
        unit
        for number, request in enumerate(fleet.runs)
        for device in _unique(item.device or request.device for item in fleet.classes)
        for unit in _units(number, attrs.evolve(request, device=device), report)
    ]


def _units(number: int, request: RunRequest, report: Callable[[str], None]) -> Iterator[Unit]:
    # Jobs name their own results files; the folder of the default one must not be created here.
    output = Path(tempfile.gettempdir(), "results.json")
    planned = plan_run(attrs.evolve(request, output=output), report)
    from_catalogue = request.model is None and not request.torchbench
    # A user's model keeps its name if its file changes.
    digests = sorted({trial.workload.digest for trial in planned.trials})
    whole = _digest([command_line(request, without=("output",)), digests])
    workloads: defaultdict[str, list[Trial]] = defaultdict(list)
    for trial in planned.trials:
        workloads[trial.workload.digest if from_catalogue else whole].append(trial)
    for digest, trials in workloads.items():
        yield Unit(
            run=number,
            digest=digest,
            label=trials[0].workload.label,
            cases=_unique(trial.case.name for trial in trials) if from_catalogue else (),
            competitors=_unique(str(trial.competitor) for trial in trials),
            trials=len(trials),
            device=request.device,
        )


def plan_jobs(
    fleet: Fleet,
    units: Iterable[Unit],
    *,
    revision: str,
    campaign: str,
    durations_s: Mapping[str, float] | None = None,
) -> Plan:
    """Returns the jobs of a fleet: each unit on each class with its device, once for each repeat.

    Args:
      fleet: the fleet.
      units: units of its runs.
      revision: revision of the suite.
      campaign: see `Plan`.
      durations_s: durations of earlier jobs, by `duration_key`.
    """
    jobs: dict[str, Job] = {}
    for unit in units:
        request = fleet.runs[unit.run]
        arguments = _arguments(request, unit)
        for machine_class in fleet.classes:
            if unit.device != (machine_class.device or request.device):
                continue
            processes = request.processes or _PROCESSES
            expected_s = (durations_s or {}).get(
                duration_key(machine_class.name, arguments),
                _SECONDS_PER_PROCESS * processes * unit.trials,
            )
            for repeat in range(machine_class.repeats):
                identity = [
                    *(unit.digest, unit.competitors, unit.cases, arguments),
                    *(machine_class.name, repeat, revision, campaign),
                ]
                key = _digest(identity)
                jobs[key] = Job(
                    key=key,
                    label=unit.label,
                    machine_class=machine_class.name,
                    repeat=repeat,
                    arguments=arguments,
                    trials=unit.trials,
                    expected_s=expected_s,
                )
    return Plan(
        fleet=fleet.name,
        campaign=campaign,
        revision=revision,
        file_sha256=sha256_of(fleet.path),
        jobs=tuple(jobs.values()),
    )


def duration_key(machine_class: str, arguments: Sequence[str]) -> str:
    """Returns the name under which the duration of a job is kept for later plans."""
    return f"{machine_class} {_digest(arguments)}"


def batches_of(fleet: Fleet, jobs: Iterable[Job]) -> list[tuple[Job, ...]]:
    """Packs jobs into batches of about `batch_minutes`, each of one class and one repeat.

    Long jobs come first. A batch is expected to take at most half of its time limit; a longer job
    has a batch to itself.
    """
    groups: defaultdict[tuple[str, int], list[Job]] = defaultdict(list)
    for job in jobs:
        groups[job.machine_class, job.repeat].append(job)
    batches: list[tuple[Job, ...]] = []
    for (name, _), members in groups.items():
        limit_s = _FULL * fleet.machine_class(name).time_limit_s
        room_s = min(60.0 * fleet.batch_minutes, limit_s)
        batch: list[Job] = []
        filled_s = 0.0
        for job in sorted(members, key=lambda job: (-job.expected_s, job.key)):
            if batch and filled_s + job.expected_s > room_s:
                batches.append(tuple(batch))
                batch, filled_s = [], 0.0
            batch.append(job)
            filled_s += job.expected_s
        batches.append(tuple(batch))
    return batches


def save_plan(path: Path, plan: Plan) -> None:
    """Writes a plan atomically."""
    write_atomically(path, msgspec.json.encode(plan))


def load_plan(path: Path) -> Plan | None:
    """Returns a stored plan; None if the file does not exist.

    Raises:
      UsageError: the file is damaged.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        raise UsageError(
            f"{path} cannot be read: {one_line(str(error))}; remove it and submit again (claims "
            "and results are kept)"
        ) from error


def _arguments(request: RunRequest, unit: Unit) -> tuple[str, ...]:
    changes: dict[str, Any] = {"device": unit.device}
    if unit.cases:
        # A list of whole names, so that nothing else of the catalogue matches.
        changes["name"] = "|".join(map(_literal, unit.cases))
        # The request's own options add the environments, as in `jax_xla:xla@old`.
        changes["backends"] = _unique(name.partition("@")[0] for name in unit.competitors)
        changes["tag"] = changes["framework"] = None
    return tuple(command_line(attrs.evolve(request, **changes), without=("output",)))


def _literal(name: str) -> str:
    return "".join(f"\\{letter}" if letter in r".^$*+?{}[]\|()" else letter for letter in name)


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:_KEY_LENGTH]


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
