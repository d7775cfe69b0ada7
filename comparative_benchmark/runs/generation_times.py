"""Prefill and decode of a worker that has been measured: their times, or why there are none."""

import math
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

from comparative_benchmark.judge.verification import Verification
from comparative_benchmark.results.outcome import GenerationTimes
from comparative_benchmark.results.record import Status
from comparative_benchmark.runs.messages import Generation, paths_of
from comparative_benchmark.runs.one_call import Callee
from comparative_benchmark.runs.session import SessionEnded

# About as long as this is each of the two measured, in a fresh process of a trial.
_MEASURED_MS = 400.0
_MIN_ITERATIONS, _MAX_ITERATIONS = 5, 50

Judge = Callable[[Sequence[Path]], Verification]


def iterations_for(latencies_ms: Sequence[float]) -> int:
    """Returns how often to prefill, and to decode all tokens: some 0.4 s, 5 to 50 times.

    A prefill takes no longer than the whole generation that was measured, and neither do all steps
    of decode.
    """
    median_ms = statistics.median(latencies_ms) if latencies_ms else _MEASURED_MS
    fitting = math.ceil(_MEASURED_MS / max(median_ms, 1e-3))
    return min(max(fitting, _MIN_ITERATIONS), _MAX_ITERATIONS)


def take(
    session: Callee,
    directory: Path,
    latencies_ms: Sequence[float],
    judge: Judge,
) -> tuple[GenerationTimes, SessionEnded | None]:
    """Has a worker measure prefill and decode apart; what they generate is judged, too.

    Whatever goes wrong here costs nothing but these times: what was measured before stands.

    Args:
      session: of the worker.
      directory: where its tokens and logits go.
      latencies_ms: of the whole generation; they decide how often the parts are run.
      judge: judges files of tokens and logits.

    Returns:
      Times, or the reason why there are none, and how the command ended if it did not succeed.
    """
    try:
        answer = session.call(
            Generation, directory=str(directory), iterations=iterations_for(latencies_ms)
        )
    except SessionEnded as ended:
        return GenerationTimes(reason=_reason(ended)), ended
    verdict = judge(paths_of(answer.files, directory))
    if not verdict.passed:
        reason = f"prefill and decode apart give a wrong output: {verdict.reason}"
        return GenerationTimes(reason=reason, verification=verdict), None
    found = GenerationTimes(
        prefill_ms=answer.times.prefill_ms,
        decode_ms=answer.times.decode_ms,
        verification=verdict,
        phases=answer.phases or {},
    )
    return found, None


def _reason(ended: SessionEnded) -> str:
    if ended.status is Status.UNSUPPORTED:  # nothing has failed
        return ended.explanation
    return f"{ended.status.value}: {ended.reason}"
