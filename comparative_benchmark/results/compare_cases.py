"""Reading of results documents for a comparison: cases and their samples, whatever the shape.

The boundary: what others wrote is checked here, and trusted in `compare`.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

import attrs
import numpy as np

from comparative_benchmark.harness.resampling import SampleError
from comparative_benchmark.results.records import Record
from comparative_benchmark.results.store import ResultsFile, ResultsFileError


@attrs.frozen(kw_only=True)
class Case:
    """What is read of a record, and of the run it belongs to."""

    workload: str
    label: str
    benchmark: str
    architecture: str
    batch_size: Any
    data_type: str
    competitor: str
    framework: str
    device: str
    status: str
    why: str
    metrics: Mapping[str, Any]
    host: Mapping[str, Any]

    @property
    def key(self) -> Hashable:
        """What tells it from other cases."""
        return (self.workload, *self.runner)

    @property
    def runner(self) -> tuple[str, str, str]:
        """By what it was run."""
        return (self.competitor, self.framework, self.device)


def read_document(path: Path) -> Record:
    """Returns the content of a results file.

    Raises:
      ResultsFileError: there is no such file, or it is not one of ours; the message says why.
    """
    if not path.exists():
        raise ResultsFileError(f"{path} does not exist")
    return ResultsFile(path)._read()  # noqa: SLF001  same package, same checks


def cases_of(document: Mapping[str, Any], where: str) -> tuple[list[Case], list[str]]:
    """Returns the latest record of each case, and why each record without shape has none."""
    runs = _listed(document, "runs")
    hosts = {
        str(run.get("run_id")): _mapping(_mapping(run, "execution_environment"), "host")
        for run in runs
        if isinstance(run, Mapping)
    }
    latest: dict[Hashable, Case] = {}
    unreadable = []
    for position, record in enumerate(_listed(document, "benchmarks")):
        case = _case(record, hosts)
        if case is None:
            unreadable.append(f"record {position} of {where} has no definition, status or metrics")
        else:
            latest[case.key] = case
    return list(latest.values()), unreadable


def _case(record: Any, hosts: Mapping[str, Mapping[str, Any]]) -> Case | None:
    definition = _mapping(record, "definition")
    workload, levels = _mapping(definition, "workload"), _mapping(record, "metrics")
    texts = [definition.get(name) for name in ("backend", "compiler", "device")]
    texts += [workload.get("digest"), record.get("status") if definition else None]
    if not all(isinstance(text, str) for text in texts):
        return None
    metrics: Any = next(iter(levels.values()), {})
    if not isinstance(metrics, Mapping):
        return None
    status = record["status"]
    return Case(
        workload=workload["digest"],
        label=str(workload.get("label") or workload["digest"]),
        benchmark=str(definition.get("benchmark_name")),
        architecture=str(workload.get("architecture")),
        batch_size=definition.get("batch_size"),
        data_type=str(definition.get("data_type") or workload.get("data_type")),
        competitor=f"{definition['backend']}:{definition['compiler']}",
        framework=str(definition.get("framework")).rpartition(".")[2].lower(),
        device=definition["device"],
        status=status,
        why=" ".join(filter(None, (status, _after("in", record, "phase")))) + _reason(record),
        metrics=metrics,
        host=hosts.get(str(record.get("run_id")), {}),
    )


def _after(word: str, record: Mapping[str, Any], name: str) -> str:
    return f"{word} {record[name]}" if record.get(name) else ""


def _reason(record: Mapping[str, Any]) -> str:
    return f": {record['reason']}" if record.get("reason") else ""


def matched(before: Sequence[Case], after: Sequence[Case]) -> list[tuple[Case | None, Case | None]]:
    """Returns pairs, in the baseline's order, with None for what the other side has not."""
    rules: list[Callable[[Case], Hashable]] = [
        lambda case: case.key,
        lambda case: (case.benchmark, *case.runner),
        lambda case: (case.architecture, str(case.batch_size), *case.runner),
    ]
    partner: dict[int, Case] = {}
    left, right = list(before), list(after)
    for rule in rules:
        counts = [Counter(map(rule, side)) for side in (left, right)]
        by_rule = {rule(case): case for case in right}
        for case in left:
            name = rule(case)
            # What is named twice could be paired with the wrong one.
            if counts[0][name] == counts[1][name] == 1:
                partner[id(case)] = by_rule[name]
        taken = {id(case) for case in partner.values()}
        left = [case for case in left if id(case) not in partner]
        right = [case for case in right if id(case) not in taken]
    pairs: list[tuple[Case | None, Case | None]] = [
        (case, partner.get(id(case))) for case in before
    ]
    return pairs + [(None, case) for case in right]


