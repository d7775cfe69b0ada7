"""Parts of the training step of a worker that has been measured, or why there are none."""

from collections.abc import Sequence

from comparative_benchmark.results.record import Status, StepTimes
from comparative_benchmark.runs.generation_times import iterations_for
from comparative_benchmark.runs.messages import StepParts
from comparative_benchmark.runs.one_call import Callee
from comparative_benchmark.runs.session import SessionEnded


def take(
    session: Callee, latencies_ms: Sequence[float]
) -> tuple[StepTimes | str, SessionEnded | None]:
    """Has a worker measure the parts of its training step apart.

    Whatever goes wrong here costs nothing but these times: what was measured before stands.

    Args:
      session: of the worker.
      latencies_ms: of whole steps; they decide how often the parts are run.

    Returns:
      Times, or the reason why there are none; and how the command ended if it did not succeed.
    """
    try:
        answer = session.call(StepParts, iterations=iterations_for(latencies_ms))
        return answer.times, None
    except SessionEnded as ended:
        known = ended.status is Status.UNSUPPORTED  # nothing has failed
        return ended.explanation if known else f"{ended.status.value}: {ended.reason}", ended
