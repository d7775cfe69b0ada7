"""Integers and booleans: equal, except where float64 itself lies next to a tie.

A class index, a rounded pixel or a comparison hides the number that it came from. Rounding may move
that number across a tie, and then two right programs differ. `neighbours` show where: they are
float64 outputs on weights and inputs that differ by about a spacing of the model's type.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# A few neighbours miss some of the elements next to a tie: flips that none of them shows may be
# this share of the elements that do change among them.
_MISSED_SHARE = 0.1


def integer_problem(
    output: Array, truth: Array, reference: Array, neighbours: Sequence[Array] = ()
) -> str | None:
    """Returns what is wrong with an output of integers or booleans; None if nothing is.

    Args:
      output: of the candidate; all arrays have its shape.
      truth: of the float64 run.
      reference: of the run in the model's own type; it has the type of the output.
      neighbours: float64 outputs on slightly different weights and inputs, if there are any.
    """
    different = output != reference
    if not (count := int(np.count_nonzero(different))):
        return None
    others = [
        truth.astype(reference.dtype),
        *(value.astype(reference.dtype) for value in neighbours),
    ]
    explained = np.zeros_like(different)
    unstable = np.zeros_like(different)
    for other in others:
        explained |= output == other
        unstable |= reference != other
    unexplained = int(np.count_nonzero(different & ~explained))
    if unexplained <= _MISSED_SHARE * int(np.count_nonzero(unstable)):
        return None
    at_ties = count - unexplained
    ties = f", {at_ties} of them at near-ties of the float64 run" if at_ties else ""
    return f"{count} of {output.size} integers differ{ties}"
