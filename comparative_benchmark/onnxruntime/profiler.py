"""Profiles of ONNX Runtime's own profiler: the time of each node, and the nodes as operators."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.operator_profile import (
    Cost,
    Operator,
    OperatorProfile,
    operators_of,
    product,
    time_table,
    write,
    write_trace,
)
from comparative_benchmark.backends.resident_programs import SingleProgram
from comparative_benchmark.onnxruntime import session

_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")
# ONNX Runtime's own operators, which it makes of several nodes of a file.
_FUSED = {
    *("FusedMatMul", "FusedGemm", "FusedConv", "Attention", "MultiHeadAttention", "BiasGelu"),
    *("Gelu", "FastGelu", "QuickGelu", "BiasSoftmax", "LayerNormalization", "NhwcFusedConv"),
    *("SkipLayerNormalization", "EmbedLayerNormalization", "SimplifiedLayerNormalization"),
    *("SkipSimplifiedLayerNormalization", "GroupQueryAttention", "RotaryEmbedding"),
}


def profile_model(
    model: Path,
    inputs: Sequence[Array],
    directory: Path,
    iterations: int,
    *,
    device: str,
    chosen: ort.SessionOptions,
    work_dir: Path,
) -> list[Path]:
    """Profiles iterations; returns a Chrome trace and a table of operators.

    The profiler is switched on when a session is created, so this is another session of the same
    file with the same options.

    Args:
      model: an ONNX file.
      inputs: one array for each input of the graph.
      directory: directory for the files.
      iterations: number of executions, after one that is not recorded in the table.
      device: `cpu` or `cuda`.
      chosen: options of the session.
      work_dir: directory for the profiler's files.
    """
    chosen.enable_profiling = True
    chosen.profile_file_prefix = str(work_dir / "ort-profile")
    profiled = session.open_session(model, device, chosen)
    bound = SingleProgram(session.SessionProgram(profiled, device), inputs)
    for _ in range(1 + iterations):
        bound.run()
    written = Path(profiled.end_profiling())
    events: list[dict[str, Any]] = json.loads(written.read_text(encoding="utf-8"))
    written.unlink()
    trace, table = directory / "trace.json", directory / "operators.txt"
    write_trace(trace, events)
    table.write_text(operator_table(events, iterations), encoding="utf-8")
    first, *_ = profiled.get_providers()
    stack = f"ONNX Runtime {ort.__version__}"
    found = profile_of(events, iterations, stack=stack, provider=first)
    return [trace, table, write(found, directory)]


def operator_table(events: Sequence[dict[str, Any]], iterations: int) -> str:
    """Returns time by operator and by node, over the last iterations among the events.

    Args:
      events: events of the profiler; a span `model_run` encloses the nodes of an execution.
      iterations: number of executions to count.
    """
    nodes, runs = nodes_of(events, iterations)
    return time_table(
        f"ONNX Runtime {ort.__version__}",
        ("operator", "node"),
        [
            (
                event["args"]["op_name"],
                event["name"].removesuffix("_kernel_time"),
                event["dur"],
            )
            for event in nodes
        ],
        runs,
    )


def profile_of(
    events: Sequence[dict[str, Any]], iterations: int, *, stack: str, provider: str
) -> OperatorProfile:
    """Returns the nodes of the last iterations; nodes that ran on another provider are fallbacks.

    Args:
      events: events of the profiler.
      iterations: number of executions to count.
      stack: the profiled stack, with its version.
      provider: the provider that the session prefers.
    """
    nodes, runs = nodes_of(events, iterations)
    told = {event["name"]: _operator(event) for event in nodes}
    spans = [
        (event["name"], event.get("tid"), event["ts"], event["ts"] + event["dur"])
        for event in nodes
    ]
    operators = operators_of(spans, runs, told)
    elsewhere = Counter(
        (operator.does, operator.provider)
        for operator in operators
        if operator.provider not in (None, provider)
    )
    fused = Counter(operator.does for operator in operators if operator.does in _FUSED)
    return OperatorProfile(
        stack=stack,
        iterations=runs,
        operators=operators,
        fallbacks=tuple(
            f"{count} {name} on {other} instead of {provider}"
            for (name, other), count in elsewhere.most_common()
        ),
        fusions=tuple(f"{count} {name}" for name, count in fused.most_common()),
    )


def _operator(event: dict[str, Any]) -> Operator:
    """Returns the operator of a node's span, with the cost of its products."""
    arguments = event["args"]
    kind = arguments["op_name"]
    cost = Cost()
    if kind in _PRODUCTS:
        outputs, inputs = (_shapes(arguments, which) for which in ("output", "input"))
        # A bias is not a factor.
        factors = [shape for shape in inputs[:2] if len(shape) > 1]
        if factors and outputs and len(outputs[0]) > 1:
            cost = _product_cost(factors, outputs[0])
    return Operator(
        name=event["name"].removesuffix("_kernel_time"),
        does=kind,
        provider=arguments.get("provider"),
        **cost,
    )


def _shapes(arguments: Mapping[str, Any], which: str) -> list[list[int]]:
    arrays = arguments.get(f"{which}_type_shape", ())
    return [shape for array in arrays for shape in array.values()]


def _product_cost(factors: Sequence[Sequence[int]], output: Sequence[int]) -> Cost:
    """Returns the cost of a product, whichever of its factors is transposed.

    Weights that ONNX Runtime has packed are not among the inputs that it reports.
    """
    size, columns = math.prod(output), output[-1]
    if len(factors) == 1:
        rows = size // columns
        return product(rows, columns, math.prod(factors[0]) // rows)
    left, right = factors
    # The squared depth, which both factors have and the output has not.
    squared = math.prod(left) * math.prod(right) / size
    batch = math.prod(output[:-2]) if len(right) > 2 else 1
    depth = round(math.sqrt(squared / batch))
    # Broadcast batches have no such root.
    if depth**2 * batch != squared:
        return Cost()
    return product(size // columns // batch, columns, depth, batch=batch)


def nodes_of(events: Sequence[dict[str, Any]], iterations: int) -> tuple[list[dict[str, Any]], int]:
    """Returns the spans of the nodes of the last iterations, and the number of these iterations."""
    runs = [event for event in events if event["name"] == "model_run"][-iterations:]
    begin = min((event["ts"] for event in runs), default=0)
    return (
        [event for event in events if event.get("cat") == "Node" and event["ts"] >= begin],
        len(runs),
    )
