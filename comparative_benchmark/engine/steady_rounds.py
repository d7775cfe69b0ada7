"""Detects trials whose speed changed over the rounds of a race."""

import math
import statistics
from collections.abc import Mapping

from comparative_benchmark.analysis.stats.rounds import Rounds, why_not_steady
from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import ResultKey, Status


def judge_rounds(outcomes: Mapping[ResultKey, TrialOutcome], *, interleaved: bool) -> None:
    """Marks trials as `unsteady` if later rounds differ from earlier ones.

    Args:
      outcomes: outcomes of the competitors; their n-th processes were measured together.
      interleaved: whether they were interleaved; then only changes relative to the others count.
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
    """Returns the log median latency of each block, by round."""
    return {
        block.round: math.log(statistics.median(block.latencies_ms))
        for block in process.blocks
        if block.round is not None and block.latencies_ms
    }
