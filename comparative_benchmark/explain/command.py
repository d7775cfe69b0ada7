"""`cbs explain`: why one competitor of a results file is slower than another."""

import argparse

from comparative_benchmark.explain import choosing, profiling, table
from comparative_benchmark.results.codec import ResultsFileError, read_document
from comparative_benchmark.results.explanations import explain
from comparative_benchmark.results.roofs import ceilings_of
from comparative_benchmark.terminal.console import Console
from comparative_benchmark.terminal.options import EXIT_FAILED, EXIT_OK, UsageError
from comparative_benchmark.terminal.screen import output_screen


def run(options: argparse.Namespace) -> int:
    """Prints where the slower one loses its time.

    Returns:
      0; 1 if one of them cannot be profiled, which is said.

    Raises:
      UsageError: the results are not there, or what made them is not.
      DefinitionError: see `catalog`.
    """
    if options.again and options.no_profiling:
        raise UsageError("--again and --no-profiling cannot be combined; use one of them")
    try:
        document = read_document(options.results)
    except ResultsFileError as error:
        raise UsageError(str(error)) from error
    cases = choosing.choose(document, options.competitors, case=options.case, device=options.device)
    console = Console()
    profiles = []
    for case in cases:
        try:
            profiles.append(profiling.profile_of(case, options, console))
        except profiling.NoProfileError as error:
            # The other one's would explain nothing.
            console.say(f"no profile: {error}", style="red")
            return EXIT_FAILED
    slow, fast = ((case.result, found) for case, found in zip(cases, profiles, strict=True))
    ceilings = ceilings_of(cases[0], document.benchmarks)
    found = explain(slow, fast, ceilings)
    if options.json:
        print(table.as_json(found))
        return EXIT_OK
    screen = output_screen()
    screen.print(f"{found.workload} on {cases[0].device}", markup=False, style="bold")
    wide = table.table_of(found)
    fits = screen.measure(wide).maximum <= screen.width
    screen.print(wide if fits else table.table_of(found, narrow=True))
    for line in table.lines_of(found):
        screen.print(line)
    if ceilings is None:
        screen.print("no share of the roof: run `cbs doctor --ceilings` once on this machine")
    console.say(f"profiles: {options.results.with_suffix('.profiles')}")
    return EXIT_OK
