"""The noise floor of a machine, estimated from programs that did not change between runs.

If the compiled program, packages and settings are the same, any difference between two measurements
is noise of the machine: a calibration at no cost, from existing results.
"""

import itertools
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import msgspec
import numpy as np

from comparative_benchmark.analysis.stats.analysis import NOISE_THRESHOLD, SampleError, checked
from comparative_benchmark.analysis.stats.planning import (
    Outlook,
    SamplingRule,
    outlook,
    sd_of_noise_floor,
)
from comparative_benchmark.results.case import (
    LATENCY,
    UNKNOWN,
    Case,
    cases_of,
    setting_differences,
    settings,
)
from comparative_benchmark.results.comparing.comparison import process_samples
from comparative_benchmark.results.record import Document, Metrics, Status
from comparative_benchmark.results.results_file import plain, write_atomically
from openxla.benchmark.installation import root_dir


def program_digest(metrics: Metrics) -> str | None:
    """Returns the SHA-256 digest of the program that all processes of a result compiled.

    None if the stack provides no digest, as in eager execution, or if processes compiled different
    programs, e.g. due to autotuning: the result is then a mixture, which varies from run to run.
    """
    digest = metrics.program.artifact_sha256
    digests = [process.artifact_sha256 for process in metrics.processes or ()]
    # Older files do not record the digest per process.
    return digest if not any(digests) or set(digests) == {digest} else None


def same_program(old: Case, new: Case) -> bool:
    """Returns whether workload, competitor, device and compiled program are known to be the same.

    Eager PyTorch compiles nothing: its packages are the program, which is the same if
    `surroundings` finds no difference. Other stacks without a digest are unknown.
    """
    digests = [program_digest(case.metrics) for case in (old, new)]
    if old.key != new.key or digests[0] != digests[1]:
        return False
    definition = new.result.definition
    is_eager = (definition.backend, definition.compiler) == ("pt_inductor", "eager")
    return digests[0] is not None or (is_eager and not new.metrics.throughput)


def surroundings(old: Case, new: Case) -> str | None:
    """Returns a difference in the software around a program, or why it is unknown; None if equal.

    Packages, settings, interpreter and harness affect the speed of a program; for the machine, only
    CPU model and thread count are compared. Settings that one side did not record, as in older
    files, count as equal.
    """
    facts = [_facts(case) for case in (old, new)]
    for name in facts[0] | facts[1]:
        values = [side.get(name) for side in facts]
        if values[0] != values[1]:
            return f"{name} {values[0]} vs {values[1]}"
    if old.revision != new.revision:
        return f"harness revision {old.revision} vs {new.revision}"
    return next(setting_differences(old.metrics, new.metrics), None) or unidentified(new)


def unidentified(case: Case) -> str | None:
    """Returns why the software that ran the program cannot be identified; None if it can.

    A development version does not identify a build: two builds of a runtime, before and after a
    change that an engineer wants to measure, may have the same version.
    """
    if not case.result.versions:
        return "package versions are unknown"
    for name, version in case.result.versions.items():
        if "dev" in version:
            return f"{name} {version} may refer to several builds"
    return "the machine is unknown" if case.machine == UNKNOWN else None


def fingerprint(case: Case) -> str:
    """Returns a text that is equal if `surroundings` finds no difference, ignoring the harness.

    Files without recorded settings differ from files with them.
    """
    processor = case.metrics.program.device_name
    facts = {**_facts(case), "processor": processor, "settings": settings(case.metrics)}
    return json.dumps(facts, sort_keys=True, default=str)


def _facts(case: Case) -> dict[str, Any]:
    definition = case.result.definition
    return {
        **case.result.versions,
        "options": definition.options,
        "environment": definition.environment and plain(definition.environment),
        "Python": case.python,
        "threads": case.threads,
        "machine": case.machine,
    }


_SCHEMA = 1
# With fewer pairs, the 95 % quantile is hardly more than their maximum.
FEWEST_FOR_95 = 10


class NoiseFloorError(ValueError):
    """The documents come from several machines; the message names them."""


