"""What `run`, `load` and `compare` return: prints as a table, becomes data frames and plots."""

import functools
import io
import json
import os
import pkgutil
import statistics
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from rich.table import Table as RichTable

from comparative_benchmark.analysis.stats.analysis import (
    NOISE_THRESHOLD,
    Interval,
    Verdict,
)
from comparative_benchmark.errors import UsageError, check_place
from comparative_benchmark.results.case import Case, cases_of, latest
from comparative_benchmark.results.comparing.compare import (
    DEFAULT_BASELINE,
    Fate,
    Summary,
    compare_to_baseline,
    exit_code,
    summarize_comparisons,
    usual_baseline,
)
from comparative_benchmark.results.comparing.comparison import (
    Comparison,
    interval_of,
    regressions,
)
from comparative_benchmark.results.record import Document, Status
from comparative_benchmark.results.results_file import plain, write_atomically
from comparative_benchmark.terminal import run_summary
from comparative_benchmark.terminal.compare_views import HEADINGS, summary_line, table_rows
from comparative_benchmark.terminal.run_summary import fastest, recommendation
from comparative_benchmark.terminal.screen import Screen
from comparative_benchmark.terminal.tables import comparison_table, results_table
from openxla.benchmark.installation import install_command

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from matplotlib.axes import Axes


def latencies(cases: Sequence[Case], axes: "Axes | None" = None) -> "Axes":
    """Draws one bar per case that has a latency, with its interval over processes."""
    if axes is None:
        from matplotlib import pyplot as plt

        _, axes = plt.subplots(layout="constrained")
    shown = [case for case in cases if case.status is Status.OK and case.metrics.median_ms]
    for position, case in enumerate(shown):
        median_ms, error = case.metrics.median_ms or 0.0, None
        if interval := _interval(case):
            median_ms = interval.estimate
            error = [[median_ms - interval.low], [interval.high - median_ms]]
        axes.barh(position, median_ms, xerr=error)
    names = [f"{case.label}\n{case.competitor} ({case.framework})" for case in shown]
    axes.set_yticks(range(len(shown)), names)
    axes.invert_yaxis()
    axes.set_xlabel("latency, ms (95 % interval over processes)")
    return axes


Item = TypeVar("Item")
Row = dict[str, Any]
# The columns of data frames, in their order, and the value of each; None if it is missing.
RESULT_COLUMNS: dict[str, Callable[[Case], Any]] = {
    "case": lambda case: case.result.definition.benchmark_name,
    "workload": lambda case: case.label,
    "framework": lambda case: case.framework,
    "competitor": lambda case: case.competitor,
    "device": lambda case: case.device,
    "batch_size": lambda case: case.result.definition.batch_size,
    "status": lambda case: case.result.word,
    "reason": lambda case: case.result.reason or None,
    "latency_ms": lambda case: case.metrics.median_ms,
    "latency_low_ms": lambda case: i.low if (i := _interval(case)) else None,
    "latency_high_ms": lambda case: i.high if (i := _interval(case)) else None,
    "processes": lambda case: len(case.metrics.processes or ()),
    "compile_ms": lambda case: case.metrics.compile_time_ms,
    "warm_compile_ms": lambda case: (
        statistics.median(times) if (times := case.metrics.warm_compile_time_ms) else None
    ),
    "host_memory_peak_mb": lambda case: case.metrics.host_memory_peak_mb,
    "device_memory_peak_mb": lambda case: case.metrics.device_memory_peak_mb,
    "relative_rmse": lambda case: v.relative_rmse if (v := case.metrics.verdict) else None,
    "accuracy": lambda case: a.value if (a := case.metrics.accuracy) else None,
    # Depends on the other results; see `result_rows`.
    "verdict": lambda _: None,
    "machine": lambda case: case.machine,
    "started": lambda case: case.started,
    "run_id": lambda case: case.result.run_id,
}
COMPARISON_COLUMNS: dict[str, Callable[[Comparison], Any]] = {
    "workload": lambda item: item.label,
    "competitor": lambda item: item.competitor,
    "framework": lambda item: item.framework,
    "device": lambda item: item.device,
    "quantity": lambda item: item.quantity,
    "verdict": lambda item: item.verdict.value,
    "baseline_ms": lambda item: item.baseline_ms.estimate if item.baseline_ms else None,
    "candidate_ms": lambda item: item.candidate_ms.estimate if item.candidate_ms else None,
    "ratio": lambda item: item.ratio.estimate if item.ratio else None,
    "ratio_low": lambda item: item.ratio.low if item.ratio else None,
    "ratio_high": lambda item: item.ratio.high if item.ratio else None,
    "level": lambda item: item.ratio.level if item.ratio else None,
    "processes": lambda item: item.ratio.processes if item.ratio else None,
    "paired": lambda item: item.paired,
    "p_value": lambda item: item.p_value,
    "reason": lambda item: item.reason,
}


