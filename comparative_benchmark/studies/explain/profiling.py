"""Profiles a recorded trial in a new worker; profiling runs are not used as measurements."""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

from comparative_benchmark.analysis.machine import conditions
from comparative_benchmark.analysis.machine.host import cpu_model, default_threads, usable_cpus
from comparative_benchmark.api import recorded_trials
from comparative_benchmark.backends.operator_profile import FILE, OperatorProfile, combined, write
from comparative_benchmark.engine.messages import Timeline
from comparative_benchmark.engine.participant import Participant
from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.runner import Observer
from comparative_benchmark.engine.session import Hidden
from comparative_benchmark.engine.settings import ProcessPlan, RunSettings, settings_of
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results import published
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Status

# A single profile may be disturbed, and has no spread.
_PROFILES = 3


class NoProfileError(Exception):
    """A profile is not available; the message gives the trial and the reason."""


@attrs.frozen(kw_only=True)
class Profiling:
    """How to profile the results of a file.

    Attributes:
      results: the results file; profiles are stored next to it.
      again: profile again, even if profiles are stored.
      stored_only: take no new profiles.
      suites: modules or folders with the cases of the file.
      recorded_python: run the interpreter that the file records.
      timeout_s: time limit to profile one competitor.
      memory_bytes: memory limit of a worker; None for the memory that is available.
    """

    results: Path
    again: bool = False
    stored_only: bool = False
    suites: Sequence[str] = ()
    recorded_python: bool = False
    timeout_s: float = 1800.0
    memory_bytes: int | None = None


def profile_of(case: Case, wanted: Profiling, observer: Observer) -> OperatorProfile:
    """Returns the stored profile of a result, or takes several in one worker and stores them.

    Raises:
      UsageError: its trial no longer exists, or this machine has another CPU.
      NoProfileError: it cannot be profiled, or the stored profile cannot be read.
    """
    folder = wanted.results.absolute().parent
    if not wanted.again:
        path = published.find(folder, case.result)
        if path is not None:
            try:
                return published.read(path)
            except (OSError, ValueError) as error:
                raise NoProfileError(
                    f"{path} is not a valid profile ({error}); profile again with --again"
                ) from error
    if wanted.stored_only:
        raise NoProfileError(
            f"no profile for {case.competitor} is stored next to {wanted.results}; omit "
            "--no-profiling to record one"
        )
    trial = recorded_trials.trial_of(
        case, wanted.suites, run_recorded_python=wanted.recorded_python, exports=False
    )
    with tempfile.TemporaryDirectory(prefix="cbs-explain-", ignore_cleanup_errors=True) as scratch:
        return _take(trial, case, wanted, observer, Path(scratch))


def _take(
    trial: Trial, case: Case, wanted: Profiling, observer: Observer, scratch: Path
) -> OperatorProfile:
    settings = attrs.evolve(_settings(trial, case, wanted), log_dir=scratch / "logs")
    preparation = Preparation(settings, observer.preparing)
    preparation.run([trial])
    if failure := preparation.failures.get(trial.case.name):
        raise NoProfileError(
            f"{trial.case.name}: inputs cannot be created ({failure.status.value} in "
            f"{failure.phase}: {failure.reason})"
        )
    observer.say(f"profiling  {trial}")
    artifacts = preparation.artifacts[trial.workload.digest]
    directory = published.folder_for(wanted.results.absolute(), case.result)
    plan = ProcessPlan(
        replicate=0,
        work_dir=scratch / "work",
        cache_dir=scratch / "cache",
        log_file=scratch / "logs" / "profile.log",
        cold=False,
        track=Timeline().process(str(trial)),
        framework=trial.case.model.model_impl.framework_type.value,
        hidden=Hidden.of(artifacts.directory),
    )
    for path in (plan.work_dir, plan.cache_dir):
        path.mkdir()
    profiles, seen = [], []
    with Participant(trial, artifacts, settings, plan) as participant:
        participant.start()
        record = participant.record
        if record.status is not Status.OK:
            why = f"{record.status.value} in {record.phase}: {record.reason}"
            raise NoProfileError(f"{trial}: {why}")
        for number in range(1, _PROFILES + 1):
            folder = directory / str(number)
            watch = _Watch(participant)
            taken = participant.take_profile(folder, case.metrics.latencies_ms or ())
            seen.append(watch.seen(settings.threads))
            if taken is None or taken.error or FILE not in taken.files:
                reason = (taken and taken.error) or "the backend reports no operators"
                raise NoProfileError(f"{trial}: {reason}")
            profiles.append(published.read(folder / FILE))
    profile = combined(profiles, _disturbance(seen))
    write(profile, directory)
    return profile


class _Watch:
    """Observes other processes on the CPUs while this process waits for a worker."""

    def __init__(self, participant: Participant) -> None:
        self._participant = participant
        self._before, self._cpu_ms = conditions.take(), participant.cpu_ms()

    def seen(self, threads: int) -> conditions.Conditions | None:
        """Returns conditions since the start; None if the worker's CPU time is unknown."""
        after, cpu_ms = conditions.take(), self._participant.cpu_ms()
        if cpu_ms is None or self._cpu_ms is None:
            return None
        own_ms = cpu_ms - self._cpu_ms
        # Count the worker's CPU time as ours.
        ours = attrs.evolve(after, cpu_ns=after.cpu_ns + round(own_ms * 1e6))
        wall_ms = (after.time_ns - self._before.time_ns) / 1e6
        return conditions.between(
            self._before, ours, own_cpu_ms=own_ms, wall_ms=wall_ms, threads=threads
        )


def _disturbance(seen: Sequence[conditions.Conditions | None]) -> str:
    """Describes disturbances while profiles were taken; empty without disturbances."""
    contended = [item for item in seen if item and item.contended]
    if not contended:
        return ""
    reason = contended[0].reasons[0]
    return (
        f"other processes used the CPUs during {len(contended)} of {len(seen)} profiles ({reason})"
    )


def _settings(trial: Trial, case: Case, wanted: Profiling) -> RunSettings:
    """Returns the settings of the result, as far as this machine supports them."""
    pinned = case.host.pinned_cpus if case.host else ()
    cpus = pinned if set(pinned) <= os.sched_getaffinity(0) else ()
    if case.host and case.host.cpu_model != cpu_model():
        raise UsageError(
            f"the result was measured on {case.machine}, but this machine has {cpu_model()}; "
            "profile on the same kind of machine"
        )
    return settings_of(
        trial.device,
        timeout_s=wanted.timeout_s,
        memory_bytes=wanted.memory_bytes,
        cpus=cpus,
        threads=min(case.threads or default_threads().number, usable_cpus()),
        outputs=case.result.definition.outputs,
        only_profiled=True,
    )