@attrs.frozen(kw_only=True)
class Noise:
    """Differences between measurements of unchanged programs.

    Attributes:
      pairs: number of pairs of runs of the same program; `programs` is the number of programs.
      median_percent, p95_percent, largest_percent: quantiles of the differences, in percent of the
        faster run.
      processes: median number of processes per run; None in older files.
    """

    pairs: int = attrs.field(validator=attrs.validators.ge(1))
    programs: int = attrs.field(validator=attrs.validators.ge(1))
    median_percent: float = attrs.field(validator=attrs.validators.ge(0))
    p95_percent: float = attrs.field(validator=attrs.validators.ge(0))
    largest_percent: float = attrs.field(validator=attrs.validators.ge(0))
    processes: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(attrs.validators.ge(1))
    )

    def outlook(self, rule: SamplingRule) -> Outlook | None:
        """Returns what races can detect with this noise; None if unknown."""
        if self.processes is None:
            return None
        return outlook(sd_of_noise_floor(self.median_percent / 100, self.processes), rule)


@attrs.frozen(kw_only=True)
class NoiseFloor:
    """Noise of a machine.

    Attributes:
      machine: CPU model, or architecture if the model is unknown; empty without pairs.
      pooled: noise over all pairs; None if no program was measured twice.
      competitors: noise by competitor.
    """

    machine: str
    pooled: Noise | None
    competitors: dict[str, Noise]
    schema: int = _SCHEMA


def noise_floor(documents: Iterable[Document]) -> NoiseFloor:
    """Returns the noise between any two runs of unchanged programs.

    Pools all pairs of runs (from different files, or with different run ids) of one workload,
    competitor and device whose program digest, package versions, settings, interpreter, CPU model
    and thread count are known and equal. The latency of a run is the mean over processes of the
    logarithm of the process median, as in `unpaired_ratio`, so the floor applies to the ratios
    printed by `cbs compare`. Pairs of one program are not independent: the floor describes what
    happened on this machine, not what can happen. It does not include noise common to all runs, and
    does not hold for other times of day, loads or CPUs. Runs may have different harness revisions,
    as two compared files may.

    Args:
      documents: results documents; results without samples are ignored.

    Raises:
      NoiseFloorError: there are pairs from more than one machine.
    """
    runs: defaultdict[tuple[Any, ...], dict[tuple[int, str], _Run]] = defaultdict(dict)
    machines: dict[tuple[Any, ...], Case] = {}
    for position, document in enumerate(documents):
        for case in cases_of(document):
            digest, run = program_digest(case.metrics), _run_of(case)
            if digest is None or run is None or unidentified(case):
                continue
            program = (case.key, digest, fingerprint(case))
            # The latest result of a run counts.
            runs[program][position, case.result.run_id] = run
            machines[program] = case
    by_competitor: defaultdict[str, list[_Program]] = defaultdict(list)
    names = set()
    for program, runs_of_it in runs.items():
        if differences := _differences(runs_of_it):
            processes = [run.processes for run in runs_of_it.values()]
            by_competitor[machines[program].competitor].append(_Program(differences, processes))
            names.add(machines[program].machine)
    if len(names) > 1:
        raise NoiseFloorError(f"expected results from one machine, got {', '.join(sorted(names))}")
    every = [program for programs in by_competitor.values() for program in programs]
    return NoiseFloor(
        machine=next(iter(names), ""),
        pooled=_noise(every) if every else None,
        competitors={name: _noise(programs) for name, programs in sorted(by_competitor.items())},
    )


def floor_text(noise: Noise) -> str:
    """Returns e.g. `12 unchanged programs differ by 0.4 % (median), 2.1 % (95 %)`."""
    one = noise.programs == 1
    counted = f"{noise.programs} unchanged program{'' if one else 's'}"
    if noise.pairs > noise.programs:
        counted += f" ({noise.pairs} pairs of runs)"
    if noise.pairs == 1:
        return f"{counted} differs by {_digits(noise.median_percent)} %"
    upper = (
        f"{_digits(noise.p95_percent)} % (95 %)"
        if noise.pairs >= FEWEST_FOR_95
        else f"{_digits(noise.largest_percent)} % (at most)"
    )
    verb = "differs" if one else "differ"
    return f"{counted} {verb} by {_digits(noise.median_percent)} % (median), {upper}"


def noise_floor_path(machine: str) -> Path:
    """Returns the file under the artifact root that holds the noise floor of a machine."""
    slug = re.sub(r"[^a-z0-9]+", "-", machine.lower()).strip("-")
    return root_dir() / f"noise-floor-{slug}.json"


def save_noise_floor(floor: NoiseFloor) -> Path:
    """Writes the noise floor atomically and returns its path.

    Raises:
      OSError: the file cannot be written.
    """
    path = noise_floor_path(floor.machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, attrs.asdict(floor))
    return path


