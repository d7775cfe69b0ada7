"""`cbs explain` and `cbs repro`: look into a result of a results file."""

import argparse

from comparative_benchmark.errors import EXIT_FAILED, EXIT_OK, UsageError
from comparative_benchmark.results.results_file import read_document
from comparative_benchmark.studies.explain import table
from comparative_benchmark.studies.explain.explained import explained
from comparative_benchmark.studies.explain.profiling import NoProfileError, Profiling
from comparative_benchmark.studies.reproduce.creating import reproduce
from comparative_benchmark.terminal.console import Console
from comparative_benchmark.terminal.screen import output_screen


def explain(options: argparse.Namespace) -> int:
    """Prints where the slower competitor loses time.

    Returns:
      0; 1 if one of them cannot be profiled, with a message.

    Raises:
      UsageError: the results are missing, or the cases or packages that produced them are.
      DefinitionError: see `catalog`.
    """
    if options.again and options.no_profiling:
        raise UsageError("--again and --no-profiling cannot be combined; use one of them")
    document = read_document(options.results)
    console = Console()
    wanted = Profiling(
        results=options.results,
        again=options.again,
        stored_only=options.no_profiling,
        suites=options.suite,
        recorded_python=options.recorded_python,
        timeout_s=options.timeout,
        memory_bytes=options.memory_limit,
    )
    try:
        found = explained(
            document,
            wanted,
            console,
            competitors=options.competitors,
            case=options.case,
            device=options.device,
        )
    except NoProfileError as error:
        console.say(f"no profile: {error}", style="red")
        return EXIT_FAILED
    if options.json:
        print(table.as_json(found.explanation))
        return EXIT_OK
    found.print(output_screen())
    console.say(f"profiles: {options.results.with_suffix('.profiles')}")
    return EXIT_OK


def repro(options: argparse.Namespace) -> int:
    """Creates a reproducer; returns 0, or 1 if nothing could be exported.

    Raises:
      UsageError: the result is missing or ambiguous, or the directory is in use.
      DefinitionError: see `catalog`.
    """
    return reproduce(
        read_document(options.results),
        case=options.case,
        competitor=options.backend,
        device=options.device,
        suites=options.suite,
        recorded_python=options.recorded_python,
        output=options.output,
        check=options.check,
        timeout_s=options.timeout,
        memory_bytes=options.memory_limit,
    )
