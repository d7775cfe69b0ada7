"""The dispatches of an IREE program as operators."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from comparative_benchmark.backends.operator_profile import (
    Cost,
    Operator,
    OperatorProfile,
    operators_of,
    product,
)

_DISPATCH = re.compile(r"^.*?_dispatch_\d+_?")
_PRODUCT = re.compile(r"matmul(?:_transpose_\w)?_(\d+(?:x\d+){2,})_\D*(\d+)")


def profile_of(events: Sequence[Mapping[str, Any]], *, stack: str) -> OperatorProfile:
    """Returns the dispatches of a trace as operators.

    The tool warms up before it counts: iterations are the executions that were recorded.
    """
    spans, told = [], {}
    for event in events:
        if event.get("cat") == "dispatch":
            name, start = str(event["name"]), float(event["ts"])
            # The end of a dispatch's name describes it: `main_dispatch_4_matmul_32x128x128_f32`.
            does = _DISPATCH.sub("", name)
            told[name] = Operator(name=name, does=does, **_cost(does))
            spans.append((name, event["tid"], start, start + float(event["dur"])))
    iterations = sum(event.get("cat") == "execute" for event in events)
    operators = operators_of(spans, iterations, told)
    return OperatorProfile(
        stack=stack,
        iterations=iterations,
        operators=operators,
        fusions=(
            f"{sum(each.calls for each in operators):.0f} dispatches of {len(operators)} kernels",
        ),
    )


def _cost(does: str) -> Cost:
    """Returns flops and bytes of a product by the name of its dispatch, which ends in its shape.

    A batch, if any, is the first number, and the depth is the last.
    """
    match = _PRODUCT.search(does)
    if match is None:
        return Cost()
    *batch, m, n, k = map(int, match[1].split("x"))
    bits = int(match[2])
    return product(m, n, k, batch=math.prod(batch), item_bytes=max(bits // 8, 1))
