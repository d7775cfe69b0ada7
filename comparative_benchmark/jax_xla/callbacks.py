"""Python callbacks of a compiled JAX program, and the time that they take."""

import time
from collections.abc import Callable, Iterator
from typing import Any

_ITERATIONS, _LONGEST_S = 10, 1.0


class Callbacks:
    """The callbacks of a traced program, timed.

    Args:
      jaxpr: jaxpr of the program before lowering; its callbacks are replaced by timed ones.
    """

    def __init__(self, jaxpr: Any) -> None:
        self._spent_s = 0.0
        self.names: list[str] = []
        for equation in _equations(jaxpr):
            callback = equation.params.get("callback")
            if callback is not None:
                self.names.append(equation.primitive.name)
                equation.params["callback"] = _Timed(callback, self._add)

    def compiled_share(self, iterate: Callable[[], object]) -> float:
        """Returns the share of an iteration's time outside of callbacks, 0 to 1.

        The iteration with the largest share counts, because disturbances only make it smaller.

        Args:
          iterate: runs an iteration to its end.
        """
        shares, start = [], time.perf_counter()
        for _ in range(_ITERATIONS):
            self._spent_s, begin = 0.0, time.perf_counter()
            iterate()
            end = time.perf_counter()
            shares.append(1 - min(1.0, self._spent_s / (end - begin)))
            if end - start > _LONGEST_S:
                break
        return max(shares)

    def _add(self, seconds: float) -> None:
        self._spent_s += seconds


class _Timed:
    """A callback that reports the time of each call."""

    callback: Callable[..., Any]

    def __init__(self, callback: Callable[..., Any], report: Callable[[float], None]) -> None:
        # A program that is traced again may share parts, and so callbacks, with the first one.
        self.callback = callback.callback if isinstance(callback, _Timed) else callback
        self._report = report

    def __call__(self, *arguments: Any) -> Any:
        begin = time.perf_counter()
        try:
            return self.callback(*arguments)
        finally:
            self._report(time.perf_counter() - begin)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yields the equations of a jaxpr and those in its branches, loops and calls."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for value in equation.params.values():
            for item in value if isinstance(value, tuple | list) else (value,):
                if hasattr(getattr(item, "jaxpr", item), "eqns"):
                    yield from _equations(item)
