"""The noise floor of a machine, from programs that did not change between two runs.

Where the compiled program, the packages and the settings are the same, any difference between two
measurements is noise of the machine: free calibration, from results that are there anyway.
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
from comparative_benchmark.analysis.stats.planning import Outlook, outlook, sd_of_noise_floor
from comparative_benchmark.analysis.stats.sampling_rule import SamplingRule
from comparative_benchmark.results.case import LATENCY, UNKNOWN, Case, cases_of
from comparative_benchmark.results.codec import plain
from comparative_benchmark.results.comparing.compare_pair import process_samples
from comparative_benchmark.results.record import Document, Metrics, Status
from comparative_benchmark.results.settings import setting_differences, settings
from comparative_benchmark.results.store import write_atomically
from openxla.benchmark.root import root_dir


def program_digest(metrics: Metrics) -> str | None:
    """Returns the SHA-256 of the program that all processes of a result compiled.

    None where the stack gives none, as eager execution, and where processes compiled different
    programs (autotuning, say): the result is then of a mixture, and the next one of another.
    """
    digest = metrics.program.artifact_sha256
    told = [process.artifact_sha256 for process in metrics.processes or ()]
    # Older files do not say it of each process.
    return digest if not any(told) or set(told) == {digest} else None


def same_program(old: Case, new: Case) -> bool:
    """Tells whether workload, competitor, device and compiled program are the same, and known.

    Eager PyTorch compiles nothing: there the packages are the program, which is the same if
    `surroundings` finds no difference. Of other stacks without a digest nothing is known.
    """
    digests = [program_digest(case.metrics) for case in (old, new)]
    if old.key != new.key or digests[0] != digests[1]:
        return False
    definition = new.result.definition
    is_eager = (definition.backend, definition.compiler) == ("pt_inductor", "eager")
    return digests[0] is not None or (is_eager and not new.metrics.throughput)


def surroundings(old: Case, new: Case) -> str | None:
    """Says what of the software around a program differs, or cannot be told; None if nothing.

    Packages, settings, interpreter and harness run the program and are part of its speed; of the
    machine only model and thread count are looked at. Settings that one side does not tell, as
    older files, count as equal.
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
    """Says why it cannot be told what ran the program; None if it can.

    A development version does not say which build it is: two builds of a runtime, with a change
    between them that an engineer wants to measure, may call themselves the same.
    """
    if not case.result.versions:
        return "package versions are unknown"
    for name, version in case.result.versions.items():
        if "dev" in version:
            return f"{name} {version} may name several builds"
    return "the machine is unknown" if case.machine == UNKNOWN else None


def fingerprint(case: Case) -> str:
    """Returns a text that is equal where `surroundings` finds no difference, but of the harness.

    Files that do not tell of settings differ from those that do.
    """
    facts = {**_facts(case), "settings": settings(case.metrics)}
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
# The 95 % quantile of fewer pairs is little but their largest.
FEWEST_FOR_95 = 10


class NoiseFloorError(ValueError):
    """The documents are not of one machine; the message says of which."""


