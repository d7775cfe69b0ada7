"""Ends what did not keep its speed through the rounds of a race."""

import math
import statistics
from collections.abc import Mapping

from comparative_benchmark.analysis.stats.rounds import Rounds, why_not_steady
from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import ResultKey, Status


def judge_rounds(outcomes: Mapping[ResultKey, TrialOutcome], *, interleaved: bool) -> None:
    """Makes those `unsteady` whose later rounds differ from the earlier ones.

    Args:
      outcomes: of the competitors of a race; the n-th processes were measured beside each other.
      interleaved: whether they were, in turns: then a change counts only against the rivals.
    """
    measured = {
        key: [_by_round(process) for process in outcome.processes]
        for key, outcome in outcomes.items()
        if not outcome.ended
    }
    for key, processes in measured.items():
        others = [rounds for other, rounds in measured.items() if interleaved and other != key]
        beside = [
            [rounds[number] for rounds in others if number < len(rounds)]
            for number in range(len(processes))
        ]
        reason = why_not_steady(processes, beside)
        if reason is not None:
            last = outcomes[key].processes[-1]
            last.status, last.phase, last.reason = Status.UNSTEADY, "measure", reason


def _by_round(process: ProcessRecord) -> Rounds:
    """Returns the logarithm of the median of each block, by its round."""
    return {
        block.round: math.log(statistics.median(block.latencies_ms))
        for block in process.blocks
        if block.round is not None and block.latencies_ms
    }
