"""`cbs list`: lists cases and their workloads."""

import argparse
import json

from comparative_benchmark.terminal.listing import as_row, matching
from comparative_benchmark.terminal.options import EXIT_OK, select


def run(options: argparse.Namespace) -> int:
    """Prints the selected cases, each with its workload; returns 0.

    Raises:
      UsageError: an expression is malformed.
    """
    cases = select(
        options.name,
        test=options.test,
        tags=options.tag,
        framework=options.framework,
        suites=options.suite,
    )
    rows = matching(cases, options.workload)
    if options.json:
        print(json.dumps([as_row(*row) for row in rows], indent=2))
        return EXIT_OK
    width = max((len(case.name) for case, _ in rows), default=0)
    for case, workload in rows:
        print(f"{case.name:<{width}}  {workload.id}")
    return EXIT_OK
