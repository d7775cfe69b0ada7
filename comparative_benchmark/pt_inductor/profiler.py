"""Profiles of PyTorch's own profiler, Kineto, and the operators and kernels in them."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import Backend
from comparative_benchmark.backends.operator_profile import (
    Operator,
    OperatorProfile,
    operators_of,
    product,
    read_trace,
    write,
)

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_ITEM_BYTES = {"double": 8, "float": 4, "c10::BFloat16": 2, "c10::Half": 2}
# A compiled graph as one span: if kernels are separate, only its wrapper is left to it.
_GRAPH = re.compile(r"CompiledFxGraph|^Torch-Compiled Region|^TorchDynamo|^AOTI")
# Inductor's name for a kernel: `graph_0_cpp_fused_add_native_layer_norm_2`, without the graph.
_KERNEL = re.compile(r"(?:graph_\d+_)?((?:cpp|triton)_\w*fused_\w+?)(?:_\d+)?$")
_FUSED = re.compile(r"^(?:cpp|triton)_(?:\w+?_)?fused_")
_ONE_SPAN = (
    "this profile, from `cbs run --profile`, does not separate Inductor's kernels; "
    "`cbs explain --again` records one that does"
)
# Positions of the two factors, and whether the second one is transposed.
_PRODUCTS = {
    "aten::addmm": (1, 2, False),
    "aten::mm": (0, 1, False),
    "aten::bmm": (0, 1, False),
    "aten::baddbmm": (1, 2, False),
    "aten::_addmm_activation": (1, 2, False),
    "mkldnn::_linear_pointwise": (0, 1, True),
}
_TABLE_ROWS = 30


def profile(backend: Backend, directory: Path, iterations: int) -> list[Path]:
    """Profiles iterations; returns a Chrome trace, tables by time and memory, and the operators.

    In Inductor's programs for the CPU a compiled graph is one span. Kernels get separate spans only
    in a program compiled for that (`BackendInfo.profiling`), which `cbs explain` requests.

    Args:
      backend: the backend whose program runs.
      directory: directory for the files.
      iterations: number of executions; each is a span `iteration`.
    """
    import torch
    from torch import profiler
    from torch._dynamo.utils import counters

    on_gpu = backend.context.device.accelerator_type != "cpu"
    activities = [profiler.ProfilerActivity.CPU]
    if on_gpu:  # kernels and copies, too
        activities.append(profiler.ProfilerActivity.CUDA)
    trace = directory / "trace.json"
    with profiler.profile(
        activities=activities, record_shapes=True, profile_memory=True
    ) as profiled:
        for _ in range(iterations):
            with profiler.record_function("iteration"):
                backend.synchronize(backend.dispatch())
    profiled.export_chrome_trace(str(trace))
    averages = profiled.key_averages(group_by_input_shape=True)
    where = "cuda" if on_gpu else "cpu"
    written = [trace]
    for name, key in (
        ("operators", f"self_{where}_time_total"),
        ("memory", f"self_{where}_memory_usage"),
    ):
        text = averages.table(sort_by=key, row_limit=_TABLE_ROWS, max_name_column_width=100)
        head = f"PyTorch {torch.__version__}, {iterations} iterations, sorted by {key}\n"
        written.append(directory / f"{name}.txt")
        written[-1].write_text(head + text, encoding="utf-8")
    measured = profile_of(
        read_trace(trace),
        stack=f"PyTorch {torch.__version__}",
        iterations=iterations,
        breaks=counters["graph_break"],
        compiled=backend.context.compiler != "eager",
    )
    return [*written, write(measured, directory)]


def profile_of(
    events: Sequence[Mapping[str, Any]],
    *,
    stack: str,
    iterations: int,
    breaks: Mapping[str, int],
    compiled: bool,
) -> OperatorProfile:
    """Returns the operators of a trace; on a GPU its kernels, whatever launched them.

    Args:
      events: events of the trace.
      stack: the profiled stack, with its version.
      iterations: number of executions in the trace.
      breaks: Dynamo's reasons for graph breaks, with their counts.
      compiled: whether Inductor compiled it.
    """
    complete = [event for event in events if event.get("ph") == "X"]
    kernels = [event for event in complete if event.get("cat") in _ON_GPU]
    chosen = kernels or [
        event
        for event in complete
        if event.get("cat") == "cpu_op" or _GRAPH.search(str(event["name"]))
    ]
    told: dict[str, Operator] = {}
    spans = []
    for event in chosen:
        operator = _operator(event)
        told[operator.name] = operator
        start = float(event["ts"])
        row = (event.get("pid"), event.get("tid"))
        spans.append((operator.name, row, start, start + float(event["dur"])))
    operators = operators_of(spans, iterations, told)
    fused = [operator for operator in operators if _KERNEL.fullmatch(operator.name)]
    return OperatorProfile(
        stack=stack,
        iterations=iterations,
        operators=operators,
        # The most frequent first.
        breaks=tuple(
            f"{count} x {' '.join(reason.split())}"
            for reason, count in Counter(dict(breaks)).most_common()
        ),
        fusions=_fusions(fused, operators),
        remarks=(_ONE_SPAN,) if compiled and not fused else (),
    )


def _fusions(kernels: Sequence[Operator], operators: Sequence[Operator]) -> tuple[str, ...]:
    if not kernels:
        return ()
    calls = sum(operator.calls for operator in kernels)
    # Products outside fused kernels are calls of libraries.
    others = sum(operator.calls for operator in operators if operator.flops is not None)
    return (f"fused kernels: {len(kernels)} (calls: {calls:.0f}), library calls: {others:.0f}",)


def _operator(event: Mapping[str, Any]) -> Operator:
    """Returns the operator of a span; products have their shape in their name."""
    name, arguments = str(event["name"]), event.get("args", {})
    if _GRAPH.search(name):
        return Operator(name="compiled graph", does="runtime: the wrapper's calls and allocations")
    if kernel := _KERNEL.fullmatch(name):
        return Operator(name=name, does=_FUSED.sub("", kernel[1]).replace("_", " "))
    if name not in _PRODUCTS:
        return Operator(name=name)
    left, right, transposed = _PRODUCTS[name]
    shapes, types = arguments.get("Input Dims", ()), arguments.get("Input type", ())
    if len(shapes) <= right or not shapes[left] or not shapes[right]:
        return Operator(name=name)
    *batch, m, k = shapes[left]
    n = shapes[right][-2 if transposed else -1]
    # A batch of only the first factor adds rows.
    rows, times = m, 1
    for size in batch:
        rows, times = (rows * size, times) if len(shapes[right]) == 2 else (rows, times * size)
    item_bytes = _ITEM_BYTES.get(types[left] if len(types) > left else "float", 4)
    shape = "x".join(map(str, [*batch, m, n, k]))
    return Operator(
        name=f"{name} {shape}", **product(rows, n, k, batch=times, item_bytes=item_bytes)
    )
