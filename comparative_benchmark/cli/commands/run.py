"""`cbs run` and `run_benchmarks.py`: convert options to a run and its exit code."""

import argparse
import datetime
import sys
from collections.abc import Callable, Iterable, Sequence

from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.api.case_selection import Selection
from comparative_benchmark.api.measuring import Measured, measure, plan_run
from comparative_benchmark.api.results import as_json
from comparative_benchmark.cli.options.run import request_from
from comparative_benchmark.errors import (
    EXIT_FAILED,
    EXIT_MISSING,
    EXIT_OK,
    EXIT_UNFINISHED,
    UsageError,
)
from comparative_benchmark.results import expected_failures
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.roofs import ceilings_for
from comparative_benchmark.results.outcome import exit_code_of
from comparative_benchmark.results.record import Result, ResultKey
from comparative_benchmark.results.results_file import read_document
from comparative_benchmark.terminal.console import Console
from comparative_benchmark.terminal.quiet_machine import ask_in_terminal
from comparative_benchmark.terminal.run_summary import summary_lines
from comparative_benchmark.terminal.streams import without_secrets


def run(
    options: argparse.Namespace,
    selection: Selection | None = None,
    after: Callable[[Measured], Iterable[str]] = lambda _: (),
) -> int:
    """Executes a run as requested by the options and returns its exit code.

    The code is `EXIT_UNFINISHED` if nothing failed but the budget ran out before all trials ran.

    Args:
      options: options of `cbs run`, `run_benchmarks.py` or another measuring command.
      selection: what to run; None for the cases that the options select from the catalogue.
      after: called with the finished run; returns lines to print below its table.

    Raises:
      UsageError: an option is invalid.
    """
    request = request_from(options)
    known = expected_failures.load(
        request.expected_failures or expected_failures.EXPECTED_FAILURES_FILE
    )
    console = Console(verbose=request.verbose, suites=request.suites)
    if request.dry_run:
        if request.json:
            raise UsageError("--dry-run prints no JSON; omit --json")
        console.plan(plan_run(request, console.say, selection=selection).trials)
        return EXIT_OK
    with console.following():
        measured = measure(
            request,
            console,
            command=[without_secrets(word) for word in sys.argv],
            selection=selection,
            ask=None if request.busy else ask_in_terminal(),
        )
        ceilings = ceilings_for(
            measured.results,
            measured.settings.threads,
            # Measuring takes one to two minutes, too long for a run with a budget.
            measure=isinstance(measured.settings.sampling, SamplingRule)
            and measured.settings.budget_s is None,
            say=console.say,
        )
    results = measured.results
    today = datetime.datetime.now(datetime.UTC).date()
    judgement = expected_failures.judge(known, map(_ending, results), today=today)
    expected = _expected(results, judgement)
    # Results of earlier runs may have other conditions.
    runs = {run.run_id: run for run in read_document(request.output).runs} if request.resume else {}
    shown = [Case(result=result, run=runs.get(result.run_id)) for result in results]
    told = summary_lines(shown, absent=measured.absent, command=sys.argv, output=request.output)
    if request.json:
        print(as_json(shown, measured.baseline, told))
    else:
        console.results(
            shown,
            baseline=measured.baseline,
            ceilings=ceilings,
            expected=expected,
            with_absent=not told,
        )
        console.lines(*told)
    for line in (*measured.remarks, *after(measured)):
        console.say(line)
    for complaint in judgement.complaints():
        console.say(f"expected failures: {complaint}", style="red")
    console.say(f"results: {request.output}")
    console.say(f"next: cbs show {request.output}, cbs report {request.output} -o page.html")
    if request.profile:
        traces = request.output.with_suffix(".profiles")
        console.say(f"profiles: {traces} (open traces at https://ui.perfetto.dev)")
    code = _excused(exit_code_of([r for r in results if r.key not in expected]), judgement)
    if measured.left_out and code in (EXIT_OK, EXIT_MISSING):
        return EXIT_UNFINISHED
    return code


def _ending(result: Result) -> expected_failures.Ending:
    case, competitor, device = result.key
    return expected_failures.Ending(
        case_name=case, competitor=competitor, device=device, status=result.status.value
    )


def _expected(
    results: Sequence[Result], judgement: expected_failures.Judgement
) -> dict[ResultKey, str]:
    """Returns the displayed text for each known failure."""
    entries = ((result, judgement.expected.get(_ending(result))) for result in results)
    return {
        result.key: f"{result.status.value}: {result.reason} (known: {entry.reason}, {entry.link})"
        for result, entry in entries
        if entry is not None
    }


def _excused(code: int, judgement: expected_failures.Judgement) -> int:
    """Returns the exit code of a run after excluding known failures."""
    if code == EXIT_MISSING and judgement.expected:
        code = EXIT_OK
    return EXIT_FAILED if code == EXIT_OK and judgement.stale else code
