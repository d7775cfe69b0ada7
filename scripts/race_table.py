#!/usr/bin/env python3
"""Prints the Markdown table of a race of two environments, one against the other.

    race_table.py RESULTS_FILE OLD NEW [HEADLINE]

OLD and NEW are names of environments, as in `cbs run --env OLD=PATH,NEW=PATH`. Exit code: as of
`cbs compare`, 2 for what is slower or wrong, 3 for missing data.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.results.codec import ResultsFileError
from comparative_benchmark.results.compare import (
    Comparison,
    Fate,
    compare_to_baseline,
    exit_code,
    read_document,
    summarize_comparisons,
)
from comparative_benchmark.results.records import Record, competitor_of
from comparative_benchmark.terminal.compare_views import as_markdown


class UnpairedError(Exception):
    """A case was run in one of the environments only; the message names it."""


def compared(records: Sequence[Record], old: str, new: str) -> list[Comparison]:
    """Returns each case of the new environment against the same case of the old one.

    Raises:
      UnpairedError: there is no such case.
    """
    found: list[Comparison] = []
    sides: defaultdict[tuple[str, ...], dict[str, Record]] = defaultdict(dict)
    for record in records:
        definition = record["definition"]
        where = (definition.get("environment") or {}).get("name")
        if where in (old, new):
            key = ("benchmark_name", "backend", "compiler", "device")
            sides[tuple(str(definition[name]) for name in key)][where] = record
    for names, pair in sides.items():
        if len(pair) < 2:
            raise UnpairedError(f"{' '.join(names)} was run in {''.join(pair)} only")
        found += [
            item
            for item in compare_to_baseline(
                [pair[old], pair[new]], competitor_of(pair[old]["definition"])
            )
            # That the old one is wrong, too, is said once, by the new one's row.
            if item.competitor == competitor_of(pair[new]["definition"])
            or item.fate is not Fate.WRONG
        ]
    return found


def main() -> int:
    """Prints the table of the file that the command line names."""
    if len(sys.argv) not in (4, 5):
        print(__doc__, file=sys.stderr)
        return 1
    path, old, new, *headline = sys.argv[1:]
    try:
        records = read_document(Path(path))["benchmarks"]
    except ResultsFileError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        comparisons = compared(records, old, new)
    except UnpairedError as error:
        print(error, file=sys.stderr)
        return 3
    summary = summarize_comparisons(comparisons)
    if headline:
        print(f"{headline[0]}\n")
    if comparisons:
        print(as_markdown(comparisons, summary), end="")
    else:
        print(f"No case was run in both {old} and {new}.")
    return exit_code(summary)


if __name__ == "__main__":
    sys.exit(main())
