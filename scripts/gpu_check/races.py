"""Races of the check: the large models, and pairs of programs whose ratio is known.

    python -m gpu_check.races prepare --device D --backend B -name REGEX
    python -m gpu_check.races pairs --device D --backend B --model M --pairs 10 --answer FILE
    cbs list --suite gpu_check.races -name 'models/CHECK_.+'

`prepare` makes checkpoints, inputs and truths of the large models, which a race would otherwise do
when it starts. Each complete workload is stored at once, so a time limit costs at most one.

`pairs` counts how often verdicts are right on a device. Each race has three competitors: a program,
the same program again, and the same program with each iteration prolonged by 3 %. All three run
through the same wrapper. Ten pairs are too few for an error rate. The measurement is the same as in
`cbs run`: fresh processes and interleaved rounds, with the initial number of processes.

The large models are BERT-base, ResNet-50 and ViT-base at batch 1 and 32, because their published
variants have no batch sizes in common. They are a separate suite, so that the check neither adds
names to the catalogue nor depends on additions to it.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.analysis.stats.analysis import CLOSE_VERDICT_PROCESSES
from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.engine import runner
from comparative_benchmark.engine.participant import Participant
from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.race import Race
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Competitor, Trial, parse_competitors
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare import Comparison, compare_to_baseline
from comparative_benchmark.results.results_file import write_atomically
from comparative_benchmark.sources.selection import find_device
from gpu_check import slow_down
from gpu_check.steps import LIMIT_VARIABLE
from openxla.benchmark import devices
from openxla.benchmark.artifacts.workload_store import WorkloadArtifacts
from openxla.benchmark.comparative_suite import catalog, families, utils, zoo
from openxla.benchmark.comparative_suite.families import Family
from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec
from openxla.benchmark.workloads import workload_of

SLOW_DOWN = 0.03
EQUAL, SLOWER = "equal", "slowed"
_INCOMPARABLE = "incomparable"
# Seconds before the time limit of the step at which the last race must have ended.
_RESERVE_S = 10.0


def _family(family: Family, name: str, **parameters: int) -> Family:
    return attrs.evolve(
        family,
        name=f"CHECK_{name}_${{DATA_TYPE}}_${{FRAMEWORK}}_BATCH${{batch_size}}",
        axis="batch_size",
        sizes=(1, 32),
        tags=(utils.BATCH_TAG,),
        parameters=parameters,
        tflite=(),
        verify_parameters={},
        published=False,
        changes={},
    )


FAMILIES = {
    "CHECK_BERT_BASE": _family(zoo.BERT_BASE, "BERT_BASE", seq_len=128),
    "CHECK_RESNET50": _family(zoo.RESNET50, "RESNET50"),
    "CHECK_VIT_BASE": _family(zoo.VIT_BASE, "VIT_BASE"),
}

ALL_BENCHMARKS = utils.collect(
    {name: families.definitions(name, FAMILIES) for name in ("PT", "JAX")}, BenchmarkCase
)


@attrs.frozen(kw_only=True)
class Verdict:
    """Verdict on one candidate against the baseline.

    Attributes:
      kind: `equal` or `slowed`.
      verdict, reason: as in `cbs run --baseline`.
      ratio: candidate / baseline; None if it is unknown.
      half_width: half the 98 % interval of the ratio, relative; None if it is unknown.
    """

    kind: str
    verdict: str
    reason: str
    ratio: float | None
    half_width: float | None

    @property
    def right(self) -> bool | None:
        """Whether the verdict is right; None if neither, e.g. `unclear` for a slow-down."""
        wrong = {EQUAL: ("faster", "slower"), SLOWER: ("faster",)}[self.kind]
        if self.verdict in wrong:
            return False
        good = {EQUAL: ("same", "unclear"), SLOWER: ("slower",)}[self.kind]
        return True if self.verdict in good else None


class SimultaneousRace(Race):
    """A race whose workers all start at the same time, which makes compile times meaningless.

    Most of a race's time would otherwise pass while workers start one after another.
    """

    def _race(self, rule: SamplingRule, folder: Path) -> None:
        replicates = [
            [self._participant(trial, replicate, folder) for trial in self._trials]
            for replicate in range(rule.max_processes)
        ]
        participants = [participant for replicate in replicates for participant in replicate]
        with self._starting(), ExitStack() as workers:
            for participant in participants:
                workers.enter_context(participant)
            self._in_threads(_start_and_pause, participants)
            for index, replicate in enumerate(replicates):
                order = random.Random(f"{rule.seed}/{index}")  # noqa: S311
                self._measure(rule, replicate, order)
        self._note_race(rule)

    def _measure(
        self, rule: SamplingRule, replicate: Sequence[Participant], order: random.Random
    ) -> None:
        started = time.monotonic()
        for participant in order.sample(list(replicate), len(replicate)):
            participant.resume()
            participant.warm_up_until_steady(rule)
            participant.pause()
        self._rounds(rule, replicate, order, started)
        for participant in replicate:
            participant.finish()
            self._keep(participant, (time.monotonic() - started) / len(replicate))
            participant.close()


def _start_and_pause(participant: Participant) -> None:
    participant.start()
    participant.pause()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `prepare` or `pairs`, and returns its exit code."""
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    preparing = commands.add_parser("prepare")
    preparing.set_defaults(run=_run_prepare)
    preparing.add_argument("-name", required=True)
    pairing = commands.add_parser("pairs")
    pairing.set_defaults(run=_run_pairs)
    pairing.add_argument("--model", required=True)
    pairing.add_argument("--pairs", type=int, default=10)
    pairing.add_argument(
        "--seconds",
        type=float,
        default=float(os.environ.get(LIMIT_VARIABLE, "200")) - _RESERVE_S,
        help="time limit in seconds, checked before each race (default: the step's time limit)",
    )
    pairing.add_argument("--answer", required=True, type=Path)
    for command in (preparing, pairing):
        command.add_argument("--device", required=True, type=find_device)
        command.add_argument("--backend", required=True, help="competitor, as BACKEND:COMPILER")
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code


