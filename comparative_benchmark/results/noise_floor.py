"""The noise floor of a machine, from programs that did not change between two runs.

Where the compiled program, the packages and the settings are the same, any difference between two
measurements is noise of the machine: free calibration, from results that are there anyway.
"""

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

from comparative_benchmark.results.case import LATENCY, Case, cases_of
from comparative_benchmark.results.compare_samples import process_samples
from comparative_benchmark.results.record import Document, Status
from comparative_benchmark.results.store import write_atomically
from comparative_benchmark.results.unchanged import fingerprint, program_digest, unidentified
from comparative_benchmark.stats.analysis import SampleError, checked
from comparative_benchmark.stats.planning import Outlook, outlook, sd_of_noise_floor
from comparative_benchmark.stats.sampling_rule import SamplingRule
from openxla.benchmark.root import root_dir

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
