"""Recipes by ONNX Runtime's own quantiser, applied to a graph and checked for their effect.

In a child process: it reads all weights, which would count towards the memory of the measured
session.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends import child_process
from comparative_benchmark.backends.api import PhaseTimer, UnsupportedError
from comparative_benchmark.backends.recipes import Chosen, NotAppliedError, parse

_PRODUCTS = frozenset({"MatMul", "Gemm"})


def apply(
    paths: Sequence[Path], recipe: Chosen, phase: PhaseTimer
) -> tuple[list[Path], dict[str, Any]]:
    """Quantises graphs; phase `lower`.

    Returns:
      Files of the quantised graphs, and a summary: `name`, the number of changed `layers` and of
      `linear` ones (products with weights), the operator that they became, and the bytes of all
        weights
      before and after.

    Raises:
      UnsupportedError: the quantiser has no such recipe.
      RuntimeError: the quantiser failed, or changed nothing.
    """
    arguments = {"paths": list(map(str, paths)), "recipe": recipe.label}
    told, _ = child_process.call(
        f"{__name__}:apply_here", arguments, phase, name="the process that quantises the graph"
    )
    return [Path(path) for path in told["paths"]], told["applied"]


def apply_here(channel: child_process.Channel, paths: list[str], recipe: str) -> dict[str, Any]:
    """Quantises graphs in this process; see `apply`."""
    import onnx

    from comparative_benchmark.onnxruntime import graph

    chosen = parse(recipe)
    # It logs every node, and recommends a preprocessing step that the exporter has done.
    logging.disable(logging.WARNING)
    try:
        quantise, operator = chosen.configuration_in("onnxruntime")
    except NotImplementedError as error:
        raise UnsupportedError(f"ONNX Runtime cannot apply {recipe}: {error}") from error
    counts = {"layers": 0, "linear": 0, "bytes_before": 0, "bytes_after": 0}
    made = []
    for source in map(Path, paths):
        target = source.with_name(f"{source.stem}.{recipe}.onnx")
        before = graph.load(source)
        with channel.phase("lower"):
            # The quantiser transposes weights without updating their recorded shapes; without
            # records it infers all shapes again.
            bare = source.with_name(f"{source.stem}.bare.onnx")
            stripped = onnx.ModelProto()
            stripped.CopyFrom(before)
            del stripped.graph.value_info[:]
            onnx.save(stripped, str(bare))
            quantise(str(bare), str(target))
        after = graph.load(target)
        weights = {weight.name for weight in before.graph.initializer}
        counts["linear"] += sum(
            node.op_type in _PRODUCTS and not weights.isdisjoint(node.input)
            for node in before.graph.node
        )
        counts["layers"] += sum(node.op_type == operator for node in after.graph.node)
        for name, path in (("bytes_before", source), ("bytes_after", target)):
            data = path.with_name(f"{path.name}.data")
            counts[name] += path.stat().st_size + (data.stat().st_size if data.exists() else 0)
        made.append(str(target))
    if not counts["layers"]:
        raise NotAppliedError(f"{recipe} changed 0 of {counts['linear']} products with weights")
    return {"paths": made, "applied": {"name": recipe, "weight_class": operator, **counts}}