def load_noise_floor(machine: str) -> NoiseFloor | None:
    """Returns the noise floor of a machine; None without a readable file."""
    try:
        floor = msgspec.json.decode(noise_floor_path(machine).read_bytes(), type=NoiseFloor)
    except (OSError, ValueError, RecursionError):
        return None
    return floor if floor.schema == _SCHEMA and floor.pooled else None


class _Run(NamedTuple):
    log_latency: float  # log of ms
    processes: int


class _Program(NamedTuple):
    differences: list[float]
    processes: list[int]


def _run_of(case: Case) -> _Run | None:
    """Returns the latency of a run; None without a valid measurement."""
    if case.status is not Status.OK or case.quantity != LATENCY:
        return None
    try:
        processes = checked(process_samples(case.metrics))
    except SampleError:
        return None
    logs = [math.log(np.median(values)) for values in processes]
    return _Run(math.fsum(logs) / len(logs), len(logs))


def _differences(runs: Mapping[tuple[int, str], _Run]) -> list[float]:
    """Returns |log ratio| of all pairs of runs; copies of a run in another file are not pairs."""
    distinct = {(run_id, run.log_latency) for (_, run_id), run in runs.items()}
    values = [latency for _, latency in sorted(distinct)]
    return [abs(one - other) for one, other in itertools.combinations(values, 2)]


def _noise(programs: Sequence[_Program]) -> Noise:
    every = np.concatenate([program.differences for program in programs])
    quantiles = [float(value) for value in np.quantile(every, [0.5, 0.95, 1.0])]
    median, p95, largest = (100 * math.expm1(value) for value in quantiles)
    return Noise(
        pairs=every.size,
        programs=len(programs),
        median_percent=median,
        p95_percent=p95,
        largest_percent=largest,
        processes=round(statistics.median(n for program in programs for n in program.processes)),
    )


def _digits(percent: float) -> str:
    return f"{percent:.1f}" if percent < 10 else f"{percent:.0f}"


# Fewer comparisons, or a single backend, may have moved for another common reason.
_FEWEST_MOVED, _FEWEST_BACKENDS = 3, 2
# Maximum share of comparisons that may have moved the other way.
_MOST_APART = 0.1
# Ratios beyond the common move by this factor need another explanation.
_OWN_REASON = 2.0
_FEWEST_RUNS = 3


def common_move(moved: Iterable[tuple[str, float]]) -> float:
    """Returns the log ratio by which all cases moved together; 0 if they did not.

    Backends share neither compiler nor runtime. If all are slower, or all are faster, beyond the
    noise threshold, the machine is the likely cause. Returns the median over all comparisons.

    Args:
      moved: backend and log ratio of each comparison of the two files.
    """
    by_backend: defaultdict[str, list[float]] = defaultdict(list)
    for backend, log in moved:
        by_backend[backend].append(log)
    logs = [log for group in by_backend.values() for log in group]
    if len(by_backend) < _FEWEST_BACKENDS or len(logs) < _FEWEST_MOVED:
        return 0.0
    medians = [statistics.median(group) for group in by_backend.values()]
    sign = math.copysign(1.0, medians[0])
    apart = sum(sign * log <= 0 for log in logs)
    if min(sign * m for m in medians) <= math.log1p(NOISE_THRESHOLD):
        return 0.0
    return statistics.median(logs) if apart <= _MOST_APART * len(logs) else 0.0


def is_of_move(log: float, move: float) -> bool:
    """Returns whether a log ratio has the sign of the common move and is at most twice as large."""
    return 0 < log * math.copysign(1.0, move) <= _OWN_REASON * abs(move)


def contended_side(old: Case, new: Case) -> str:
    """Returns the side that was disturbed by other processes if only one was, else ""."""
    before, after = (_is_contended(case) for case in (old, new))
    if before is None or after is None or before == after:
        return ""
    return "baseline" if before else "candidate"


def _is_contended(case: Case) -> bool | None:
    contention = case.metrics.contention
    return contention.contended if contention else None


def run_to_run(runs: Sequence[tuple[float, Mapping[str, str]]]) -> float:
    """Returns the usual relative difference between successive runs of a case.

    This is the 95 % quantile of the ratios of runs with equal packages, the maximum if there are
    fewer than ten, and 0 if there are fewer than three.

    Args:
      runs: latency in ms and package versions of each run, oldest first.
    """
    changes = [
        abs(math.log(after / before))
        for (before, versions), (after, later) in itertools.pairwise(runs)
        if versions == later
    ]
    if len(changes) < _FEWEST_RUNS:
        return 0.0
    share = 0.95 if len(changes) >= FEWEST_FOR_95 else 1.0
    return math.expm1(float(np.quantile(changes, share)))
