"""Whether a trial has processes enough, and what more would find, by those that it had."""

from collections.abc import Sequence

import numpy as np

from comparative_benchmark.results.outcome import TrialOutcome
from comparative_benchmark.results.record import Block
from comparative_benchmark.stats.analysis import Array, Rounds, checked
from comparative_benchmark.stats.planning import Outlook, outlook, ratio_sd, replicate_variances
from comparative_benchmark.stats.sampling_rule import SamplingRule
from comparative_benchmark.stats.stopping import stop_reasons


def why_enough(
    outcome: TrialOutcome,
    baseline: TrialOutcome | None,
    rule: SamplingRule,
    *,
    competitors: int = 2,
) -> str | None:
    """Returns why a trial needs no further process, see `stop_reasons`; None if it does.

    Samples from which nothing can be told are never enough.
    """
    try:
        processes = checked([process.latencies_ms for process in outcome.processes])
        logs = np.log([np.median(samples) for samples in processes])
        ratios, variances = None, None
        if baseline is not None:
            ratios, variances = _replicates(outcome, baseline)
        return str(stop_reasons(logs, ratios, variances, rule, competitors=competitors)) or None
    except ValueError:
        return None


def undecided(outcome: TrialOutcome, baseline: TrialOutcome, rule: SamplingRule) -> Outlook | None:
    """Returns what a race can find, by the processes that it has had as its pilot.

    None where these tell nothing, and where the two lie further apart than the race has to resolve.
    """
    try:
        ratios, variances = _replicates(outcome, baseline)
        found = outlook(
            float(ratio_sd(ratios, variances)),
            rule,
            process_s=outcome.wall_s / len(outcome.processes),
        )
    except ValueError:
        return None
    return found if abs(np.median(ratios)) < np.log1p(found.decidable) else None


def _replicates(outcome: TrialOutcome, baseline: TrialOutcome) -> tuple[Array, Array]:
    """Returns log ratios and variances of the replicates that two trials share.

    Raises:
      SampleError: there are fewer than two.
    """
    both = zip(outcome.processes, baseline.processes, strict=False)
    paired = [pair_rounds(candidate.blocks, other.blocks) for candidate, other in both]
    # An interruption may have set the two apart in a replicate.
    return replicate_variances([rounds for rounds in paired if rounds])


def pair_rounds(candidate: Sequence[Block], baseline: Sequence[Block]) -> Rounds:
    """Returns (candidate, baseline) median latencies of the rounds that both have a block of."""
    before = {block.round: float(np.median(block.latencies_ms)) for block in baseline}
    return [
        (float(np.median(block.latencies_ms)), before[block.round])
        for block in candidate
        if block.round in before
    ]
