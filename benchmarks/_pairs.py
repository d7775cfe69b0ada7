"""Compares two competitors on one workload, by our race and by the usual methods."""

import contextlib
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from _usual_methods import USUAL_METHODS, middle_ratio, t_test

from comparative_benchmark.analysis.machine.host import describe, usable_cpus
from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.analysis.stats.planning import FixedCounts, SamplingRule
from comparative_benchmark.engine.race import Race
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare import compare_to_baseline
from comparative_benchmark.results.outcome import TrialOutcome
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts

RACED = "raced"


@attrs.frozen(kw_only=True)
class Found:
    """Result of one method for a pair.

    Attributes:
      verdict, reason: verdict on the candidate against the baseline.
      ratio: candidate / baseline; None without a result.
      half_width: half the 98 % interval of the ratio, relative; None for methods without one.
      processes: number of processes of the candidate.
      stop_reason: why no further process of the candidate was started.
      wall_s: wall time, including the start of the processes.
      announced: relative difference that the race expects to detect.
      disturbed: whether other processes disturbed the race, so that it has no verdict.
    """

    verdict: str
    reason: str
    wall_s: float
    ratio: float | None = None
    half_width: float | None = None
    processes: int = 1
    stop_reason: str | None = None
    announced: float | None = None
    disturbed: bool = False


@attrs.frozen(kw_only=True)
class Pair:
    """Two trials to compare."""

    baseline: Trial
    candidate: Trial


def machine() -> dict[str, Any]:
    """Returns the conditions that all results of a table must share."""
    host = describe(threads=usable_cpus())
    return {name: host[name] for name in ("cpu_model", "usable_cpus", "system", "python")}


def seed_of(seed: int, section: str, number: int) -> int:
    """Returns the seed of a pair: unique, and the same after an interruption."""
    return random.Random(f"{seed}/{section}/{number}").getrandbits(31)


def judge(
    pair: Pair,
    artifacts: WorkloadArtifacts,
    *,
    counts: FixedCounts,
    seed: int,
    load: contextlib.AbstractContextManager[object],
    log_dir: Path,
) -> dict[str, dict[str, Any]]:
    """Returns the result of each method under a load, as JSON values by the method's name."""
    with load:
        found = {RACED: raced(pair, artifacts, seed=seed, log_dir=log_dir)}
        found |= one_after_the_other(pair, artifacts, counts=counts, log_dir=log_dir)
    return {name: attrs.asdict(value) for name, value in found.items()}


def raced(pair: Pair, artifacts: WorkloadArtifacts, *, seed: int, log_dir: Path) -> Found:
    """Races a pair with the defaults of `cbs run`, and compares it as `--baseline` does."""
    baseline = str(pair.baseline.competitor)
    settings = RunSettings(
        device=pair.candidate.device,
        sampling=SamplingRule(seed=seed),
        baseline=baseline,
        log_dir=log_dir,
    )
    trials = [pair.baseline, pair.candidate]
    started = time.monotonic()
    outcomes = _run(trials, artifacts, settings)
    wall_s = time.monotonic() - started
    cases = [
        Case(result=to_result(trial, outcome, run_id="pair"))
        for trial, outcome in zip(trials, outcomes, strict=True)
    ]
    # If the baseline has a wrong output, it has an entry too, before the candidate's.
    comparison = compare_to_baseline(cases, baseline)[-1]
    ratio = comparison.ratio
    return Found(
        verdict=comparison.verdict.value,
        reason=comparison.reason,
        wall_s=wall_s,
        ratio=ratio.estimate if ratio else None,
        half_width=ratio.relative_half_width if ratio else None,
        processes=len(outcomes[1].processes),
        stop_reason=outcomes[1].stop_reason,
        announced=outcomes[1].race.decidable,
        disturbed=comparison.disturbed,
    )


def one_after_the_other(
    pair: Pair, artifacts: WorkloadArtifacts, *, counts: FixedCounts, log_dir: Path
) -> dict[str, Found]:
    """Compares one process of the baseline and then one of the candidate by the usual methods."""
    settings = RunSettings(device=pair.candidate.device, sampling=counts, log_dir=log_dir)
    started = time.monotonic()
    before, after = (
        _run([trial], artifacts, settings)[0] for trial in (pair.baseline, pair.candidate)
    )
    wall_s = time.monotonic() - started
    for outcome in (before, after):
        if ended := outcome.ended_by:
            reason = f"{outcome.status.value} in {ended.phase}: {ended.reason}"
            none = Found(verdict=Verdict.INCOMPARABLE.value, reason=reason, wall_s=wall_s)
            return dict.fromkeys(USUAL_METHODS, none)
    baseline, candidate = (np.array(side.processes[0].latencies_ms) for side in (before, after))
    return {
        name: Found(
            verdict=t_test(candidate, baseline, middle).value,
            reason="",
            wall_s=wall_s,
            ratio=middle_ratio(candidate, baseline, middle),
            stop_reason=after.stop_reason,
        )
        for name, middle in USUAL_METHODS.items()
    }


def _run(
    trials: Sequence[Trial], artifacts: WorkloadArtifacts, settings: RunSettings
) -> list[TrialOutcome]:
    def log_file(trial: Trial, replicate: int) -> Path:
        return settings.log_dir / f"{trial.competitor.backend.name}.{replicate}.log"

    race = Race(trials, artifacts, settings, log_file=log_file, say=lambda _: None)
    race.run()
    return [race.outcomes[trial.key] for trial in trials]
