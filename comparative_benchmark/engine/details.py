"""What a measured worker reports besides latency: its profile, and the times of its parts."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.engine import messages
from comparative_benchmark.engine.messages import (
    Called,
    Generation,
    Profiled,
    Report,
    StepParts,
    paths_of,
)
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.results.outcome import GenerationTimes
from comparative_benchmark.results.record import ProfileRecord, Status, StepTimes
from openxla.benchmark.temporary import temporary_folder

A = TypeVar("A", bound=Report)
T = TypeVar("T")


class Callee(Protocol):
    """A session, as far as commands need one."""

    def call(self, kind: type[A], **arguments: Any) -> A:
        """Sends the command of a class of answers, and returns the worker's answer."""


def call_function(session: Callee, function: str, arguments: Mapping[str, Any], kind: type[T]) -> T:
    """Returns what a function returns in a worker, as an object of a class.

    Args:
      session: of the worker.
      function: as `module:function`.
      arguments: of the function, by name; JSON values.
      kind: of the returned JSON value.

    Raises:
      SessionEnded: the function failed, or returned something else.
    """
    answer = session.call(Called, function=function, arguments=dict(arguments))
    try:
        value: T = messages.converted(answer.value, kind)
    except messages.MessageError as error:
        reason = f"{function} returned a malformed value: {error}"
        raise SessionEnded(Status.FAILED, "call", reason) from error
    return value


def call_once(
    settings: RunSettings, function: str, arguments: Mapping[str, Any], kind: type[T]
) -> T:
    """Returns what a function returns in a new worker of PyTorch.

    Args:
      settings: of the worker.
      function: as `module:function`.
      arguments: of the function, by name; JSON values.
      kind: of the returned JSON value.

    Raises:
      SessionEnded: see `call_function`.
    """
    with temporary_folder("call") as scratch:
        place = Path(scratch)
        session = settings.open_session(
            get_backend("pt_inductor"),
            None,
            work_dir=place,
            cache_dir=place / "cache",
            log_file=place / "log",
        )
        with session:
            return call_function(session, function, arguments, kind)


_PROFILED_MS = 1000.0
_MIN_ITERATIONS, _MAX_ITERATIONS = 3, 50


def profiled_iterations(latencies_ms: Sequence[float]) -> int:
    """Returns how many iterations take_profile about a second, at least 3 and at most 50.

    Fewer show no pattern, more make traces that viewers open slowly. The profiler's own overhead is
    not known beforehand and comes on top.
    """
    median_ms = statistics.median(latencies_ms) if latencies_ms else _PROFILED_MS
    fitting = _MAX_ITERATIONS if median_ms <= 0 else int(_PROFILED_MS / median_ms)
    return min(max(fitting, _MIN_ITERATIONS), _MAX_ITERATIONS)


def take_profile(session: Callee, directory: Path, latencies_ms: Sequence[float]) -> ProfileRecord:
    """Profiles a worker that has nothing more to measure.

    Args:
      session: of the worker, which may be gone afterwards: a profiler can crash or hang.
      directory: where the files go, absolute; made if need be.
      latencies_ms: measured ones, which decide how many iterations are profiled.
    """
    iterations = profiled_iterations(latencies_ms)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        answer = session.call(Profiled, directory=str(directory), iterations=iterations)
    except (SessionEnded, OSError) as error:
        return ProfileRecord(directory=str(directory), iterations=iterations, error=str(error))
    return ProfileRecord(directory=str(directory), files=answer.files, iterations=iterations)


# About as long as this is each of the two measured, in a fresh process of a trial.
_MEASURED_MS = 400.0
_GENERATION_TIMES_MIN_ITERATIONS, _GENERATION_TIMES_MAX_ITERATIONS = 5, 50

Judge = Callable[[Sequence[Path]], Verification]


def generation_iterations(latencies_ms: Sequence[float]) -> int:
    """Returns how often to prefill, and to decode all tokens: some 0.4 s, 5 to 50 times.

    A prefill takes no longer than the whole generation that was measured, and neither do all steps
    of decode.
    """
    median_ms = statistics.median(latencies_ms) if latencies_ms else _MEASURED_MS
    fitting = math.ceil(_MEASURED_MS / max(median_ms, 1e-3))
    return min(max(fitting, _GENERATION_TIMES_MIN_ITERATIONS), _GENERATION_TIMES_MAX_ITERATIONS)


def take_generation_times(
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
            Generation, directory=str(directory), iterations=generation_iterations(latencies_ms)
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


def take_step_times(
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
        answer = session.call(StepParts, iterations=generation_iterations(latencies_ms))
        return answer.times, None
    except SessionEnded as ended:
        known = ended.status is Status.UNSUPPORTED  # nothing has failed
        return ended.explanation if known else f"{ended.status.value}: {ended.reason}", ended
