"""Checks that verified and timed iterations ran compiled programs."""

from collections.abc import Iterator
from contextlib import contextmanager

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.backends.compiled_calls import CompiledCalls
from comparative_benchmark.engine.worker.sampling import Block


class CompiledRuns:
    """Compares runs with the first verified run, which defines the number of calls per iteration.

    Args:
      counter: counter of the backend; None if the backend has no uncompiled fallback.
    """

    def __init__(self, counter: CompiledCalls | None) -> None:
        self._counter = counter
        self._calls_per_iteration = 1

    @contextmanager
    def first(self) -> Iterator[None]:
        """Checks the first verified run and records its number of calls.

        Raises:
          UnsupportedError: the run called no compiled program.
        """
        before = self._counter.calls if self._counter else 0
        with self.verified("the first run"):
            yield
        if self._counter:
            self._calls_per_iteration = self._counter.calls - before

    @contextmanager
    def verified(self, run: str, *, calls: int | None = None) -> Iterator[None]:
        """Checks a run whose outputs are verified.

        Args:
          run: name of the run for the message.
          calls: minimum number of calls; that of an iteration by default.

        Raises:
          UnsupportedError: the run called fewer compiled programs.
        """
        counter, expected = self._counter, calls or self._calls_per_iteration
        before = counter.calls if counter else 0
        yield
        if counter and (called := counter.calls - before) < expected:
            raise UnsupportedError(
                f"{_missed(counter, called, expected)} in {run}: {counter.fallback_reason()}"
            )

    def require(self, block: Block, calls: int | None = None) -> None:
        """Checks timed iterations.

        Args:
          block: the iterations with their numbers of calls.
          calls: minimum number per iteration; that of the first verified run by default.

        Raises:
          UnsupportedError: an iteration called fewer compiled programs, or every iteration
            compiled.
        """
        counter, expected = self._counter, calls or self._calls_per_iteration
        if counter is None:
            return
        short = [count for count in block.compiled_calls if count < expected]
        iterations = len(block.compiled_calls)
        if short:
            raise UnsupportedError(
                f"{_missed(counter, max(short), expected)} in {len(short)} of {iterations} timed "
                f"iterations: {counter.fallback_reason()}"
            )
        if iterations and all(block.compilations):
            raise UnsupportedError(
                f"it recompiles in each call: {counter.recompile_reason()}; the {iterations} timed "
                "iterations hold a compilation each"
            )


def _missed(counter: CompiledCalls, calls: int, expected: int) -> str:
    if not calls:
        return f"{counter.compiler}'s program was not called"
    return f"{counter.compiler}'s programs received {calls} of {expected} calls"
