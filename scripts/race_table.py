#!/usr/bin/env python3
"""Prints the Markdown table of a race of two environments, one against the other.

    race_table.py RESULTS_FILE OLD NEW [HEADLINE]

OLD and NEW are names of environments, as in `cbs run --env OLD=PATH,NEW=PATH`. Exit code as in
`cbs compare`: 2 if a case is slower or wrong, 3 if data are missing.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from comparative_benchmark.analysis.stats.analysis import NOISE_THRESHOLD
from comparative_benchmark.results.case import Case, cases_of
from comparative_benchmark.results.comparing.compare import (
    Comparison,
    exit_code,
    summarize_comparisons,
)
from comparative_benchmark.results.comparing.comparison import compared
from comparative_benchmark.results.results_file import ResultsFileError, read_document
from comparative_benchmark.terminal.compare_views import as_markdown


class UnpairedError(Exception):
    """A case ran in only one of the environments; the message names it."""


def raced(cases: Iterable[Case], old: str, new: str) -> list[Comparison]:
    """Compares each case of the new environment with the same case of the old one.

    Raises:
      UnpairedError: one of the environments lacks a case.
    """
    sides: defaultdict[tuple[str, ...], dict[str, Case]] = defaultdict(dict)
    for case in cases:
        definition = case.result.definition
        if definition.environment and definition.environment.name in (old, new):
            name = (definition.benchmark_name, definition.backend, definition.compiler, case.device)
            sides[name][definition.environment.name] = case
    for names, pair in sides.items():
        if len(pair) < 2:
            raise UnpairedError(f"{' '.join(names)} ran only in {''.join(pair)}")
    return [compared(pair[old], pair[new], threshold=NOISE_THRESHOLD) for pair in sides.values()]


def main() -> int:
    """Prints the table of a results file."""
    if len(sys.argv) not in (4, 5):
        print(__doc__, file=sys.stderr)
        return 1
    path, old, new, *headline = sys.argv[1:]
    try:
        cases = cases_of(read_document(Path(path)))
    except ResultsFileError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        comparisons = raced(cases, old, new)
    except UnpairedError as error:
        print(error, file=sys.stderr)
        return 3
    summary = summarize_comparisons(comparisons)
    if headline:
        print(f"{headline[0]}\n")
    if comparisons:
        print(as_markdown(comparisons, summary), end="")
    else:
        print(f"No case ran in both {old} and {new}.")
    return exit_code(summary)


if __name__ == "__main__":
    sys.exit(main())
