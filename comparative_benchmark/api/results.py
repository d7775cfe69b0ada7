"""Return types of `run`, `load` and `compare`: results and comparisons that print as tables."""

import io
import os
import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from rich.table import Table as RichTable

from comparative_benchmark.analysis.stats.analysis import NOISE_THRESHOLD, Verdict
from comparative_benchmark.api.tables import (
    COMPARISON_COLUMNS,
    RESULT_COLUMNS,
    Table,
    comparison_row,
    html,
    result_rows,
)
from comparative_benchmark.errors import check_place
from comparative_benchmark.results.case import Case, cases_of, latest
from comparative_benchmark.results.comparing.compare import (
    DEFAULT_BASELINE,
    Comparison,
    Fate,
    Summary,
    compare_documents,
    compare_to_baseline,
    exit_code,
    summarize_comparisons,
    usual_baseline,
)
from comparative_benchmark.results.comparing.comparison import regressions
from comparative_benchmark.results.record import Document, Status
from comparative_benchmark.results.results_file import plain, write_atomically
from comparative_benchmark.terminal import answers
from comparative_benchmark.terminal.answers import fastest, recommendation
from comparative_benchmark.terminal.compare_views import HEADINGS, summary_line, table_rows
from comparative_benchmark.terminal.screen import Screen
from comparative_benchmark.terminal.tables import comparison_table, results_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 200


class Comparisons(Table, Sequence[Comparison]):
    """Comparisons with their summary; prints as the table of `cbs compare`."""

    def __init__(self, comparisons: Sequence[Comparison]) -> None:
        self._comparisons = list(comparisons)
        super().__init__(COMPARISON_COLUMNS, lambda: [comparison_row(item) for item in self])
        self.summary: Summary = summarize_comparisons(self._comparisons)

    @overload
    def __getitem__(self, index: int) -> Comparison: ...
    @overload
    def __getitem__(self, index: slice) -> list[Comparison]: ...
    def __getitem__(self, index: int | slice) -> Comparison | list[Comparison]:
        return self._comparisons[index]

    def __len__(self) -> int:
        return len(self._comparisons)

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self._comparisons)

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
        return _printed(comparison_table(self._comparisons, width=_WIDTH).table) + summary_line(
            self.summary
        )

    def __repr__(self) -> str:
        return f"<Comparisons: {summary_line(self.summary)}>"

    def _repr_html_(self) -> str:
        return html(HEADINGS, table_rows(self._comparisons), summary_line(self.summary))


class Results(Table, Sequence[Case]):
    """Results of one file; prints as the table of `cbs show`.

    Attributes:
      document: content of the whole file.
      path: path of the file; None if the results are not in a file.
      baseline: baseline competitor of `verdicts`.
    """

    def __init__(
        self, document: Document, *, path: Path | None = None, baseline: str | None = None
    ) -> None:
        self._cases = cases_of(document)
        super().__init__(RESULT_COLUMNS, lambda: result_rows(self._cases, self.baseline))
        self.document = document
        self.path = path
        self.baseline = baseline or self._usual_baseline()

    @overload
    def __getitem__(self, index: int) -> Case: ...
    @overload
    def __getitem__(self, index: slice) -> list[Case]: ...
    def __getitem__(self, index: int | slice) -> Case | list[Case]:
        return self._cases[index]

    def __len__(self) -> int:
        return len(self._cases)

    def __iter__(self) -> Iterator[Case]:
        return iter(self._cases)

    @property
    def failures(self) -> list[Case]:
        """Cases that are not `ok`; `why` gives the reason for each."""
        return [case for case in self if case.status is not Status.OK]

    @property
    def best(self) -> Case | None:
        """The fastest competitor with a correct output in the precision of the workload.

        None for results of several workloads, or if there is no such competitor; `recommendation`
        contains the reason.
        """
        return fastest(latest(self._cases))

    @property
    def recommendation(self) -> str:
        """The recommendation printed by `cbs run` after its table: the best competitor, and why."""
        return recommendation(latest(self._cases))

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
          baseline: `backend:compiler`; by default the baseline of the run.
          threshold: smaller differences count as noise.
        """
        chosen = baseline or self.baseline or DEFAULT_BASELINE
        return Comparisons(compare_to_baseline(self._cases, chosen, threshold=threshold))

    def plot(self, axes: "Axes | None" = None) -> "Axes":
        """Draws the latencies with their intervals; needs matplotlib.

        Args:
          axes: axes to draw on; new ones by default.
        """
        from comparative_benchmark.api.plots import latencies

        return latencies(self._cases, axes)

    def __str__(self) -> str:
        installed, absent = answers.split(self._cases)
        table = results_table(installed, baseline=self._shown_baseline(), width=_WIDTH).table
        return _printed(table) + absent

    def __repr__(self) -> str:
        where = f" of {self.path}" if self.path else ""
        return f"<Results{where}: {len(self)} results, {len(self.failures)} not ok>"

    def _repr_html_(self) -> str:
        installed, absent = answers.split(self._cases)
        table = results_table(installed, baseline=self._shown_baseline()).table
        headings = [str(column.header) for column in table.columns]
        columns = [[str(cell) for cell in column.cells] for column in table.columns]
        return html(headings, list(zip(*columns, strict=True)), absent)

    def _usual_baseline(self) -> str | None:
        installed, _ = answers.split(self._cases)
        names = list(dict.fromkeys(case.competitor for case in installed))
        return DEFAULT_BASELINE if DEFAULT_BASELINE in names else next(iter(names), None)

    def _shown_baseline(self) -> str | None:
        return self.baseline if usual_baseline(self._cases) else None


def compare_results(
    old: Results, new: Results, *, threshold: float = NOISE_THRESHOLD, count_unchanged: bool = False
) -> Comparisons:
    """Compares all cases of two files; see `comparative_benchmark.compare`."""
    return Comparisons(
        compare_documents(
            old.document, new.document, threshold=threshold, count_unchanged=count_unchanged
        )
    )


def _printed(table: RichTable) -> str:
    text = io.StringIO()
    Screen(file=text, width=_WIDTH).print(table)
    return text.getvalue()