@attrs.frozen(kw_only=True)
class Noise:
    """How far measurements of unchanged programs lie apart.

    Attributes:
      pairs: of two runs of one program; `programs` of them are different ones.
      median_percent, p95_percent, largest_percent: quantiles of the differences, as percent of
        the faster run.
      processes: of a run, the median; None in a file of an earlier version.
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
        """Returns what races find where runs lie so far apart; None if that cannot be told."""
        if self.processes is None:
            return None
        return outlook(sd_of_noise_floor(self.median_percent / 100, self.processes), rule)


@attrs.frozen(kw_only=True)
class NoiseFloor:
    """Noise of a machine.

    Attributes:
      machine: its CPU model, or its architecture where that is not told; empty without pairs.
      pooled: over all pairs; None where no program was measured twice.
      competitors: the same by competitor.
    """

    machine: str
    pooled: Noise | None
    competitors: dict[str, Noise]
    schema: int = _SCHEMA


def noise_floor(documents: Iterable[Document]) -> NoiseFloor:
    """Returns how far any two runs of unchanged programs lie apart.

    Pooled are all pairs of runs (of different files, or of different run ids) of one workload,
    competitor and device whose program digest, package versions, settings, interpreter, CPU model
    and thread count are equal and known. The latency of a run is the mean over processes of the
    logarithm of the process median, as in `unpaired_ratio`: the floor is one of the ratios
    that `cbs compare` prints. Pairs of one program are not independent: it says what happened on
    this machine, not what can happen. It cannot see noise that all runs share, nor does it hold
    for another time of day, load or CPU. Runs may be of several revisions of the harness: what that
    changes stands between two files as well.

    Args:
      documents: results documents; records that have no samples are left out.

    Raises:
      NoiseFloorError: there are pairs of more than one machine.
    """
    runs: defaultdict[tuple[Any, ...], dict[tuple[int, str], _Run]] = defaultdict(dict)
    machines: dict[tuple[Any, ...], Case] = {}
    for position, document in enumerate(documents):
        for case in cases_of(document):
            digest, run = program_digest(case.metrics), _run_of(case)
            if digest is None or run is None or unidentified(case):
                continue
            program = (case.key, digest, fingerprint(case))
            # The latest record of a run counts.
            runs[program][position, case.result.run_id] = run
            machines[program] = case
    found: defaultdict[str, list[_Program]] = defaultdict(list)
    names = set()
    for program, runs_of_it in runs.items():
        if differences := _differences(runs_of_it):
            processes = [run.processes for run in runs_of_it.values()]
            found[machines[program].competitor].append(_Program(differences, processes))
            names.add(machines[program].machine)
    if len(names) > 1:
        raise NoiseFloorError(f"results from several machines: {', '.join(sorted(names))}")
    every = [program for programs in found.values() for program in programs]
    return NoiseFloor(
        machine=next(iter(names), ""),
        pooled=_noise(every) if every else None,
        competitors={name: _noise(programs) for name, programs in sorted(found.items())},
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
    """Writes the noise floor, whole or not at all, and returns where.

    Raises:
      OSError: it cannot be written.
    """
    path = noise_floor_path(floor.machine)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, attrs.asdict(floor))
    return path


def load_noise_floor(machine: str) -> NoiseFloor | None:
    """Returns the noise floor of a machine; None where there is no file that can be read."""
    try:
        found = msgspec.json.decode(noise_floor_path(machine).read_bytes(), type=NoiseFloor)
    except (OSError, ValueError, RecursionError):
        return None
    return found if found.schema == _SCHEMA and found.pooled else None


class _Run(NamedTuple):
    log_latency: float  # of ms
    processes: int


class _Program(NamedTuple):
    differences: list[float]
    processes: list[int]


def _run_of(case: Case) -> _Run | None:
    """Returns the latency of a run; None where there is no sound measurement."""
    if case.status is not Status.OK or case.quantity != LATENCY:
        return None
    try:
        processes = checked(process_samples(case.metrics))
    except SampleError:
        return None
    logs = [math.log(np.median(values)) for values in processes]
    return _Run(math.fsum(logs) / len(logs), len(logs))


def _differences(runs: Mapping[tuple[int, str], _Run]) -> list[float]:
    """Returns |log ratio| of all pairs of runs; a copy of a run in another file is not a pair."""
    distinct = {(run_id, run.log_latency) for (_, run_id), run in runs.items()}
    values = [latency for _, latency in sorted(distinct)]
    first, second = np.triu_indices(len(values), 1)
    array = np.array(values)
    differences: list[float] = np.abs(array[first] - array[second]).tolist()
    return differences


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


# Fewer comparisons, or a single backend, may share another reason than the machine.
_FEWEST_MOVED, _FEWEST_BACKENDS = 3, 2
# Share of the comparisons that may have moved the other way.
_MOST_APART = 0.1
# A ratio beyond the common move by this factor needs another explanation.
_OWN_REASON = 2.0
_FEWEST_RUNS = 3


def common_move(moved: Iterable[tuple[str, float]]) -> float:
    """Returns the logarithm of the ratio by which everything moved; 0 if not everything did.

    Backends have neither compiler nor runtime in common. Where each is slower, or each is faster,
    beyond the noise threshold, the machine is the likely reason. The median over all comparisons.

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
    """Tells whether a log ratio lies within twice the common move, on the same side."""
    return 0 < log * math.copysign(1.0, move) <= _OWN_REASON * abs(move)


def contended_side(old: Case, new: Case) -> str:
    """Returns which of two cases others disturbed, if they disturbed one; else empty."""
    before, after = (_is_contended(case) for case in (old, new))
    if before is None or after is None or before == after:
        return ""
    return "baseline" if before else "candidate"


def _is_contended(case: Case) -> bool | None:
    found = case.metrics.contention
    return found.contended if found else None


def run_to_run(runs: Sequence[tuple[float, Mapping[str, str]]]) -> float:
    """Returns the relative difference that successive runs of a case show without a reason.

    The 95 % quantile of their ratios, of those with the same packages; the largest of fewer than
    ten, and 0 for fewer than three.

    Args:
      runs: latency in ms and package versions of each, the oldest first.
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
