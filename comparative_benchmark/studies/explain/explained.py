"""Builds a printable explanation from the results of a file."""

import io
import os
from collections.abc import Callable, Sequence

import attrs

from comparative_benchmark.api import load
from comparative_benchmark.api.progress import Progress, Reporter
from comparative_benchmark.api.results import Results
from comparative_benchmark.engine.runner import Observer
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.insights.explanations import Explanation, explain
from comparative_benchmark.results.insights.roofs import ceilings_of
from comparative_benchmark.results.record import Document
from comparative_benchmark.studies.explain import choosing, table
from comparative_benchmark.studies.explain.profiling import NoProfileError, Profiling, profile_of
from comparative_benchmark.terminal.screen import Screen

_WIDTH = 200


@attrs.frozen(kw_only=True, repr=False)
class Explained:
    """Why one competitor is slower than another; prints as the table of `cbs explain`.

    Attributes:
      explanation: the time lost by kind of operator, and both profiles.
      device: device of both competitors.
      has_roof: whether shares of the roof are known.
    """

    explanation: Explanation
    device: str
    has_roof: bool

    def print(self, screen: Screen) -> None:
        """Prints the table and the lines below it."""
        title = f"{self.explanation.workload} on {self.device}"
        screen.print(title, markup=False, style="bold")
        wide = table.table_of(self.explanation)
        fits = screen.measure(wide).maximum <= screen.width
        screen.print(wide if fits else table.table_of(self.explanation, narrow=True))
        for line in table.lines_of(self.explanation):
            screen.print(line)
        if not self.has_roof:
            screen.print("no share of the roof: run `cbs doctor --ceilings` once on this machine")

    def __str__(self) -> str:
        text = io.StringIO()
        self.print(Screen(file=text, width=_WIDTH))
        return text.getvalue()

    __repr__ = __str__


def explained(
    document: Document,
    wanted: Profiling,
    observer: Observer,
    *,
    competitors: Sequence[str] = (),
    case: str | None = None,
    device: str | None = None,
) -> Explained:
    """Explains why the slower of two competitors is slower; takes missing profiles.

    Args:
      document: content of the results file.
      wanted: how to profile.
      observer: receives progress.
      competitors: up to two; missing ones are the slowest and the fastest.
      case: regular expression to search for in names of cases; None if there is one workload.
      device: name of a device; None if there is one.

    Raises:
      UsageError: the results or their cases do not exist.
      NoProfileError: one of them cannot be profiled.
      DefinitionError: see `catalog`.
    """
    cases = choosing.choose(document, competitors, case=case, device=device)
    # Profile the slower one first: if that fails, the other profile is useless.
    slow, fast = ((item.result, profile_of(item, wanted, observer)) for item in cases)
    ceilings = ceilings_of(cases[0], document.benchmarks)
    return Explained(
        explanation=explain(slow, fast, ceilings),
        device=cases[0].device,
        has_roof=ceilings is not None,
    )


def explain_results(
    results: Results | str | os.PathLike[str],
    *competitors: str,
    case: str | None = None,
    device: str | None = None,
    again: bool = False,
    suite: Sequence[str] = (),
    timeout: float = 1800.0,
    progress: Callable[[Progress], object] | None = None,
) -> Explained:
    """Returns why one competitor of a results file is slower than another, as `cbs explain` does.

    Competitors without a stored profile are profiled in a new worker.

    Args:
      results: results of a file, or its path.
      competitors: up to two, e.g. `pt_inductor:eager`; by default the slowest and the fastest.
      case: regular expression to search for in names of cases; None if there is one workload.
      device: name of a device; None if there is one.
      again: profile again, even if profiles are stored.
      suite: additional modules with ALL_BENCHMARKS.
      timeout: seconds to profile one competitor.
      progress: called with each event.

    Raises:
      UsageError: the results do not exist, or they cannot be profiled.
      ResultsFileError: the file is not a valid results file.
    """
    found = results if isinstance(results, Results) else load(results)
    if found.path is None:
        raise UsageError("the results are not in a file; save them: results.save(path)")
    wanted = Profiling(results=found.path, again=again, suites=suite, timeout_s=timeout)
    try:
        return explained(
            found.document,
            wanted,
            Reporter(progress),
            competitors=competitors,
            case=case,
            device=device,
        )
    except NoProfileError as error:
        raise UsageError(f"no profile: {error}") from error