def _run_prepare(options: argparse.Namespace) -> int:
    """Returns 1 if a workload could not be prepared."""
    cases = catalog.select(ALL_BENCHMARKS, name=options.name)
    competitors = parse_competitors(options.backend, options.device.accelerator_type)
    trials = runner.plan(cases, competitors, options.device).trials
    with tempfile.TemporaryDirectory(prefix="cbs-prepare-logs-") as folder:
        failures = _prepare(trials, options.device, Path(folder)).failures
    for case, failure in failures.items():
        print(f"{case}: {failure}")
    return 1 if failures else 0


def _run_pairs(options: argparse.Namespace) -> int:
    """Races until all pairs are judged or the time is up.

    Returns:
      1 if a verdict was wrong, or if a worker failed before a verdict.
    """
    started = time.monotonic()
    backend, _, compiler = options.backend.partition(":")
    shares = {"a": 0.0, "a-again": 0.0, "a-slowed": SLOW_DOWN}
    trials = [
        trial_of(options.model, slowed(name, share, backend, compiler), options.device)
        for name, share in shares.items()
    ]
    verdicts: list[Verdict] = []
    with tempfile.TemporaryDirectory(prefix="cbs-pairs-") as folder:
        artifacts = prepare(trials[0], Path(folder))
        for number in range(options.pairs):
            judged = _race_pairs(trials, artifacts, Path(folder), seed=number)
            verdicts += judged
            write_atomically(options.answer, summary(verdicts, options.pairs))
            print(number + 1, *map(str, judged), sep="\n  ", flush=True)
            # The next race will take about as long as the previous ones.
            spent_s = time.monotonic() - started
            if spent_s * (number + 2) / (number + 1) > options.seconds:
                break
    bad = [item for item in verdicts if item.right is False or item.verdict == _INCOMPARABLE]
    return 1 if bad else 0