def _blocks(metrics: Mapping[str, Any]) -> list[list[Mapping[str, Any]]] | None:
    """Returns the blocks of each process; None where the record has no such layout."""
    processes = metrics.get("processes")
    if processes is None:
        return None
    if not isinstance(processes, list) or not processes:
        raise SampleError("no samples")
    blocks = [_listed(process, "blocks") for process in processes]
    if not all(isinstance(block, Mapping) for process in blocks for block in process):
        raise SampleError("blocks of another shape")
    return blocks


def process_samples(metrics: Mapping[str, Any]) -> list[list[float]]:
    """Returns the samples of each process, or raises `SampleError`."""
    blocks = _blocks(metrics)
    if blocks is None:
        return [_numbers(metrics)]
    return [[value for block in process for value in _numbers(block)] for process in blocks]


def paired_rounds(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> list[list[tuple[float, float]]] | None:
    """Returns (candidate, baseline) block medians by process and round; None if not one race."""
    races = [_mapping(metrics, "race") for metrics in (old, new)]
    before, after = _blocks(old), _blocks(new)
    if before is None or after is None or races[0].get("id") != races[1].get("id"):
        return None
    if not all(race.get("id") and race.get("interleaved", True) for race in races):
        return None
    replicates = []
    for old_blocks, new_blocks in zip(before, after, strict=False):
        baseline, candidate = _round_medians(old_blocks), _round_medians(new_blocks)
        rounds = [(candidate[key], baseline[key]) for key in candidate if key in baseline]
        if rounds:
            replicates.append(rounds)
    return replicates or None


def _round_medians(blocks: Iterable[Mapping[str, Any]]) -> dict[Any, float]:
    rounds: defaultdict[Any, list[float]] = defaultdict(list)
    for block in blocks:
        if isinstance(block.get("round"), int):
            rounds[block["round"]] += _numbers(block)
    return {key: float(np.median(values)) for key, values in rounds.items() if values}


def contention(*sides: Mapping[str, Any]) -> str:
    """Says that most blocks were measured while others had the CPU; empty if not."""
    blocks = [b for metrics in sides for process in _blocks(metrics) or [] for b in process]
    share = sum(bool(block.get("contended")) for block in blocks) / max(len(blocks), 1)
    return f"; {share:.0%} of the blocks were measured under contention" if share > 0.5 else ""


def _numbers(holder: Mapping[str, Any]) -> list[float]:
    values = holder.get("latencies_ms")
    if not isinstance(values, list) or not values:
        raise SampleError("no samples")
    if not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        raise SampleError("a sample is no number")
    return values


def quotient(new: Mapping[str, Any], old: Mapping[str, Any], *names: str) -> float | None:
    """Returns new / old of the first metric that both have as a positive finite number."""
    for name in names:
        above, below = new.get(name), old.get(name)
        if _is_positive(above) and _is_positive(below):
            return float(above) / float(below)
    return None


def _is_positive(value: Any) -> TypeGuard[float]:
    # Between these limits every quotient is a finite number.
    return isinstance(value, (int, float)) and 1e-100 < value < 1e100


def _mapping(holder: Any, name: str) -> Mapping[str, Any]:
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _listed(holder: Any, name: str) -> list[Any]:
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, list) else []
