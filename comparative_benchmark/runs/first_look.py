"""What is known of a race when each competitor has had one process: no verdict yet."""

import statistics
from collections.abc import Sequence

from comparative_benchmark.results.outcome import TrialOutcome
from comparative_benchmark.runs.trial import Trial


def first_look(raced: Sequence[tuple[Trial, TrialOutcome]], processes: int) -> str | None:
    """Returns a line with the latency of each whose output is right so far.

    None where there is nothing to wait for: fewer than two, or no further process.
    """
    known = [
        f"{_named(trial)} {_three_digits(statistics.median(latencies))} ms"
        for trial, outcome in raced
        if not outcome.ended and (latencies := outcome.processes[0].latencies_ms)
    ]
    if len(known) < 2 or processes < 2:
        return None
    return f"first processes: {', '.join(known)}; verdicts take at least {processes} of each"


def _named(trial: Trial) -> str:
    return f"{trial.competitor} ({trial.case.model.model_impl.framework_type.value})"


def _three_digits(value: float) -> str:
    return f"{float(f'{value:.3g}'):g}"
