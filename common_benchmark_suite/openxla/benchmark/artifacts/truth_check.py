"""How the float64 truth of a workload was checked: by a second implementation of each operator."""

from typing import TypeVar

import attrs

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class RouteDifference:
    """An operator for which two implementations give different results.

    Attributes:
      operator: its name, e.g. `Resize`.
      node: name of the node, or of its first output.
      routes: the implementations; the first one's result is the one that was used.
      error: largest difference relative to the largest magnitude; None if shapes, types or the
        places of NaN differ.
    """

    operator: str
    node: str
    routes: tuple[str, ...]
    error: float | None = None

    def __str__(self) -> str:
        size = "in shape or kind" if self.error is None else f"by {self.error:.2g} of the scale"
        where = f"{self.operator} ({self.node})" if self.node else self.operator
        return f"{' and '.join(self.routes)} differ {size} at {where}"


@attrs.frozen(kw_only=True)
class TruthCheck:
    """Which implementations computed a truth, and whether they agree.

    Attributes:
      routes: implementations that took part.
      in_doubt: differences without a majority. If there are any, the truth is a plain run.
      outvoted: differences where two implementations agree against the third.
      unchecked: operators that only one implementation could evaluate.
    """

    routes: tuple[str, ...] = ()
    in_doubt: tuple[RouteDifference, ...] = ()
    outvoted: tuple[RouteDifference, ...] = ()
    unchecked: tuple[str, ...] = ()

    def joined(self, other: "TruthCheck | None") -> "TruthCheck":
        """Returns the check of two truths of one program, on two inputs."""
        if other is None:
            return self
        return TruthCheck(
            routes=_united(self.routes, other.routes),
            in_doubt=_united(self.in_doubt, other.in_doubt),
            outvoted=_united(self.outvoted, other.outvoted),
            unchecked=_united(self.unchecked, other.unchecked),
        )


def _united(first: tuple[T, ...], second: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys((*first, *second)))
