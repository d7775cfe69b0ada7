"""The operators in a trace of TensorFlow's profiler: XLA's, and TensorFlow's own around them."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from comparative_benchmark.backends import operator_profile
from comparative_benchmark.backends.operator_profile import Operator, OperatorProfile, operators_of

_KIND = re.compile(r"_?[A-Z][A-Za-z0-9]+")
# These start a compiled program, and pass its arguments and results.
_LAUNCHES = {
    *("StatefulPartitionedCall", "PartitionedCall", "_XlaCompile", "_XlaRun", "XlaLaunch"),
    *("_Arg", "_Retval", "_XlaMerge", "ReadVariableOp", "NoOp", "TfrtProcessExecuteOp"),
}


def profile_of(
    events: Sequence[Mapping[str, Any]], hlo: str, *, stack: str, iterations: int
) -> OperatorProfile:
    """Returns the operators of a trace.

    TensorFlow's executors record an operation as `name:type`; operations that they record next to a
    compiled program are not part of its cluster.

    Args:
      events: events of the trace.
      hlo: the optimised program; empty if XLA was not used.
      stack: the profiled stack, with its version.
      iterations: number of executions in the trace.
    """
    spans, outside = operator_profile.spans_of(events), {}
    for event in events:
        name, _, kind = str(event["name"]).rpartition(":")
        is_named = event["ph"] == "X" and "hlo_op" not in event.get("args", ())
        if is_named and name and _KIND.fullmatch(kind):
            outside[name] = Operator(name=name, does=kind)
            start, row = float(event["ts"]), (event["pid"], event["tid"])
            spans.append((name, row, start, start + float(event["dur"])))
    told = {**operator_profile.operators_in(hlo), **outside}
    operators = [
        operator
        for operator in operators_of(spans, iterations, told)
        if operator.does not in _LAUNCHES
    ]
    left_out = Counter(operator.does for operator in operators if operator.name in outside)
    return OperatorProfile(
        stack=stack,
        iterations=iterations,
        operators=tuple(operators),
        fallbacks=tuple(
            f"{count} {kind} outside the XLA cluster" for kind, count in left_out.most_common()
        )
        if hlo
        else (),
        fusions=operator_profile.fusions_in(hlo),
    )
