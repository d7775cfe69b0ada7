"""Terminal output of `cbs parity`."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from rich.text import Text

from comparative_benchmark.results.record import Status
from comparative_benchmark.studies.parity import matrix
from comparative_benchmark.studies.parity.cell_result import CellResult
from comparative_benchmark.studies.parity.drift import Drift
from comparative_benchmark.studies.parity.grid import CellKey
from comparative_benchmark.terminal.again import suite_options
from comparative_benchmark.terminal.console import StatusScreen
from comparative_benchmark.terminal.screen import Screen as Paper

# Width for pipes, so that logs and other programs receive unwrapped lines.
_WIDTH_OF_A_PIPE = 220


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
        line.append(f"{result.status.value:<13}", style=matrix.style_of(result.status.value))
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
            f"{result.status.value} in parallel with other cells, runs again alone: {result.label}"
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
        found = matrix.layout(results, expected=expected, width=self._out.width)
        for table in found.tables:
            self._out.print(table)
            self._out.print()
        for line in found.lines:
            self._out.print(Text(line), soft_wrap=True)
        for result in results:
            if result.status not in (Status.OK, Status.UNSUPPORTED) and result.key not in expected:
                self._out.print(self._again(result, suites), soft_wrap=True)
        for drift in drifts:
            self._out.print(Text(f"drift: {drift}"), soft_wrap=True)
        for complaint in complaints:
            self._out.print(Text(f"expected failures: {complaint}", style="red"), soft_wrap=True)
        numbers = matrix.counts(results, expected)
        told = ", ".join(f"{number} {status}" for status, number in numbers.items())
        self._out.print(Text(f"{len(results)} cells: {told}"), soft_wrap=True)

    def _again(self, result: CellResult, suites: Sequence[str]) -> Text:
        """Returns the command that reproduces a failure."""
        text = Text(
            f"{result.status.value}  {result.label}  {result.framework}  {result.competitor}\n"
        )
        if result.log_file and self._keeps_logs:
            text.append(f"    log:   {result.log_file}\n")
        text.append(
            f"    again: cbs run --backend {result.competitor} -name '{result.case}' "
            f"-device {result.device} -o again.json -w 0 -iter 1 --verbose"
            + "".join(f" {option}" for option in suite_options(suites))
        )
        return text
