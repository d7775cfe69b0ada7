"""Reading of results documents for a comparison: their cases, whatever the shape.

The boundary: what others wrote is checked here and in `compare_samples`, and trusted in `compare`.
"""

import datetime
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.results.codec import ResultsFileError
from comparative_benchmark.results.compare_samples import listed, mapping, quantity
from comparative_benchmark.results.records import Record, competitor_of
from comparative_benchmark.results.store import ResultsFile


@attrs.frozen(kw_only=True)
class Case:
    """What is read of a record, and of the run it belongs to.

    Attributes:
      data_type: what it computed in: of a quantised program its precision.
      competitor: `backend:compiler`, `backend:compiler@name` where it ran in an environment.
      quantity: what was measured, see `compare_samples.quantity`.
      settings: options, environment and flags of the competitor, as far as the record has them.
      versions: of the packages that its workers had imported.
      run_id: of its run, `started` the time at which that began; None where it is not told.
      host: what the run says of its machine.
      python: version of the interpreter of its workers; `revision` is that of the harness.
    """

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
    quantity: str
    settings: Mapping[str, Any]
    versions: Mapping[str, Any]
    metrics: Mapping[str, Any]
    run_id: str
    started: datetime.datetime | None
    host: Mapping[str, Any]
    python: Any
    revision: Any

    @property
    def key(self) -> Hashable:
        """What tells it from other cases."""
        return (self.workload, *self.runner, self.quantity)

    @property
    def runner(self) -> tuple[str, str, str]:
        """By what it was run."""
        return (self.competitor, self.framework, self.device)

    @property
    def machine(self) -> str:
        """CPU model of the machine; its architecture, or `unknown`, where that is not told."""
        return str(self.host.get("cpu_model") or self.host.get("architecture") or UNKNOWN)


UNKNOWN = "unknown"
_SETTINGS = ("options", "environment", "flags")


def read_document(path: Path) -> Record:
    """Returns the content of a results file.

    Raises:
      ResultsFileError: there is no such file, or it is not one of ours; the message says why.
    """
    if not path.exists():
        raise ResultsFileError(f"{path} does not exist")
    return ResultsFile(path).document()


def cases_of(document: Mapping[str, Any], where: str) -> tuple[list[Case], list[str]]:
    """Returns the latest record of each case, and why each record without shape has none."""
    every, unreadable = all_cases(document, where)
    return list({case.key: case for case in every}.values()), unreadable


def all_cases(document: Mapping[str, Any], where: str) -> tuple[list[Case], list[str]]:
    """Returns every record as a case, in order, and why each record without shape is none."""
    runs = {
        str(run.get("run_id")): run for run in listed(document, "runs") if isinstance(run, Mapping)
    }
    found, unreadable = [], []
    for position, record in enumerate(listed(document, "benchmarks")):
        case = _case(record, runs)
        if case is None:
            unreadable.append(
                f"record {position} of {where} has no definition, status or metrics, or they have "
                "another shape"
            )
        else:
            found.append(case)
    return found, unreadable


def _case(record: Any, runs: Mapping[str, Mapping[str, Any]]) -> Case | None:
    definition = mapping(record, "definition")
    workload, levels = mapping(definition, "workload"), mapping(record, "metrics")
    texts = [definition.get(name) for name in ("backend", "compiler", "device")]
    texts += [workload.get("digest"), record.get("status") if definition else None]
    environment = definition.get("environment")
    if environment is not None:
        # Without its name the results of two environments would be taken for one.
        texts.append(mapping(definition, "environment").get("name") or None)
    if not all(isinstance(text, str) for text in texts):
        return None
    metrics: Any = next(iter(levels.values()), {})
    if not isinstance(metrics, Mapping):
        return None
    status, run_id = record["status"], str(record.get("run_id"))
    run = runs.get(run_id, {})
    around = mapping(run, "execution_environment")
    return Case(
        workload=workload["digest"],
        label=str(workload.get("label") or workload["digest"]),
        benchmark=str(definition.get("benchmark_name")),
        architecture=str(workload.get("architecture")),
        batch_size=definition.get("batch_size"),
        data_type=str(_first(definition, "precision", "data_type") or workload.get("data_type")),
        competitor=competitor_of(definition),
        framework=str(definition.get("framework")).rpartition(".")[2].lower(),
        device=definition["device"],
        status=status,
        why=" ".join(filter(None, (status, _after("in", record, "phase")))) + _reason(record),
        quantity=quantity(metrics),
        settings={name: definition.get(name) for name in _SETTINGS},
        versions=mapping(record, "versions"),
        metrics=metrics,
        run_id=run_id,
        started=_time(mapping(run, "trigger").get("timestamp")),
        host=mapping(around, "host"),
        python=_python(around, environment),
        revision=around.get("git_revision"),
    )


def _first(record: Mapping[str, Any], *names: str) -> Any:
    return next((record[name] for name in names if record.get(name)), None)


def _after(word: str, record: Mapping[str, Any], name: str) -> str:
    return f"{word} {record[name]}" if record.get(name) else ""


def _reason(record: Mapping[str, Any]) -> str:
    return f": {record['reason']}" if record.get("reason") else ""


def _python(around: Mapping[str, Any], environment: Mapping[str, Any] | None) -> Any:
    if environment is None:
        return mapping(around, "host").get("python")
    return mapping(mapping(around, "environments"), environment["name"]).get("python_version")


def _time(text: Any) -> datetime.datetime | None:
    """Returns a time with its zone; None for anything else."""
    try:
        found = datetime.datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else None


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
