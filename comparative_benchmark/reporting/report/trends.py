"""Compares results with earlier ones: trends of cases over time, and changes since a baseline.

Trends are of the given results and of other sources. Changes follow the rules of `cbs compare`.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, product
from pathlib import Path
from typing import Any, TypeAlias

import attrs
import msgspec

from comparative_benchmark.analysis.stats.analysis import NOISE_THRESHOLD, SampleError, Verdict
from comparative_benchmark.reporting.history.rows import Moment, Place, TrendPoint, published_device
from comparative_benchmark.reporting.report.inputs import Inputs, ReportCase, ReportError, merge
from comparative_benchmark.reporting.report.standings import Judged, judge
from comparative_benchmark.results.case import LATENCY, Case
from comparative_benchmark.results.comparing.compare import (
    Comparison,
    Fate,
    Summary,
    compare_documents,
    summarize_comparisons,
)
from comparative_benchmark.results.comparing.compare_remarks import Remarks, remarks
from comparative_benchmark.results.comparing.comparison import samples_of
from comparative_benchmark.results.comparing.noise_floor import run_to_run
from comparative_benchmark.results.published import published
from comparative_benchmark.results.record import Document, Positive, Run, Status
from comparative_benchmark.results.results_file import (
    decode_document,
    parse,
    read_content,
    read_document,
)

# Intervals take milliseconds each: with more results, points have none.
_MOST_INTERVALS = 2_000

# Returns the measurements of a case on its device and machine, in any order.
Trends: TypeAlias = Callable[[Case], Iterable[TrendPoint]]


def usual_change(trends: Trends) -> Callable[[Case], float]:
    """Returns a function that gives a case's relative change from run to run, see `run_to_run`."""

    def change(case: Case) -> float:
        points = sorted(trends(case), key=lambda point: point.time)
        # The difference to judge must not count as usual.
        earlier = (point for point in points if point.time != case.started)
        return run_to_run([(point.value, point.versions) for point in earlier])

    return change


def trends_of(
    inputs: Inputs, judged: Sequence[Judged], source: Trends
) -> Mapping[str, Sequence[TrendPoint]]:
    """Returns the trend of each case by id, oldest first, ending with the case itself.

    It joins measurements in the given files and in the source; duplicates by time count
    once. Trends with a single point are omitted.
    """
    own: defaultdict[str, list[TrendPoint]] = defaultdict(list)
    earlier = [case for cases in inputs.earlier.values() for case in cases]
    threads = {case.id: case.threads for case in inputs.cases}
    for case, point in (*points_of(earlier), *_points(judged)):
        if case.threads == threads[case.id]:
            own[case.id].append(point)
    trends = {}
    for case in inputs.cases:
        by_time = {point.time: point for point in (*source(case), *own[case.id])}
        if len(by_time) > 1:
            trends[case.id] = [by_time[time] for time in sorted(by_time)]
    return trends


def points_of(cases: Sequence[ReportCase]) -> list[tuple[ReportCase, TrendPoint]]:
    """Returns each case that has samples and a time, with its point."""
    if len(cases) <= _MOST_INTERVALS:
        # Without a baseline: only the intervals are needed.
        return _points(judge(cases, ""))
    return [
        (case, TrendPoint(case.started, centre, versions=_versions(case)))
        for case in cases
        if case.started is not None and (centre := _centre(case)) is not None
    ]


def _points(judged: Iterable[Judged]) -> list[tuple[ReportCase, TrendPoint]]:
    return [
        (item.case, TrendPoint(started, span.estimate, span.low, span.high, _versions(item.case)))
        for item in judged
        if (span := item.interval) is not None and (started := item.case.started) is not None
    ]


def _centre(case: Case) -> float | None:
    """Returns the estimate that `latency_interval` would give, without an interval."""
    if case.status is not Status.OK:
        return None
    try:
        centre = statistics.fmean(map(statistics.median, samples_of(case.metrics)))
    except SampleError:
        return None
    return centre if 0 < centre < math.inf else None


def _versions(case: Case) -> dict[str, str]:
    """Returns the package versions and the interpreter's, as in the history."""
    versions = case.result.versions
    return {"python": case.python, **versions} if case.python and versions else versions


# The value of `--history` for the database of `cbs history`, because its URL may contain a
# password, which does not belong on a command line.
OWN_HISTORY = "default"
_SQLITE = b"SQLite format 3\0"


@attrs.frozen(kw_only=True)
class _NamedPoint:
    """A `TrendPoint` as an object; files may also contain the list of its values."""

    time: Moment
    value: Positive
    low: Positive | None = None
    high: Positive | None = None
    versions: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class _Series:
    """The trend of a case; omitted fields match any value."""

    case: str
    competitor: str
    device: str | None = None
    machine: str | None = None
    workload_digest: str | None = None
    threads: int | None = None
    points: tuple[TrendPoint | _NamedPoint, ...] = ()


@attrs.frozen(kw_only=True)
class _TrendFile:
    """A file of trends."""

    trends: tuple[_Series, ...]


