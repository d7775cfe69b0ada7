"""Profiles of ONNX Runtime's own profiler: the time of each node."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.operator_profile import (
    Operator,
    OperatorProfile,
    operators_of,
    product,
    write,
)
from comparative_benchmark.backends.profiles import time_table, write_trace
from comparative_benchmark.backends.resident_programs import SingleProgram
from comparative_benchmark.onnxruntime import session

_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")
# Operators of ONNX Runtime's own, which it makes of several nodes of a file.
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

    The profiler is switched on when a session is made, so this one is another session of the same
    file with the same options.

    Args:
      model: an ONNX file.
      inputs: one array for each input of the graph.
      directory: where the files go.
      iterations: how many executions, after one that is not recorded in the table.
      device: `cpu` or `cuda`.
      chosen: options of the session.
      work_dir: where the profiler may write.
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
    summary = write(operator_profile(events, iterations, provider=first), directory)
    return [trace, table, summary]


def operator_table(events: Sequence[dict[str, Any]], iterations: int) -> str:
    """Returns time by operator and by node, of the last iterations among the events.

    Args:
      events: of the profiler; a span `model_run` encloses the nodes of an execution.
      iterations: how many executions count.
    """
    nodes, runs = _nodes(events, iterations)
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


def operator_profile(
    events: Sequence[dict[str, Any]], iterations: int, *, provider: str
) -> OperatorProfile:
    """Returns the nodes of the last iterations; those that another provider took are fallbacks.

    Args:
      events: of the profiler.
      iterations: how many executions count.
      provider: that the session asks first.
    """
    nodes, runs = _nodes(events, iterations)
    told = {event["name"]: _operator(event) for event in nodes}
    spans = [
        (event["name"], event["tid"], event["ts"], event["ts"] + event["dur"]) for event in nodes
    ]
    operators = operators_of(spans, runs, told)
    elsewhere = Counter(
        (operator.does, operator.provider)
        for operator in operators
        if operator.provider not in (None, provider)
    )
    fused = Counter(operator.does for operator in operators if operator.does in _FUSED)
    return OperatorProfile(
        stack=f"ONNX Runtime {ort.__version__}",
        iterations=runs,
        operators=operators,
        fallbacks=tuple(
            f"{count} {name} by {other}, not by {provider}"
            for (name, other), count in elsewhere.most_common()
        ),
        fusions=tuple(f"{count} {name}" for name, count in fused.most_common()),
    )


def _operator(event: dict[str, Any]) -> Operator:
    """Returns the operator of a node's span, with the cost of its products."""
    arguments = event["args"]
    kind = arguments["op_name"]
    cost: dict[str, float] = {}
    if kind in _PRODUCTS:
        arrays = [next(iter(each.items())) for each in arguments.get("input_type_shape", ())]
        if len(arrays) > 1 and all(len(shape) > 1 for _, shape in arrays[:2]):
            (_, left), (_, right) = arrays[:2]
            [output] = next(iter(arguments.get("output_type_shape", [{}]))).values() or [[]]
            cost = _product_cost(left, right, output)
    return Operator(
        name=event["name"].removesuffix("_kernel_time"),
        does=kind,
        provider=arguments.get("provider"),
        **cost,
    )


def _product_cost(left: list[int], right: list[int], output: list[int]) -> dict[str, float]:
    """Returns flops and bytes of a product, whichever of its factors is transposed."""
    if len(output) < 2:
        return {}
    size = math.prod(output)
    columns = output[-1]
    # What both factors have and the output has not.
    squared = math.prod(left) * math.prod(right) / size
    batch = math.prod(output[:-2]) if len(right) > 2 else 1
    depth = round(math.sqrt(squared / batch))
    # Batches that are broadcast have no such root.
    if depth**2 * batch != squared:
        return {}
    return product(size // columns // batch, columns, depth, batch=batch)


def _nodes(events: Sequence[dict[str, Any]], iterations: int) -> tuple[list[dict[str, Any]], int]:
    """Returns the spans of the nodes of the last iterations, and how many these were."""
    runs = [event for event in events if event["name"] == "model_run"][-iterations:]
    begin = min((event["ts"] for event in runs), default=0)
    return (
        [event for event in events if event.get("cat") == "Node" and event["ts"] >= begin],
        len(runs),
    )
