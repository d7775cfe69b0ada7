"""Reads results files for a report: the latest result of each case, and earlier ones."""

import datetime
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import Case, cases_of
from comparative_benchmark.results.published import published
from comparative_benchmark.results.record import Document, Run
from comparative_benchmark.results.results_file import ResultsFileError, read_document

_ID_DIGITS = 12
_LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)


class ReportError(UsageError, RuntimeError):
    """There is nothing to report, or it cannot be written; the message gives the reason."""


def _digits(case: Case) -> str:
    key = "\0".join((case.workload, *case.runner, case.quantity, case.machine))
    return hashlib.sha256(key.encode()).hexdigest()[:_ID_DIGITS]


@attrs.frozen(kw_only=True)
class ReportCase(Case):
    """A case with an id for links.

    Attributes:
      id: hexadecimal id, the same in every report that contains the case.
    """

    id: str = attrs.field(init=False, default=attrs.Factory(_digits, takes_self=True))

    @property
    def contest(self) -> tuple[str, str, str]:
        """Device, machine and quantity; only cases that share them are ranked together."""
        return (self.device, self.machine, self.quantity)


@attrs.frozen(kw_only=True)
class Inputs:
    """The content of the files.

    Attributes:
      cases: the latest result of each case and machine, in the order of the files.
      earlier: older results of the same cases, oldest first, by id.
      runs: all runs, oldest first.
      refused: why files could not be read.
      folders: folder of the results file by run identifier.
      with_host: whether names of hosts and folders were kept.
    """

    cases: Sequence[ReportCase]
    earlier: Mapping[str, Sequence[ReportCase]]
    runs: Sequence[Run]
    refused: Sequence[str] = ()
    folders: Mapping[str, Path] = attrs.field(factory=dict)
    with_host: bool = True

    @property
    def document(self) -> Document:
        """All files as one document, for `compare_documents`."""
        return Document(
            schema_version=1,
            trigger=self.runs[-1].trigger,
            execution_environment=self.runs[-1].execution_environment,
            runs=tuple(self.runs),
            benchmarks=tuple(case.result for case in self.cases),
        )


def read(paths: Iterable[Path], *, with_host: bool = True) -> Inputs:
    """Returns the content of results files; unreadable ones are in `refused`.

    Args:
      paths: paths of the files.
      with_host: whether to keep names of hosts and folders.

    Raises:
      ReportError: none of them has a result.
    """
    documents, refused = [], []
    folders: dict[str, Path] = {}
    for path in paths:
        try:
            document = read_document(path)
            documents.append(document if with_host else published(document))
        except ResultsFileError as error:
            refused.append(str(error))
        else:
            folders |= {run.run_id: path.absolute().parent for run in documents[-1].runs}
    return attrs.evolve(merge(documents, refused), folders=folders, with_host=with_host)


def merge(documents: Sequence[Document], refused: Sequence[str] = ()) -> Inputs:
    """Merges documents; see `read`."""
    report_cases = [
        ReportCase(result=case.result, run=case.run)
        for document in documents
        for case in cases_of(document)
    ]
    if not report_cases:
        raise ReportError("; ".join(refused) or "the files contain no results")
    by_id: defaultdict[str, list[ReportCase]] = defaultdict(list)
    for case in sorted(report_cases, key=lambda case: case.started or _LONG_AGO):
        # A copy of a result in another file is not a second measurement.
        if not any(other.result == case.result for other in by_id[case.id]):
            by_id[case.id].append(case)
    runs = {run.run_id: run for document in documents for run in document.runs}
    return Inputs(
        cases=[by_id[key][-1] for key in dict.fromkeys(case.id for case in report_cases)],
        earlier={key: cases[:-1] for key, cases in by_id.items() if len(cases) > 1},
        runs=sorted(runs.values(), key=lambda run: run.trigger.time),
        refused=refused,
    )
