"""The operators in OpenVINO's performance counters."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from comparative_benchmark.backends.operator_profile import (
    Operator,
    OperatorProfile,
    longest_first,
)


def profile_of(
    layers: Mapping[str, Mapping[str, Any]], iterations: int, *, stack: str, left_out: int
) -> OperatorProfile:
    """Returns the layers as operators.

    Args:
      layers: by name, their type (`layer`), `kernel` and times in us (`times_us`).
      iterations: how many executions the times are of.
      stack: what has profiled.
      left_out: how many layers were never executed.
    """
    operators = [
        Operator(
            name=name,
            does=layer["layer"],
            calls=len(layer["times_us"]) / iterations,
            us=sum(layer["times_us"]) / iterations,
            provider=layer["kernel"],
        )
        for name, layer in layers.items()
    ]
    plain = Counter(layer["layer"] for layer in layers.values() if "ref" in layer["kernel"])
    return OperatorProfile(
        stack=stack,
        iterations=iterations,
        operators=longest_first(operators),
        fallbacks=tuple(
            f"{count} {kind} in a reference kernel" for kind, count in plain.most_common()
        ),
        fusions=(f"{left_out} layers fused into others, folded or shorter than 1 us",)
        if left_out
        else (),
    )
