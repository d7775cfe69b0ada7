"""Reports of a worker other than latency: its profile and the times of its parts."""

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
from openxla.benchmark.files import temporary_folder

A = TypeVar("A", bound=Report)
T = TypeVar("T")


class Callee(Protocol):
    """The part of a session's interface that sends commands."""

    def call(self, kind: type[A], **arguments: Any) -> A:
        """Sends the command for an answer class and returns the worker's answer."""


def call_function(session: Callee, function: str, arguments: Mapping[str, Any], kind: type[T]) -> T:
    """Calls a function in a worker and decodes its result as `kind`.

    Args:
      session: session of the worker.
      function: the function as `module:function`.
      arguments: keyword arguments; JSON values.
      kind: expected class of the returned JSON value.

    Raises:
      SessionEnded: the function failed or returned an invalid value.
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
    """Calls a function in a new PyTorch worker and decodes its result as `kind`.

    Args:
      settings: settings of the worker.
      function: the function as `module:function`.
      arguments: keyword arguments; JSON values.
      kind: expected class of the returned JSON value.

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
    """Returns the number of iterations to profile: about one second's worth, from 3 to 50.

    Fewer show no pattern; more make traces that viewers open slowly. The overhead of the profiler
    is unknown and adds to the time.
    """
    median_ms = statistics.median(latencies_ms) if latencies_ms else _PROFILED_MS
    fitting = _MAX_ITERATIONS if median_ms <= 0 else int(_PROFILED_MS / median_ms)
    return min(max(fitting, _MIN_ITERATIONS), _MAX_ITERATIONS)


def take_profile(session: Callee, directory: Path, latencies_ms: Sequence[float]) -> ProfileRecord:
    """Profiles a worker after its last measurement.

    Args:
      session: session of the worker; it may have ended afterwards, because profilers can crash or
        hang.
      directory: absolute path for the files; created if missing.
      latencies_ms: measured latencies, which determine the number of profiled iterations.
    """
    iterations = profiled_iterations(latencies_ms)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        answer = session.call(Profiled, directory=str(directory), iterations=iterations)
    except (SessionEnded, OSError) as error:
        return ProfileRecord(directory=str(directory), iterations=iterations, error=str(error))
    return ProfileRecord(directory=str(directory), files=answer.files, iterations=iterations)


# Target time for prefill and for decode, in each process of a trial.
_MEASURED_MS = 400.0
_GENERATION_TIMES_MIN_ITERATIONS, _GENERATION_TIMES_MAX_ITERATIONS = 5, 50

Judge = Callable[[Sequence[Path]], Verification]


def generation_iterations(latencies_ms: Sequence[float]) -> int:
    """Returns how often to prefill and to decode all tokens: about 0.4 s, 5 to 50 times.

    Prefill and all decode steps each take no longer than the measured whole generation.
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
    """Measures prefill and decode separately in a worker and verifies the generated tokens.

    A failure only loses these times; earlier measurements remain valid.

    Args:
      session: session of the worker.
      directory: folder for tokens and logits.
      latencies_ms: latencies of the whole generation, which determine the number of repetitions.
      judge: judge of the token and logit files.

    Returns:
      The times, or the reason why there are none, and the end of the session if it failed.
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
    if ended.status is Status.UNSUPPORTED:  # not a failure
        return ended.explanation
    return f"{ended.status.value}: {ended.reason}"


def take_step_times(
    session: Callee, latencies_ms: Sequence[float]
) -> tuple[StepTimes | str, SessionEnded | None]:
    """Measures the parts of a training step separately in a worker.

    A failure only loses these times; earlier measurements remain valid.

    Args:
      session: session of the worker.
      latencies_ms: latencies of whole steps, which determine the number of repetitions.

    Returns:
      The times, or the reason why there are none, and the end of the session if it failed.
    """
    try:
        answer = session.call(StepParts, iterations=generation_iterations(latencies_ms))
        return answer.times, None
    except SessionEnded as ended:
        known = ended.status is Status.UNSUPPORTED  # not a failure
        return ended.explanation if known else f"{ended.status.value}: {ended.reason}", ended
