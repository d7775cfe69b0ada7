"""`cbs explain`: explains why one competitor in a results file is slower than another."""

import argparse

from comparative_benchmark.results.codec import ResultsFileError, read_document
from comparative_benchmark.studies.explain import table
from comparative_benchmark.studies.explain.explained import explained
from comparative_benchmark.studies.explain.profiling import NoProfileError, Profiling
from comparative_benchmark.terminal.console import Console
from comparative_benchmark.terminal.options import EXIT_FAILED, EXIT_OK, UsageError
from comparative_benchmark.terminal.screen import output_screen


def run(options: argparse.Namespace) -> int:
    """Prints where the slower competitor loses time.

    Returns:
      0; 1 if one of them cannot be profiled, with a message.

    Raises:
      UsageError: the results are missing, or the cases or packages that produced them are.
      DefinitionError: see `catalog`.
    """
    if options.again and options.no_profiling:
        raise UsageError("--again and --no-profiling cannot be combined; use one of them")
    try:
        document = read_document(options.results)
    except ResultsFileError as error:
        raise UsageError(str(error)) from error
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
