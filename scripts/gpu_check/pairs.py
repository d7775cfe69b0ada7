"""How often verdicts are right on this device: a program against itself, and 3 % slower.

`python -m gpu_check.pairs --device D --backend B --model M --pairs 10
--answer FILE` writes an object for each race: the verdict and the ratio
of the equal pair, and those of the slowed one. Each race has three competitors: the program, the
program again, and the program with a slow-down of 3 % planted into each iteration; all three go
through the same wrapper. Counts of verdicts, not error rates: ten pairs bound no rate.

The measuring is that of `cbs run`, fresh processes and interleaved rounds, with the three processes
that it begins with. All workers of a race start together, as nobody asks for their compile times:
what takes a race's time otherwise is to start them one after the other.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.compare import compare_to_baseline
from comparative_benchmark.results.store import write_atomically
from comparative_benchmark.runs.participant import Participant
from comparative_benchmark.runs.preparation import Preparation
from comparative_benchmark.runs.race import Race
from comparative_benchmark.runs.recording import to_result
from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.runs.trial import Trial
from comparative_benchmark.stats.analysis import CLOSE_VERDICT_PROCESSES
from comparative_benchmark.stats.sampling_rule import SamplingRule
from comparative_benchmark.terminal.options import find_device
from gpu_check.driver import LIMIT_VARIABLE
from gpu_check.rivals import slowed, trial_of
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts

SLOW_DOWN = 0.03
EQUAL, SLOWER = "equal", "slowed"
_INCOMPARABLE = "incomparable"
_PROCESSES = CLOSE_VERDICT_PROCESSES
_RESERVE_S = 10.0


@attrs.frozen(kw_only=True)
class Verdict:
    """What a race said of one candidate against the baseline.

    Attributes:
      kind: `equal` or `slowed`.
      verdict, reason: as `cbs run --baseline` gives them.
      ratio: candidate / baseline; None where there is none.
      half_width: half the 98 % interval of the ratio, relative.
      right: None where a verdict is neither right nor wrong (`unclear`, `same` of a slow-down).
    """

    kind: str
    verdict: str
    reason: str
    ratio: float | None
    half_width: float | None

    @property
    def right(self) -> bool | None:
        """Whether the verdict is right."""
        wrong = {EQUAL: ("faster", "slower"), SLOWER: ("faster",)}[self.kind]
        if self.verdict in wrong:
            return False
        good = {EQUAL: ("same", "unclear"), SLOWER: ("slower",)}[self.kind]
        return True if self.verdict in good else None


class Volley(Race):
    """A race whose workers all start at the same time; their compile times mean nothing."""

    def _race(self, rule: SamplingRule, folder: Path) -> None:
        replicates = [
            [self._participant(trial, replicate, folder) for trial in self._trials]
            for replicate in range(rule.max_processes)
        ]
        everyone = [participant for replicate in replicates for participant in replicate]
        with self._starting(), ExitStack() as workers:
            for participant in everyone:
                workers.enter_context(participant)
            self._in_threads(_start_and_pause, everyone)
            for index, group in enumerate(replicates):
                self._measure(rule, group, random.Random(f"{rule.seed}/{index}"))  # noqa: S311
        self._note_race(rule)

    def _measure(
        self, rule: SamplingRule, group: Sequence[Participant], order: random.Random
    ) -> None:
        started = time.monotonic()
        for participant in order.sample(list(group), len(group)):
            participant.resume()
            participant.warm_up_until_steady(rule)
            participant.pause()
        self._rounds(rule, group, order, started)
        for participant in group:
            participant.finish()
            self._keep(participant, (time.monotonic() - started) / len(group))
            participant.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Races until there are enough pairs or the time is up.

    Returns:
      1 if a verdict was wrong, or there was none since a worker failed.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True, type=find_device)
    parser.add_argument("--backend", required=True, help="backend:compiler")
    parser.add_argument("--model", required=True)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument(
        "--seconds",
        type=float,
        default=float(os.environ.get(LIMIT_VARIABLE, "200")) - _RESERVE_S,
        help="start no race that would end later (default: the time limit of the step)",
    )
    parser.add_argument("--answer", required=True, type=Path)
    options = parser.parse_args(arguments)
    started = time.monotonic()
    backend, _, compiler = options.backend.partition(":")
    sides = {"a": 0.0, "a-again": 0.0, "a-slowed": SLOW_DOWN}
    trials = [
        trial_of(options.model, slowed(name, share, backend, compiler), options.device)
        for name, share in sides.items()
    ]
    found: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="cbs-pairs-") as folder:
        artifacts = prepare(trials[0], Path(folder))
        for number, verdicts in enumerate(races(trials, artifacts, Path(folder), options.pairs)):
            found += verdicts
            write_atomically(options.answer, summary(found, options.pairs))
            print(number + 1, *map(str, verdicts), sep="\n  ", flush=True)
            # The next race takes about as long as the ones before.
            spent_s = time.monotonic() - started
            if spent_s * (number + 2) / (number + 1) > options.seconds:
                break
    bad = [item for item in found if item.right is False or item.verdict == _INCOMPARABLE]
    return 1 if bad else 0


def races(
    trials: Sequence[Trial], artifacts: WorkloadArtifacts, log_dir: Path, count: int
) -> Iterator[list[Verdict]]:
    """Yields the verdicts of one race after the other."""
    baseline = str(trials[0].competitor)
    for number in range(count):
        settings = RunSettings(
            device=trials[0].device,
            sampling=SamplingRule(min_processes=_PROCESSES, max_processes=_PROCESSES, seed=number),
            baseline=baseline,
            log_dir=log_dir,
        )

        def log_file(trial: Trial, replicate: int) -> Path:
            return log_dir / f"{trial.competitor.backend.name}.{replicate}.log"

        race = Volley(trials, artifacts, settings, log_file=log_file)
        race.run()
        results = (to_result(trial, race.outcomes[trial.key], run_id="pairs") for trial in trials)
        cases = [Case(result=result) for result in results]
        by_name = {item.competitor: item for item in compare_to_baseline(cases, baseline)}
        kinds = dict(zip((EQUAL, SLOWER), trials[1:], strict=True))
        yield [_verdict(kind, by_name[str(t.competitor)]) for kind, t in kinds.items()]


def prepare(trial: Trial, log_dir: Path) -> WorkloadArtifacts:
    """Returns inputs and truth of a trial's workload, made where there are none.

    Raises:
      SystemExit: they cannot be made.
    """
    settings = RunSettings(device=trial.device, log_dir=log_dir)
    preparation = Preparation(settings, lambda what: print(f"preparing {what}", flush=True))
    preparation.run([trial])
    if failure := preparation.failures.get(trial.case.name):
        raise SystemExit(f"{trial.case.name}: {failure}")
    return preparation.artifacts[trial.workload.digest]


def summary(found: Sequence[Verdict], wanted: int) -> Mapping[str, Any]:
    """Returns counts by kind, and all verdicts, as JSON values."""
    return {
        "wanted": wanted,
        "kinds": {
            kind: {
                "pairs": len(of_kind),
                "wrong": sum(item.right is False for item in of_kind),
                "right": sum(item.right is True for item in of_kind),
                "incomparable": sum(item.verdict == _INCOMPARABLE for item in of_kind),
            }
            for kind in (EQUAL, SLOWER)
            for of_kind in [[item for item in found if item.kind == kind]]
        },
        "slow_down": SLOW_DOWN,
        "verdicts": [attrs.asdict(item) for item in found],
    }


def _verdict(kind: str, comparison: Any) -> Verdict:
    ratio = comparison.ratio
    return Verdict(
        kind=kind,
        verdict=comparison.verdict.value,
        reason=comparison.reason,
        ratio=ratio.estimate if ratio else None,
        half_width=ratio.relative_half_width if ratio else None,
    )


def _start_and_pause(participant: Participant) -> None:
    participant.start()
    participant.pause()


if __name__ == "__main__":
    raise SystemExit(main())