def _race_pairs(
    trials: Sequence[Trial], artifacts: WorkloadArtifacts, log_dir: Path, *, seed: int
) -> list[Verdict]:
    """Races the baseline, its equal and the slowed program; returns verdicts on the last two."""
    baseline = str(trials[0].competitor)
    processes = CLOSE_VERDICT_PROCESSES
    settings = RunSettings(
        device=trials[0].device,
        sampling=SamplingRule(min_processes=processes, max_processes=processes, seed=seed),
        baseline=baseline,
        log_dir=log_dir,
    )

    def log_file(trial: Trial, replicate: int) -> Path:
        return log_dir / f"{trial.competitor.backend.name}.{replicate}.log"

    race = SimultaneousRace(trials, artifacts, settings, log_file=log_file)
    race.run()
    results = (to_result(trial, race.outcomes[trial.key], run_id="pairs") for trial in trials)
    cases = [Case(result=result) for result in results]
    by_name = {item.competitor: item for item in compare_to_baseline(cases, baseline)}
    kinds = zip((EQUAL, SLOWER), trials[1:], strict=True)
    return [_verdict(kind, by_name[str(trial.competitor)]) for kind, trial in kinds]


def _verdict(kind: str, comparison: Comparison) -> Verdict:
    ratio = comparison.ratio
    return Verdict(
        kind=kind,
        verdict=comparison.verdict.value,
        reason=comparison.reason,
        ratio=ratio.estimate if ratio else None,
        half_width=ratio.relative_half_width if ratio else None,
    )


def summary(verdicts: Sequence[Verdict], wanted: int) -> Mapping[str, Any]:
    """Returns counts by kind and all verdicts, as JSON values."""
    by_kind = {kind: [item for item in verdicts if item.kind == kind] for kind in (EQUAL, SLOWER)}
    return {
        "wanted": wanted,
        "kinds": {
            kind: {
                "pairs": len(items),
                "wrong": sum(item.right is False for item in items),
                "right": sum(item.right is True for item in items),
                "incomparable": sum(item.verdict == _INCOMPARABLE for item in items),
            }
            for kind, items in by_kind.items()
        },
        "slow_down": SLOW_DOWN,
        "verdicts": [attrs.asdict(item) for item in verdicts],
    }


def prepare(trial: Trial, log_dir: Path) -> WorkloadArtifacts:
    """Returns inputs and truth of a trial's workload, and makes missing ones.

    Raises:
      SystemExit: they cannot be made.
    """
    preparation = _prepare([trial], trial.device, log_dir)
    if failure := preparation.failures.get(trial.case.name):
        raise SystemExit(f"{trial.case.name}: {failure}")
    return preparation.artifacts[trial.workload.digest]


def _prepare(trials: Sequence[Trial], device: DeviceSpec, log_dir: Path) -> Preparation:
    settings = RunSettings(device=device, log_dir=log_dir)
    preparation = Preparation(settings, lambda name: print(f"preparing {name}", flush=True))
    preparation.run(trials)
    return preparation


def renamed(name: str, backend: str = "jax_xla", compiler: str = "xla") -> Competitor:
    """Returns a backend under another name, so that it can race against itself."""
    info = attrs.evolve(get_backend(backend), name=name)
    return Competitor(backend=info, compiler=info.compiler(compiler))


def slowed(name: str, share: float, backend: str = "jax_xla", compiler: str = "xla") -> Competitor:
    """Returns a backend whose iterations take 1 + share of their time."""
    base = get_backend(backend)
    # Workers must find this package, which is not installed.
    path = [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]
    info = attrs.evolve(
        base,
        name=name,
        implementation="gpu_check.slow_down:SlowedBackend",
        environment={
            **base.environment,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            slow_down.SHARE_VARIABLE: str(share),
            slow_down.BASE_VARIABLE: base.implementation,
        },
    )
    return Competitor(backend=info, compiler=info.compiler(compiler))


def trial_of(model: str, competitor: Competitor, device: DeviceSpec = devices.HOST_CPU) -> Trial:
    """Returns the trial of a model of the suite on its default input."""
    cases = (case for case in catalog.all_benchmarks() if case.model.name == model)
    case = next(case for case in cases if case.input_data.name == "INPUT_DATA_MODEL_DEFAULT")
    return Trial(case=case, workload=workload_of(case), competitor=competitor, device=device)


if __name__ == "__main__":
    raise SystemExit(main())
