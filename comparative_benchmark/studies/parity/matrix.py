"""Terminal output of `cbs parity`: its progress, and the matrix.

The matrix is one table, or several if the terminal is too narrow. Long reasons would widen the
table, so cells contain numbers of footnotes.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import attrs
from rich.table import Table
from rich.text import Text

from comparative_benchmark.results.record import Status
from comparative_benchmark.studies.parity.drift import Drift
from comparative_benchmark.studies.parity.grid import CellKey, CellResult
from comparative_benchmark.terminal.screen import Screen as Paper
from comparative_benchmark.terminal.status import StatusScreen
from comparative_benchmark.terminal.subjects import suite_options

_STYLES = {"ok": "green", "unsupported": "dim", "expected": "yellow"}
_FAILED_STYLE = "red"
_PADDING = 2

# Width for pipes, so that logs and other programs receive unwrapped lines.
_WIDTH_OF_A_PIPE = 220


@attrs.define
class Footnotes:
    """Reasons, numbered in order of first use."""

    reasons: dict[str, int] = attrs.field(factory=dict)

    def number(self, reason: str) -> int:
        """Returns the number of a reason."""
        return self.reasons.setdefault(reason, len(self.reasons) + 1)

    def lines(self) -> list[str]:
        """Returns a line for each reason, in the order of their numbers."""
        return [f"[{number}] {reason}" for reason, number in self.reasons.items()]


@attrs.frozen(kw_only=True)
class Matrix:
    """A printable matrix: tables, and the lines below them."""

    tables: Sequence[Table]
    lines: Sequence[str]


def shown_status(result: CellResult, expected: Mapping[CellKey, str]) -> str:
    """Returns the status to display: `expected` for a known failure."""
    return "expected" if result.key in expected else result.status.value


def style_of(status: str) -> str:
    """Returns the colour of a status."""
    return _STYLES.get(status, _FAILED_STYLE)


def layout(results: Sequence[CellResult], *, expected: Mapping[CellKey, str], width: int) -> Matrix:
    """Arranges results as a matrix.

    Columns that cannot be run for a single reason (the backend does not support models of that
    framework) are listed below, one line per reason; all others are in a table.

    Args:
      results: one for each combination.
      expected: reasons of the known failures.
      width: width of the terminal, in characters.
    """
    labels = list(dict.fromkeys(result.label for result in results))
    columns: dict[tuple[str, str], dict[str, CellResult]] = {}
    for result in results:
        columns.setdefault((result.framework, result.competitor), {})[result.label] = result
    footnotes = Footnotes()
    shown: dict[tuple[str, str], dict[str, CellResult]] = {}
    left_out: dict[tuple[str, str], dict[str, CellResult]] = {}
    for heading, by_label in sorted(columns.items()):
        same = {(item.status, item.reason) for item in by_label.values()}
        empty = len(same) == 1 and next(iter(same))[0] is Status.UNSUPPORTED
        (left_out if empty else shown)[heading] = by_label
    texts = {
        heading: {label: _cell(item, expected, footnotes) for label, item in by_label.items()}
        for heading, by_label in shown.items()
    }
    tables = [
        _table(labels, {heading: texts[heading] for heading in panel})
        for panel in _panels(labels, texts, width)
    ]
    unsupported: dict[int, list[str]] = {}
    for (framework, competitor), by_label in left_out.items():
        number = footnotes.number(next(iter(by_label.values())).reason or "")
        unsupported.setdefault(number, []).append(f"{framework} {competitor}")
    lines = [f"unsupported [{number}]: {', '.join(of)}" for number, of in unsupported.items()]
    return Matrix(tables=tables, lines=[*lines, *footnotes.lines()])


def counts(results: Iterable[CellResult], expected: Mapping[CellKey, str]) -> dict[str, int]:
    """Returns the number of cells by status; `ok` first, then by frequency."""
    counts = Counter(ok=0)
    counts.update(shown_status(result, expected) for result in results)
    return dict(sorted(counts.items(), key=lambda item: (item[0] != "ok", -item[1], item[0])))


def _cell(result: CellResult, expected: Mapping[CellKey, str], footnotes: Footnotes) -> Text:
    status = shown_status(result, expected)
    error = "" if result.relative_error is None else f" {result.relative_error:.1e}"
    if status == "ok":
        return Text(f"ok{error}", style=style_of(status))
    reason = f"in {result.phase}: {result.reason}" if result.phase else result.reason or ""
    if status == "unsupported":
        error, reason = "", result.reason or ""
    elif status == "expected":
        error, reason = "", f"{result.status.value} {reason}; expected: {expected[result.key]}"
    return Text(f"{status}{error} [{footnotes.number(reason)}]", style=style_of(status))


def _panels(
    labels: Sequence[str], texts: Mapping[tuple[str, str], Mapping[str, Text]], width: int
) -> list[list[tuple[str, str]]]:
    """Returns groups of columns; each group fits next to the labels."""
    room = width - max(map(len, (*labels, "workload")), default=0) - _PADDING
    panels: list[list[tuple[str, str]]] = [[]]
    used = 0
    for heading, by_label in texts.items():
        words = [*_heading(heading).splitlines(), *(text.plain for text in by_label.values())]
        wide = max(map(len, words)) + _PADDING
        if panels[-1] and used + wide > room:
            panels.append([])
            used = 0
        panels[-1].append(heading)
        used += wide
    return [panel for panel in panels if panel]


def _table(labels: Sequence[str], texts: Mapping[tuple[str, str], Mapping[str, Text]]) -> Table:
    table = Table(pad_edge=False, box=None, padding=(0, _PADDING, 0, 0))
    table.add_column("workload", no_wrap=True)
    for heading in texts:
        table.add_column(_heading(heading), no_wrap=True)
    for label in labels:
        table.add_row(label, *(by_label[label] for by_label in texts.values()))
    return table


def _heading(column: tuple[str, str]) -> str:
    """Returns framework, backend and compiler on separate lines."""
    framework, competitor = column
    backend, _, compiler = competitor.partition(":")
    return f"{framework}\n{backend}\n{compiler}"


class Screen:
    """Prints progress to stderr, and the matrix to stdout."""

    def __init__(self, *, verbose: bool, keeps_logs: bool) -> None:
        self._verbose = verbose
        self._keeps_logs = keeps_logs
        self._out = Paper()
        if not self._out.is_terminal:
            self._out = Paper(width=_WIDTH_OF_A_PIPE)
        self._err = StatusScreen()

    def say(self, message: str, style: str = "") -> None:
        """Prints a line of progress."""
        self._err.print(Text(message, style=style))

    def preparing(self, what: str) -> None:
        """See `runner.Observer`."""
        self.say(f"preparing  {what}")

    def cell_finished(self, result: CellResult, position: int, total: int) -> None:
        """See `runner.Observer`."""
        line = Text(f"[{position:>{len(str(total))}}/{total}] ")
        line.append(f"{result.status.value:<13}", style=style_of(result.status.value))
        line.append(f" {result.label}  {result.framework}  {result.competitor}")
        if result.relative_error is not None:
            line.append(f"  {result.relative_error:.1e}")
        if result.reason:
            line.append(f"  in {result.phase}: {result.reason}")
        if result.note:
            line.append(f"  (note: {result.note})")
        self._err.print(line)
        self._err.at("", position, total)
        if self._verbose and result.traceback:
            self.say("".join(f"    {line}\n" for line in result.traceback.splitlines()).rstrip())

    def cell_postponed(self, result: CellResult) -> None:
        """See `runner.Observer`."""
        text = (
            f"{result.status.value} in parallel with other cells; rerunning alone: {result.label}"
        )
        self.say(f"{text}  {result.framework}  {result.competitor}", style="yellow")

    def following(self) -> AbstractContextManager[None]:
        """Shows what workers do while the block runs."""
        return self._err.following()

    def show(
        self,
        results: Sequence[CellResult],
        expected: Mapping[CellKey, str],
        complaints: Sequence[str],
        drifts: Sequence[Drift],
        suites: Sequence[str],
    ) -> None:
        """Prints the matrix, its footnotes, and commands to reproduce failures."""
        panels = layout(results, expected=expected, width=self._out.width)
        for table in panels.tables:
            self._out.print(table)
            self._out.print()
        for line in panels.lines:
            self._out.print(Text(line), soft_wrap=True)
        for result in results:
            if result.status not in (Status.OK, Status.UNSUPPORTED) and result.key not in expected:
                self._out.print(self._rerun_command(result, suites), soft_wrap=True)
        for drift in drifts:
            self._out.print(Text(f"drift: {drift}"), soft_wrap=True)
        for complaint in complaints:
            self._out.print(Text(f"expected failures: {complaint}", style="red"), soft_wrap=True)
        numbers = counts(results, expected)
        summary = ", ".join(f"{number} {status}" for status, number in numbers.items())
        self._out.print(Text(f"{len(results)} cells: {summary}"), soft_wrap=True)

    def _rerun_command(self, result: CellResult, suites: Sequence[str]) -> Text:
        """Returns the command that reproduces a failure."""
        text = Text(
            f"{result.status.value}  {result.label}  {result.framework}  {result.competitor}\n"
        )
        if result.log_file and self._keeps_logs:
            text.append(f"    log:   {result.log_file}\n")
        text.append(
            f"    again: cbs run --backend {result.competitor} "
            f"-name {shlex.quote(str(result.case))} "
            f"-device {result.device} -o again.json -w 0 -iter 1 --verbose"
            + "".join(f" {option}" for option in suite_options(suites))
        )
        return text
