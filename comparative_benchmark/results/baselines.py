"""The competitor that a results file's ratios are taken against."""

import itertools
from collections.abc import Sequence

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.compare import DEFAULT_BASELINE


def usual_baseline(cases: Sequence[Case]) -> str | None:
    """Returns the baseline of a table of results; None if there is nothing to compare.

    The baseline that the command of the latest run named comes first, then eager PyTorch, then the
    first competitor. Fixed counts give one process each, which supports no verdict.
    """
    names = list(dict.fromkeys(case.competitor for case in cases))
    raced = any(len(case.metrics.processes or ()) > 1 for case in cases)
    if len(names) < 2 or not raced:
        return None
    recorded = [named_baseline(case.run.trigger.command) for case in cases[-1:] if case.run]
    usual = [*recorded, DEFAULT_BASELINE]
    return next((name for name in usual if name in names), names[0])


def named_baseline(command: Sequence[str]) -> str | None:
    """Returns the value of `--baseline` in a command line."""
    for word, following in itertools.pairwise([*command, ""]):
        if word == "--baseline":
            return following
        if word.startswith("--baseline="):
            return word.partition("=")[2]
    return None
