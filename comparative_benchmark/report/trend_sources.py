"""Where trends come from: a history database, files of trends, older results files.

A database is asked by `comparative_benchmark.history`, which is loaded only then.
"""

import datetime
import importlib
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from comparative_benchmark.report.inputs import ReportError, merge
from comparative_benchmark.report.trends import JoinedTrends, TrendPoint, Trends, points_of
from comparative_benchmark.results.codec import ResultsFileError
from comparative_benchmark.results.compare import read_document
from comparative_benchmark.results.compare_samples import listed, mapping

_HISTORY = "comparative_benchmark.history.trends"
_DATABASE = "comparative_benchmark.history.database"
# What `--history` calls the database of `cbs history`: its URL may hold a password, which no
# command line should.
OWN_HISTORY = "default"
_SQLITE = b"SQLite format 3\0"


class FileTrends:
    """Trends of a file of trends.

    `{"trends": [{"case": ..., "competitor": ..., "device": ..., "machine": ..., "points": [...]}]}`
    where device and machine may be left out, which is any. A point is `{"time": ISO 8601 with its
    zone, "value": ms, "low": ms, "high": ms, "versions": {package: version}}`, or the list of these
    five; all but time and value may be left out.
    """

    def __init__(self, path: Path, document: Any) -> None:
        self._series: defaultdict[tuple[Any, ...], list[TrendPoint]] = defaultdict(list)
        if not isinstance(document, Mapping) or not isinstance(document.get("trends"), list):
            raise ReportError(
                f'{path} holds no trends: it should be {{"trends": [...]}} or a results file'
            )
        for position, series in enumerate(document["trends"]):
            case, competitor = (_text(series, name) for name in ("case", "competitor"))
            if case is None or competitor is None:
                raise ReportError(f"{path}: trend {position} has no case and competitor")
            points = self._series[
                case, competitor, _text(series, "device"), _text(series, "machine")
            ]
            for number, value in enumerate(listed(series, "points")):
                point = _point(value)
                if point is None:
                    raise ReportError(
                        f"{path}: point {number} of trend {position} has no time with a zone, or "
                        "no positive value"
                    )
                points.append(point)

    def trend(
        self, case: str, competitor: str, *, device: str, machine: str
    ) -> Sequence[TrendPoint]:
        """Returns the measurements of a case, oldest first."""
        found = [
            point
            for key in {
                (case, competitor, some_device, some_machine)
                for some_device in (device, None)
                for some_machine in (machine, None)
            }
            for point in self._series.get(key, ())
        ]
        return sorted(found, key=lambda point: point.time)


class ResultTrends:
    """What older results files hold of each case."""

    def __init__(self, documents: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        self._points: defaultdict[tuple[str, ...], list[TrendPoint]] = defaultdict(list)
        found = merge(documents, [])
        earlier = [result for results in found.earlier.values() for result in results]
        for result, point in points_of([*earlier, *found.results]):
            case = result.case
            self._points[case.benchmark, case.competitor, case.device, case.machine].append(point)

    def trend(
        self, case: str, competitor: str, *, device: str, machine: str
    ) -> Sequence[TrendPoint]:
        """Returns the measurements of a case, in any order."""
        return self._points.get((case, competitor, device, machine), ())


class DatabaseTrends:
    """What a history database holds of each case."""

    def __init__(self, location: str | None) -> None:
        """Opens a history; the user's own where None."""
        name = location or OWN_HISTORY
        try:
            module = importlib.import_module(_HISTORY)
            self._failure: type[Exception] = importlib.import_module(_DATABASE).HistoryError
        except ImportError as error:
            raise ReportError(
                f"--history {name}: no history database can be read ({error}); "
                "pip install 'common-benchmark-suite[history]', or give files"
            ) from error
        try:
            self._trends = module.open_trends(location)
        except self._failure as error:
            raise ReportError(f"--history {name}: {error}") from error

    def trend(
        self, case: str, competitor: str, *, device: str, machine: str
    ) -> Sequence[TrendPoint]:
        """Returns the measurements of a case, oldest first.

        Raises:
          ReportError: the database fails.
        """
        try:
            found: Sequence[TrendPoint] = self._trends.trend(
                case, competitor, device=device, machine=machine
            )
        except self._failure as error:
            raise ReportError(f"the history fails: {error}") from error
        return found

    def close(self) -> None:
        """Closes the database."""
        self._trends.close()


@contextmanager
def open_trends(sources: Sequence[str]) -> Iterator[Trends]:
    """Gives the trends of history databases, files of trends and results files, joined.

    Raises:
      ReportError: there is no such file, it holds something else, or databases are not installed.
    """
    found: list[Trends] = []
    documents: list[tuple[str, Mapping[str, Any]]] = []
    with ExitStack() as stack:
        for source in sources:
            path = Path(source)
            if source == OWN_HISTORY or "://" in source or _is_sqlite(path):
                database = DatabaseTrends(None if source == OWN_HISTORY else source)
                stack.callback(database.close)
                found.append(database)
                continue
            try:
                document = json.loads(path.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                raise ReportError(f"{path} can not be read as trends: {error}") from error
            if not isinstance(document, Mapping) or "benchmarks" not in document:
                found.append(FileTrends(path, document))
                continue
            try:
                documents.append((source, read_document(path)))
            except ResultsFileError as error:
                raise ReportError(str(error)) from error
        if documents:
            found.append(ResultTrends(documents))
        yield JoinedTrends(found)


def _is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(_SQLITE)) == _SQLITE
    except OSError:
        return False


def _text(holder: Any, name: str) -> str | None:
    value = holder.get(name) if isinstance(holder, Mapping) else None
    return value if isinstance(value, str) else None


def _point(value: Any) -> TrendPoint | None:
    names = ("time", "value", "low", "high", "versions")
    if isinstance(value, list):
        value = dict(zip(names, value, strict=False))
    if not isinstance(value, Mapping):
        return None
    try:
        time = datetime.datetime.fromisoformat(value.get("time", ""))
    except (TypeError, ValueError):
        return None
    latency = _positive(value.get("value"))
    if time.tzinfo is None or latency is None:
        return None
    versions = {str(k): str(v) for k, v in mapping(value, "versions").items()}
    return TrendPoint(
        time, latency, _positive(value.get("low")), _positive(value.get("high")), versions
    )


def _positive(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 < value < math.inf else None