class Table(Sequence[Item]):
    """Items with a row of values for each, in the same columns; may be empty."""

    def __init__(
        self, items: Sequence[Item], columns: Iterable[str], rows: Callable[[], list[Row]]
    ) -> None:
        """Creates a table from items, column names and a function that computes the rows."""
        self._items = list(items)
        self.columns = tuple(columns)
        self._make_rows = rows

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    @functools.cached_property
    def rows(self) -> list[Row]:
        """One dict per row, with all columns."""
        return self._make_rows()

    def to_arrow(self) -> "pa.Table":
        """Returns an Arrow table; needs pyarrow."""
        import pyarrow as pa

        return pa.table({name: [row[name] for row in self.rows] for name in self.columns})

    def to_pandas(self) -> "pd.DataFrame":
        """Returns a data frame.

        Raises:
          UsageError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ModuleNotFoundError as error:
            raise UsageError(f"pandas not found; run {install_command('notebook')}") from error
        return pd.DataFrame(self.rows, columns=self.columns)


def result_rows(cases: Sequence[Case], baseline: str | None) -> list[Row]:
    """Returns the row of each result, with its verdict relative to the baseline competitor.

    The verdict is None without a baseline, for the baseline, and for older results of a case.
    """
    compared = compare_to_baseline(cases, baseline) if baseline else []
    verdicts = {
        (item.workload, item.device, item.quantity, item.competitor, item.framework): item.verdict
        for item in compared
    }
    newest = set(map(id, latest(cases)))
    rows = []
    for case in cases:
        key = (case.workload, case.device, case.quantity, case.competitor, case.framework)
        verdict = verdicts.get(key) if id(case) in newest else None
        rows.append(result_row(case) | {"verdict": verdict and verdict.value})
    return rows


def result_row(case: Case) -> Row:
    """Returns the figures of a result by column, without the verdict; None if missing."""
    return {name: value(case) for name, value in RESULT_COLUMNS.items()}


def _interval(case: Case) -> Interval | None:
    has_latency = len(case.metrics.processes or ()) > 1 and not case.metrics.compile_only
    return interval_of(case) if has_latency else None


def comparison_row(item: Comparison) -> Row:
    """Returns the columns of a comparison; None for missing values."""
    return {name: value(item) for name, value in COMPARISON_COLUMNS.items()}


def as_json(cases: Sequence[Case], baseline: str | None, answers: Sequence[str] = ()) -> str:
    """Returns results, their verdicts and the recommendation as JSON.

    Args:
      cases: the results.
      baseline: competitor of the verdicts; None for none.
      answers: sentences of the recommendation.
    """
    compared = compare_to_baseline(cases, baseline) if baseline else []
    value = {
        "baseline": baseline,
        "results": result_rows(cases, baseline),
        "verdicts": [comparison_row(item) for item in compared],
        "recommendation": list(answers),
    }
    return json.dumps(value, indent=2, allow_nan=False, default=str)


def html(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Returns an HTML table for a notebook."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_WIDTH = 200


class Comparisons(Table[Comparison]):
    """Comparisons with their summary; prints as the table of `cbs compare`."""

    def __init__(self, comparisons: Sequence[Comparison]) -> None:
        super().__init__(comparisons, COMPARISON_COLUMNS, lambda: list(map(comparison_row, self)))
        self.summary: Summary = summarize_comparisons(self)

    @property
    def regressions(self) -> "Comparisons":
        """Cases with wrong output, and those that became significantly slower.

        Significance accounts for the number of comparisons.
        """
        wrong = [item for item in self if item.fate is Fate.WRONG]
        return Comparisons([*wrong, *regressions(self)])

    @property
    def improvements(self) -> "Comparisons":
        """Cases that became faster."""
        return Comparisons([item for item in self if item.verdict is Verdict.FASTER])

    @property
    def exit_code(self) -> int:
        """Exit code of `cbs compare`: 0 fine, 2 a regression or wrong output, 3 data missing."""
        return exit_code(self.summary)

    def __str__(self) -> str:
        table = comparison_table(self, width=_WIDTH).table
        return _printed(table) + summary_line(self.summary)

    def __repr__(self) -> str:
        return f"<Comparisons: {summary_line(self.summary)}>"

    def _repr_html_(self) -> str:
        return html(HEADINGS, table_rows(self), summary_line(self.summary))


class Results(Table[Case]):
    """Results of one file; prints as the table of `cbs show`.

    Attributes:
      document: content of the whole file.
      path: path of the file; None if the results are not in a file.
      baseline: baseline competitor of `verdicts`.
    """

    def __init__(
        self, document: Document, *, path: Path | None = None, baseline: str | None = None
    ) -> None:
        super().__init__(
            cases_of(document), RESULT_COLUMNS, lambda: result_rows(self, self.baseline)
        )
        self.document = document
        self.path = path
        installed, _ = run_summary.split(self)
        names = [case.competitor for case in installed]
        first = DEFAULT_BASELINE if DEFAULT_BASELINE in names else next(iter(names), None)
        self.baseline = baseline or usual_baseline(installed) or first

    @property
    def failures(self) -> list[Case]:
        """Cases that are not `ok`; `why` gives the reason for each."""
        return [case for case in self if case.status is not Status.OK]

    @property
    def best(self) -> Case | None:
        """The fastest competitor with a correct output in the precision of the workload.

        None for results of several workloads, or without such a competitor; `recommendation`
        contains the reason.
        """
        return fastest(latest(self))

    @property
    def recommendation(self) -> str:
        """The recommendation printed by `cbs run` after its table: the best competitor, and why."""
        return recommendation(latest(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the results to a new file, which `load` can read.

        Raises:
          UsageError: the file cannot be written.
        """
        target = Path(path)
        check_place(target, "path")
        write_atomically(target, plain(self.document))

    def report(self, path: str | os.PathLike[str], *, title: str = "Benchmark report") -> None:
        """Writes the report of `cbs report`, as Markdown if the name ends in `.md`, else as HTML.

        Args:
          path: file to write.
          title: heading of the page.

        Raises:
          UsageError: there is nothing to report, a package is missing, or the file cannot be
            written.
        """
        # Import by name: the reporting package is layered above this one.
        write = pkgutil.resolve_name("comparative_benchmark.reporting.report.writing:write_report")
        folder = self.path.absolute().parent if self.path else None
        write(self.document, Path(path), title=title, baseline=self.baseline, folder=folder)

    def verdicts(
        self, baseline: str | None = None, *, threshold: float = NOISE_THRESHOLD
    ) -> Comparisons:
        """Compares each competitor with the baseline competitor of its workload.

        Args:
          baseline: `backend:compiler`; by default `self.baseline`.
          threshold: smaller differences count as noise.
        """
        chosen = baseline or self.baseline or DEFAULT_BASELINE
        return Comparisons(compare_to_baseline(self, chosen, threshold=threshold))

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draws the latencies with their intervals; needs matplotlib.

        Args:
          axes: axes to draw on; new ones by default.
        """
        return latencies(self, axes)

    def __str__(self) -> str:
        installed, absent = run_summary.split(self)
        table = results_table(installed, baseline=self._shown_baseline(), width=_WIDTH).table
        return _printed(table) + absent

    def __repr__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        return f"<Results{where}: {len(self)} results, {len(self.failures)} not ok>"

    def _repr_html_(self) -> str:
        installed, absent = run_summary.split(self)
        table = results_table(installed, baseline=self._shown_baseline()).table
        headings = [str(column.header) for column in table.columns]
        columns = [[str(cell) for cell in column.cells] for column in table.columns]
        return html(headings, list(zip(*columns, strict=True)), absent)

    def _shown_baseline(self) -> str | None:
        return self.baseline if usual_baseline(self) else None


def _printed(table: RichTable) -> str:
    text = io.StringIO()
    Screen(file=text, width=_WIDTH).print(table)
    return text.getvalue()
