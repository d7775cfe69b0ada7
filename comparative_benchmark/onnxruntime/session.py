"""Sessions of ONNX Runtime, buffers for their inputs and outputs, and their profiles."""

import ctypes
import functools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as errors

from comparative_benchmark.backends.api import Array, UnsupportedError
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

_LEVELS: Mapping[str, Any] = {
    "default": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "disabled": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "cuda": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
PROVIDERS: Mapping[str, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
# Otherwise factors of float32 would be rounded to TF32.
_PROVIDER_OPTIONS: Mapping[str, dict[str, str]] = {"cpu": {}, "cuda": {"use_tf32": "0"}}

# ONNX Runtime's errors for files that are newer than itself.
_LIMITS: Mapping[str, str] = {
    "IR version": r"model IR version: (?P<own>\d+), max supported IR version: (?P<limit>\d+)",
    "opset": r"Opset (?P<own>\d+) is under development.* is till opset (?P<limit>\d+)",
}
# Element types by ONNX Runtime's names, with the numbers of ONNX (`TensorProto.DataType`).
_SAME_NAMES = (
    *(("uint8", 2), ("int8", 3), ("uint16", 4), ("int16", 5), ("int32", 6), ("int64", 7)),
    *(("bool", 9), ("float16", 10), ("double", 11), ("uint32", 12), ("uint64", 13)),
)
_TYPES: Mapping[str, tuple[np.dtype[Any], int]] = {
    "tensor(float)": (np.dtype(np.float32), 1),
    "tensor(bfloat16)": (np.dtype(ml_dtypes.bfloat16), 16),
    **{f"tensor({name})": (np.dtype(name), number) for name, number in _SAME_NAMES},
}
# Alignment of ONNX Runtime's own allocator.
_ALIGNMENT = 64
_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "FusedGemm")
# ONNX Runtime's own operators, which it makes of several nodes of a file.
_FUSED = {
    *("FusedMatMul", "FusedGemm", "FusedConv", "Attention", "MultiHeadAttention", "BiasGelu"),
    *("Gelu", "FastGelu", "QuickGelu", "BiasSoftmax", "LayerNormalization", "NhwcFusedConv"),
    *("SkipLayerNormalization", "EmbedLayerNormalization", "SimplifiedLayerNormalization"),
    *("SkipSimplifiedLayerNormalization", "GroupQueryAttention", "RotaryEmbedding"),
}


def options(compiler: str, threads: int) -> ort.SessionOptions:
    """Returns options as users set them: one operator at a time, on this many threads.

    Waiting threads spin, which is ONNX Runtime's default.
    """
    chosen = ort.SessionOptions()
    chosen.graph_optimization_level = _LEVELS[compiler]
    chosen.intra_op_num_threads = threads
    chosen.inter_op_num_threads = 1
    chosen.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    chosen.log_severity_level = 3  # errors; warnings are about optimizations that did not apply
    return chosen


def open_session(path: Path, device: str, chosen: ort.SessionOptions) -> ort.InferenceSession:
    """Returns a session: the graph is optimized, weights are packed.

    Args:
      path: an ONNX file.
      device: `cpu` or `cuda`; nothing runs elsewhere.
      chosen: from `options`.

    Raises:
      UnsupportedError: ONNX Runtime has no kernel for an operator in the type of the model, or
        would run the graph, or a part of it, on another device.
    """
    wanted = PROVIDERS[device]
    if device == "cuda":
        chosen.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    try:
        # Without fallback, errors are raised instead of printed before a run on another device.
        opened = ort.InferenceSession(
            str(path), chosen, providers=[(wanted, _PROVIDER_OPTIONS[device])], enable_fallback=0
        )
    except errors.Fail as error:
        if newer := _newer(str(error)):
            raise UnsupportedError(newer) from error
        if "fallback to CPU EP" not in str(error):
            raise
        raise UnsupportedError(
            f"ONNX Runtime {ort.__version__} would run part of the graph on the CPU: "
            f"{str(error).splitlines()[0]}"
        ) from error
    except (errors.NotImplemented, errors.InvalidGraph) as error:
        said = str(error).splitlines()[0].replace(str(path), path.name)
        raise UnsupportedError(
            f"ONNX Runtime {ort.__version__} lacks a kernel on this device: {said}; most of its "
            "kernels support only float32"
        ) from error
    # A provider whose libraries cannot be loaded is left out with a warning.
    if (providers := opened.get_providers())[:1] != [wanted]:
        raise UnsupportedError(
            f"ONNX Runtime {ort.__version__} runs the graph with {', '.join(providers)} instead of "
            f"{wanted}, whose libraries could not be loaded"
        )
    return opened


def _newer(message: str) -> str | None:
    """Returns by how much a file is newer than ONNX Runtime, from its error; None if it is not."""
    for what, pattern in _LIMITS.items():
        if match := re.search(pattern, message, re.DOTALL):
            return (
                f"ONNX Runtime {ort.__version__} supports at most {what} {match['limit']}, but the "
                f"file has {match['own']}; export it with {what} {match['limit']}, or install a "
                "newer onnxruntime"
            )
    return None


class Buffer:
    """Memory of one input or output on the device, with host memory that may be the same."""

    def __init__(self, node: Any, device: str) -> None:
        """Allocates memory for a value.

        Args:
          node: an input or output of a session.
          device: the session's device.

        Raises:
          UnsupportedError: its type has no counterpart in NumPy, or its shape is not fixed.
        """
        if node.type not in _TYPES:
            raise UnsupportedError(
                f"{node.name} has the type {node.type}, which NumPy does not support"
            )
        if not all(isinstance(size, int) for size in node.shape):
            raise UnsupportedError(
                f"the shape of {node.name} depends on values; return fixed shapes"
            )
        self.shape: tuple[int, ...] = tuple(node.shape)
        self.dtype, number = _TYPES[node.type]
        self._array, self._host = _host_value(self.shape, self.dtype, number)
        self.value = self._host
        if device != "cpu":
            self.value = ort.OrtValue.ortvalue_from_shape_and_type(self.shape, number, device, 0)

    def write(self, values: Array) -> None:
        """Copies values in from the host."""
        self._array[...] = values
        if self.value is not self._host:
            ort.copy_tensors([self._host], [self.value])

    def take(self, value: Any) -> None:
        """Copies in an ONNX Runtime value on the host, as bytes: NumPy has no bfloat16.

        Raises:
          ValueError: its shape differs.
        """
        if tuple(value.shape()) != self.shape:
            raise ValueError(f"an output has shape {value.shape()}, expected {list(self.shape)}")
        ctypes.memmove(self._array.ctypes.data, value.data_ptr(), self._array.nbytes)

    def copy_to(self, target: Array) -> None:
        """Copies the content to an array on the host."""
        if self.value is not self._host:
            ort.copy_tensors([self.value], [self._host])
        target[...] = self._array


class SessionProgram:
    """A session with the interface that `resident_programs` expects."""

    def __init__(self, session: ort.InferenceSession, device: str) -> None:
        self._session = session
        self._device = device

    def inputs(self) -> list[Buffer]:
        """Makes a buffer for each input."""
        return [Buffer(node, self._device) for node in self._session.get_inputs()]

    def outputs(self) -> list[Buffer]:
        """Makes a buffer for each output."""
        return [Buffer(node, self._device) for node in self._session.get_outputs()]

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> Callable[[], object]:
        """Returns a function that runs the graph; it returns when the outputs are complete."""
        binding = self._session.io_binding()
        for node, buffer in zip(self._session.get_inputs(), inputs, strict=True):
            binding.bind_ortvalue_input(node.name, buffer.value)
        for node, buffer in zip(self._session.get_outputs(), outputs, strict=True):
            binding.bind_ortvalue_output(node.name, buffer.value)
        return functools.partial(self._session.run_with_iobinding, binding)

    def bind_inputs(self, inputs: Sequence[Buffer]) -> Callable[[], Any]:
        """Returns a function that runs the graph and returns newly allocated values."""
        nodes = self._session.get_inputs()
        feeds = {node.name: buffer.value for node, buffer in zip(nodes, inputs, strict=True)}
        names = [node.name for node in self._session.get_outputs()]
        return functools.partial(self._session.run_with_ort_values, names, feeds)

    def take(self, allocated: Sequence[Any], outputs: Sequence[Buffer]) -> None:
        """Copies a run's values, which are on the host, to buffers."""
        for value, buffer in zip(allocated, outputs, strict=True):
            buffer.take(value)


def _host_value(
    shape: tuple[int, ...], dtype: np.dtype[Any], number: int
) -> tuple[Array, ort.OrtValue]:
    """Returns an aligned array and the value of ONNX Runtime that shares its memory."""
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    raw = memory[start : start + size]
    array: Array = raw.view(dtype).reshape(shape)
    # NumPy has no bfloat16, so its bits are passed as integers.
    bits = raw.view(np.uint16).reshape(shape) if dtype == ml_dtypes.bfloat16 else array
    return array, ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)


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
    profiled = open_session(model, device, chosen)
    bound = SingleProgram(SessionProgram(profiled, device), inputs)
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
    operators = profile_of(events, iterations, stack=stack, provider=first)
    return [trace, table, write(operators, directory)]


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
            (event["args"]["op_name"], event["name"].removesuffix("_kernel_time"), event["dur"])
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
