"""Reading of results files for a report: the latest result of each case, and the earlier ones.

The boundary: a damaged or foreign file is refused by name, a damaged record by its place, and the
rest is read.
"""

import datetime
import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.results.codec import ResultsFileError
from comparative_benchmark.results.compare import read_document
from comparative_benchmark.results.compare_cases import Case, all_cases
from comparative_benchmark.results.compare_samples import listed, mapping
from comparative_benchmark.results.record import SCHEMA_VERSION
from comparative_benchmark.results.records import Record

_ID_DIGITS = 12
_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)


class ReportError(RuntimeError):
    """There is nothing to report of; the message says why."""


@attrs.frozen(kw_only=True)
class Result:
    """One record with what it is known by.

    Attributes:
      id: digits that name the case in links; the same in every report that holds it.
      run: of the record; empty where its file does not hold that run.
    """

    case: Case
    record: Mapping[str, Any]
    run: Mapping[str, Any]
    id: str

    @property
    def definition(self) -> Mapping[str, Any]:
        """What was run."""
        return mapping(self.record, "definition")

    @property
    def level(self) -> str:
        """`framework_level` or `compiler_level`."""
        return str(next(iter(mapping(self.record, "metrics")), "unknown"))

    @property
    def runner(self) -> tuple[str, str]:
        """Competitor and framework: what a column of the matrix is of."""
        return (self.case.competitor, self.case.framework)

    @property
    def contest(self) -> tuple[str, str, str]:
        """Device, machine and quantity: only what shares them is ranked together."""
        return (self.case.device, self.case.machine, self.case.quantity)


@attrs.frozen(kw_only=True)
class Inputs:
    """What the files hold.

    Attributes:
      results: the latest of each case and machine, in the order of the files.
      earlier: results of the same cases that are older, oldest first, by id.
      runs: all runs, oldest first.
      document: all files as one document, for `compare_documents`.
      refused: what could not be read, and why.
    """

    results: Sequence[Result]
    earlier: Mapping[str, Sequence[Result]]
    runs: Sequence[Mapping[str, Any]]
    document: Record
    refused: Sequence[str]


def read(paths: Sequence[Path]) -> Inputs:
    """Returns what results files hold.

    Raises:
      ReportError: none of them has a result.
    """
    documents, refused = [], []
    for path in paths:
        try:
            documents.append((str(path), read_document(path)))
        except ResultsFileError as error:
            refused.append(str(error))
    return merge(documents, refused)


def merge(documents: Sequence[tuple[str, Mapping[str, Any]]], refused: Sequence[str]) -> Inputs:
    """Returns what documents hold, each with its name; see `read`."""
    found: list[Result] = []
    complaints = list(refused)
    runs: dict[str, Mapping[str, Any]] = {}
    for name, document in documents:
        own = _runs(document)
        runs |= own
        for position, record in enumerate(listed(document, "benchmarks")):
            run = own.get(str(record.get("run_id")), {}) if isinstance(record, Mapping) else {}
            cases, _ = all_cases({"runs": [run], "benchmarks": [record]}, name)
            if cases:
                found.append(_result(cases[0], record, run))
            else:
                complaints.append(
                    f"{name}: record {position} has no definition, status or metrics, or they have "
                    "another shape"
                )
    if not found:
        raise ReportError("; ".join(complaints) or "the files hold no results")
    by_id: defaultdict[str, list[Result]] = defaultdict(list)
    for result in sorted(found, key=lambda result: result.case.started or _LONG_AGO):
        # A copy of a result in another file is no second measurement.
        if not any(other.record == result.record for other in by_id[result.id]):
            by_id[result.id].append(result)
    latest = {result_id: results[-1] for result_id, results in by_id.items()}
    order = dict.fromkeys(result.id for result in found)
    return Inputs(
        results=[latest[result_id] for result_id in order],
        earlier={key: results[:-1] for key, results in by_id.items() if len(results) > 1},
        runs=sorted(runs.values(), key=lambda run: str(mapping(run, "trigger").get("timestamp"))),
        document={
            "schema_version": SCHEMA_VERSION,
            "runs": list(runs.values()),
            "benchmarks": [latest[result_id].record for result_id in order],
        },
        refused=complaints,
    )


def number(holder: Mapping[str, Any], name: str) -> float | None:
    """Returns a finite number of that name; None where there is none."""
    value = holder.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def text(holder: Mapping[str, Any], name: str) -> str | None:
    """Returns what stands there as a text; None where there is nothing."""
    value = holder.get(name)
    return None if value is None else str(value)


def _runs(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    every = [run for run in listed(document, "runs") if isinstance(run, Mapping)]
    return {str(run.get("run_id")): run for run in every}


def _result(case: Case, record: Mapping[str, Any], run: Mapping[str, Any]) -> Result:
    key = "\0".join(map(str, (*_identity(case), case.machine)))
    # A damaged file may hold half of a character, which is in no encoding.
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return Result(case=case, record=record, run=run, id=digest[:_ID_DIGITS])


def _identity(case: Case) -> tuple[str, ...]:
    return (case.workload, case.competitor, case.framework, case.device, case.quantity)