class FileTrends:
    """Trends from files of trends and older results files."""

    def __init__(self) -> None:
        # By `Place`; None matches any.
        self._points: defaultdict[tuple[Any, ...], list[TrendPoint]] = defaultdict(list)

    def add_trends(self, document: object, where: str) -> None:
        """Adds the content of a file of trends.

        Raises:
          ReportError: the document is malformed; the message gives the place.
        """
        try:
            file = msgspec.convert(document, _TrendFile)
        except msgspec.ValidationError as error:
            raise ReportError(
                f"{where} is neither a results file nor a trends file: {error}"
            ) from error
        for series in file.trends:
            name, competitor, device, *others, points = attrs.astuple(series, recurse=False)
            self._points[name, competitor, device and published_device(device), *others] += [
                TrendPoint(*attrs.astuple(point, recurse=False))
                if isinstance(point, _NamedPoint)
                else point
                for point in points
            ]

    def add_results(self, documents: Sequence[Document]) -> None:
        """Adds every latency of results files."""
        merged = merge(documents)
        cases = [*chain(*merged.earlier.values()), *merged.cases]
        for case, point in points_of([case for case in cases if case.quantity == LATENCY]):
            self._points[_place(case)].append(point)

    def __call__(self, case: Case) -> list[TrendPoint]:
        """Returns the points of a case."""
        name, competitor, *others = _place(case)
        keys = product([name], [competitor], *(dict.fromkeys([each, None]) for each in others))
        return [point for key in keys for point in self._points.get(key, ())]


def _place(case: Case) -> Place:
    name, device = case.result.definition.benchmark_name, published_device(case.device)
    return (name, case.competitor, device, case.machine, case.workload, case.threads)


@contextmanager
def open_trends(sources: Sequence[str]) -> Iterator[Trends]:
    """Yields the joined trends of history databases, files of trends and results files.

    Raises:
      ModuleNotFoundError: a package for databases is missing.
      ReportError: a file is malformed, or a database fails.
      ResultsFileError: a results file is missing or invalid.
    """
    files = FileTrends()
    joined: list[Trends] = [files]
    documents: list[Document] = []
    with ExitStack() as stack:
        for source in sources:
            is_address = source == OWN_HISTORY or "://" in source
            content = _SQLITE if is_address else read_content(Path(source))
            if content.startswith(_SQLITE):
                joined.append(stack.enter_context(_history(source)))
                continue
            document = parse(content, source)
            if isinstance(document, dict) and "benchmarks" in document:
                documents.append(decode_document(content, source))
            else:
                files.add_trends(document, source)
        if documents:
            files.add_results(documents)
        # The points are latencies, with which compile times cannot be compared.
        yield lambda case: chain(*(trends(case) for trends in joined if case.quantity == LATENCY))


@contextmanager
def _history(source: str) -> Iterator[Trends]:
    """Yields the trends of a history database; its errors become `ReportError`."""
    from comparative_benchmark.reporting.history.database import HistoryError
    from comparative_benchmark.reporting.history.queries import open_trends as open_history
    from comparative_benchmark.reporting.history.rows import DamagedRowError

    try:
        with closing(open_history(None if source == OWN_HISTORY else source)) as history:
            yield lambda case: history.trend(_place(case))
    except (HistoryError, DamagedRowError) as error:
        raise ReportError(f"--history {source}: {error}") from error


@attrs.frozen(kw_only=True)
class Change:
    """A case that has changed.

    Attributes:
      result_id: id of the case in this report; None if the report lacks it.
    """

    comparison: Comparison
    result_id: str | None

    @property
    def percent(self) -> float | None:
        """Change of the latency in percent; None without a ratio."""
        ratio = self.comparison.ratio
        return None if ratio is None else 100 * (ratio.estimate - 1)


@attrs.frozen(kw_only=True)
class Changes:
    """All changes.

    Attributes:
      name: name of the baseline file.
      slower, faster: by size, the largest first.
      wrong, missing, incomparable: changes without a ratio.
      by_id: comparison by result id, if there is one.
      runs: runs of the baseline file.
    """

    name: str
    summary: Summary
    remarks: Remarks
    slower: Sequence[Change]
    faster: Sequence[Change]
    wrong: Sequence[Change]
    missing: Sequence[Change]
    incomparable: Sequence[Change]
    by_id: Mapping[str, Comparison]
    runs: Sequence[Run]


def find_changes(
    path: Path, inputs: Inputs, *, threshold: float = NOISE_THRESHOLD, trends: Trends = lambda _: ()
) -> Changes:
    """Returns how results differ from an older file's.

    Args:
      path: path of the older file.
      inputs: the results.
      threshold: smaller differences are noise.
      trends: earlier measurements of the cases: differences within their variation are noise, too.

    Raises:
      ResultsFileError: the older file cannot be read.
    """
    new, recorded = inputs.document, read_document(path)
    old = recorded if inputs.with_host else published(recorded)
    comparisons = compare_documents(
        old, new, threshold=threshold, usual_change=usual_change(trends)
    )
    # If two machines have the same case, the latest counts, as in the comparison.
    ids = {case.key: case.id for case in inputs.cases}
    by_id: dict[str, Comparison] = {}
    groups: defaultdict[Verdict | Fate, list[Change]] = defaultdict(list)
    for item in comparisons:
        key = (item.workload, item.competitor, item.framework, item.device, item.quantity)
        change = Change(comparison=item, result_id=ids.get(key))
        groups[item.verdict if item.ratio else item.fate].append(change)
        if change.result_id:
            by_id[change.result_id] = item
    for verdict in (Verdict.SLOWER, Verdict.FASTER):
        groups[verdict].sort(key=lambda change: -abs(change.percent or 0.0))
    return Changes(
        name=path.name,
        summary=summarize_comparisons(comparisons),
        remarks=remarks(old, new, comparisons),
        slower=groups[Verdict.SLOWER],
        faster=groups[Verdict.FASTER],
        wrong=groups[Fate.WRONG],
        missing=groups[Fate.MISSING],
        incomparable=groups[Fate.INCOMPARABLE],
        by_id=by_id,
        runs=old.runs,
    )
