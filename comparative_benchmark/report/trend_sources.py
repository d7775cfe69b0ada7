"""Where trends come from: history databases, files of trends, older results files."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, product
from pathlib import Path

import attrs
import msgspec

from comparative_benchmark.report.inputs import ReportError, merge
from comparative_benchmark.report.trends import Moment, TrendPoint, Trends, points_of
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.codec import decode_document, parse, read_content
from comparative_benchmark.results.record import Document, Positive

# What `--history` calls the database of `cbs history`: its URL may hold a password, which no
# command line should.
OWN_HISTORY = "default"
_SQLITE = b"SQLite format 3\0"


@attrs.frozen(kw_only=True)
class _NamedPoint:
    """A `TrendPoint` as an object; in a file it may as well be the list of its values."""

    time: Moment
    value: Positive
    low: Positive | None = None
    high: Positive | None = None
    versions: dict[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class _Series:
    """The trend of a case; device and machine are any where they are left out."""

    case: str
    competitor: str
    device: str | None = None
    machine: str | None = None
    points: tuple[TrendPoint | _NamedPoint, ...] = ()


@attrs.frozen(kw_only=True)
class _TrendFile:
    """A file of trends."""

    trends: tuple[_Series, ...]


class FileTrends:
    """What files of trends and older results files hold."""

    def __init__(self) -> None:
        # By case, competitor, device and machine; None is any.
        self._points: defaultdict[tuple[str | None, ...], list[TrendPoint]] = defaultdict(list)

    def add_trends(self, document: object, where: str) -> None:
        """Adds the content of a file of trends.

        Raises:
          ReportError: it is something else; the message has the place.
        """
        try:
            found = msgspec.convert(document, _TrendFile)
        except msgspec.ValidationError as error:
            raise ReportError(
                f"{where} is neither a results file nor a trends file: {error}"
            ) from error
        for series in found.trends:
            key = (series.case, series.competitor, series.device, series.machine)
            self._points[key] += [
                TrendPoint(*attrs.astuple(point, recurse=False))
                if isinstance(point, _NamedPoint)
                else point
                for point in series.points
            ]

    def add_results(self, documents: Sequence[Document]) -> None:
        """Adds every result of results files."""
        found = merge(documents)
        for case, point in points_of([*chain(*found.earlier.values()), *found.cases]):
            self._points[_place(case)].append(point)

    def __call__(self, case: Case) -> list[TrendPoint]:
        """Returns the points of a case."""
        name, competitor, device, machine = _place(case)
        keys = product([name], [competitor], [device, None], [machine, None])
        return [point for key in keys for point in self._points.get(key, ())]


def _place(case: Case) -> tuple[str, str, str, str]:
    name = case.result.definition.benchmark_name
    return (name, case.competitor, case.device, case.machine)


@contextmanager
def open_trends(sources: Sequence[str]) -> Iterator[Trends]:
    """Gives the trends of history databases, files of trends and results files, joined.

    Raises:
      ModuleNotFoundError: no databases can be read.
      ReportError: a file holds something else, or a database fails.
      ResultsFileError: there is no such file, or it is not valid.
    """
    files = FileTrends()
    found: list[Trends] = [files]
    documents: list[Document] = []
    with ExitStack() as stack:
        for source in sources:
            is_address = source == OWN_HISTORY or "://" in source
            content = _SQLITE if is_address else read_content(Path(source))
            if content.startswith(_SQLITE):
                found.append(stack.enter_context(_history(source)))
                continue
            document = parse(content, source)
            if isinstance(document, dict) and "benchmarks" in document:
                documents.append(decode_document(content, source))
            else:
                files.add_trends(document, source)
        if documents:
            files.add_results(documents)
        yield lambda case: chain.from_iterable(trends(case) for trends in found)


@contextmanager
def _history(source: str) -> Iterator[Trends]:
    """Gives the trends of a history database; what fails there is a `ReportError`."""
    from comparative_benchmark.history.database import HistoryError
    from comparative_benchmark.history.moments import DamagedRowError
    from comparative_benchmark.history.trends import open_trends as open_history

    def points(case: Case) -> Iterator[TrendPoint]:
        name, competitor, device, machine = _place(case)
        for point in history.trend(name, competitor, device=device, machine=machine):
            yield TrendPoint(**point._asdict())

    try:
        with closing(open_history(None if source == OWN_HISTORY else source)) as history:
            yield points
    except (HistoryError, DamagedRowError) as error:
        raise ReportError(f"--history {source}: {error}") from error
