"""In a worker: evaluates each node of an ONNX graph by several implementations, in float64.

The first implementation is ONNX's reference evaluator, with the operators of `onnx_operators`. The
second is ONNX Runtime, and the third is the evaluator on a newer version of the operator. They are
compared node by node, on the same operands. Comparing whole graphs would not work: ONNX Runtime
cannot run most of them in float64, because it lacks a kernel even for `Conv`, and after many
operators rounding would look like a fault. A node without a float64 kernel is compared in float32.
"""

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import onnx
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from openxla.benchmark.artifacts.workload_store import RouteDifference, TruthCheck
from openxla.benchmark.user_models.inputs import (
    EVALUATOR,
    NODE_TOLERANCE,
    RUNTIME,
    UPGRADED,
    Array,
    difference,
    finite,
    is_float,
)
from openxla.benchmark.user_models.onnx import onnx_operators
from openxla.benchmark.user_models.programs.program_model import NotWidenedError
from openxla.benchmark.user_models.python_files.loading import error_line

# Operands with no more elements become constants of a node's graph, because some kernels accept no
# other operands.
_FEW = 16
_IR_VERSIONS = (4, 10)
# Nodes that compute nothing.
_TRIVIAL = frozenset({"Constant", "Identity"})
_Results = list[Any]
# Puts nodes into another floating-point type, in place.
Retype = Callable[[Sequence[onnx.NodeProto], int], None]


class NodeRoutes:
    """Evaluates the nodes of a graph, and notes where implementations differ.

    Attributes:
      is_overruled: whether the evaluator's own result was replaced, or is in doubt.
    """

    def __init__(self, model: onnx.ModelProto, retype: Retype) -> None:
        """Takes a graph in its own types.

        Args:
          model: the graph to evaluate.
          retype: converts the graph's nodes to float64 or float32.
        """
        self.is_overruled = False
        self._retype = retype
        self._opsets = {item.domain: item.version for item in model.opset_import}
        least, most = _IR_VERSIONS
        self._ir_version = min(max(model.ir_version, least), most)
        self._sessions: dict[bytes, Any] = {}
        self._routes: dict[str, None] = {EVALUATOR: None}
        self._in_doubt: list[RouteDifference] = []
        self._outvoted: list[RouteDifference] = []
        self._unchecked: dict[str, None] = {}

    def check(self) -> TruthCheck:
        """Returns the outcome of the comparisons of all nodes."""
        return TruthCheck(
            routes=tuple(self._routes),
            in_doubt=tuple(self._in_doubt),
            outvoted=tuple(self._outvoted),
            unchecked=tuple(self._unchecked),
        )

    def evaluate(
        self,
        source: onnx.NodeProto,
        implementation: type,
        run: Callable[..., Any],
        given: Sequence[Any],
        keywords: Mapping[str, Any],
    ) -> _Results:
        """Returns a node's results: those that two implementations agree on, or the evaluator's.

        Args:
          source: the node, in the program's own types.
          implementation: class by which the evaluator computes it.
          run: evaluates the node.
          given: its operands; optional ones may be None.
          keywords: the evaluator's keyword arguments; `context` holds values for subgraphs.

        Raises:
          NotWidenedError: no implementation gives float64 results.
        """
        node = _Node(
            source=source,
            implementation=implementation,
            run=functools.partial(_attempt, source, run, keywords),
            given=given,
            operands=_operands_of(source, given, keywords.get("context")),
        )
        results = iter(self._agreed(node))
        # A result without a name must not be mistaken for an omitted optional operand.
        return [next(results) if name else None for name in source.output]

    def _agreed(self, node: "_Node") -> _Results:
        """Returns the named results."""
        source = node.source
        own, why = node.run(node.given)
        if own is not None and _is_narrow(own):
            own, why = None, "the reference evaluator returns a narrower type"
        if source.op_type in _TRIVIAL and own is not None:
            return own
        if own is not None and not all(map(_is_array, own)):
            self._unchecked[source.op_type] = None
            return own
        runtime = self._by_runtime(node, TensorProto.DOUBLE)
        if own is None:
            return self._without_evaluator(node, runtime, why)
        if runtime is None or _is_narrow(runtime):
            runtime = self._by_runtime(node, TensorProto.FLOAT)
        if runtime is None:
            return self._without_runtime(node, own)
        error = self._error(node, own, runtime)
        if error is None:
            self._routes[RUNTIME] = None
            return own
        newer = self._upgraded(node)
        if (newer is not None and _difference_of(own, newer) is None) or (
            _shapes(own) != _shapes(runtime) and _shapes(own) == self._inferred_shapes(node)
        ):
            self._outvoted.append(_difference(source, (EVALUATOR, RUNTIME), error))
            return own
        if newer is not None and _difference_of(newer, runtime) is None:
            self.is_overruled = True
            self._outvoted.append(_difference(source, (UPGRADED, EVALUATOR), error))
            return newer
        self._record_doubt(source, (EVALUATOR, RUNTIME), error)
        return own

    def _without_runtime(self, node: "_Node", own: _Results) -> _Results:
        """Compares the evaluator's results with a newer version of the operator."""
        newer = self._upgraded(node)
        if newer is None:
            self._unchecked[node.source.op_type] = None
        elif (error := _difference_of(own, newer)) is not None:
            self._record_doubt(node.source, (EVALUATOR, UPGRADED), error)
        else:
            self._routes[UPGRADED] = None
        return own

    def _without_evaluator(self, node: "_Node", runtime: _Results | None, why: str) -> _Results:
        """Returns the result of the other two implementations.

        Raises:
          NotWidenedError: neither gives float64 results.
        """
        self.is_overruled, source = True, node.source
        newer = self._upgraded(node, must_be_other=False)
        if newer is not None and _is_narrow(newer):
            newer = None
        wide = runtime if runtime is not None and not _is_narrow(runtime) else None
        results = wide if newer is None else newer
        if results is None:
            raise NotWidenedError(f"{_named(source)} cannot be evaluated in float64: {why}")
        self._routes[RUNTIME if newer is None else UPGRADED] = None
        witness = wide or self._by_runtime(node, TensorProto.FLOAT)
        if newer is None or witness is None:
            self._unchecked[source.op_type] = None
        elif (error := _difference_of(newer, witness)) is not None:
            self._record_doubt(source, (UPGRADED, RUNTIME), error)
        return results

    def _record_doubt(self, source: onnx.NodeProto, routes: tuple[str, str], error: float) -> None:
        self.is_overruled = True
        self._in_doubt.append(_difference(source, routes, error))

    def _error(self, node: "_Node", own: _Results, runtime: _Results) -> float | None:
        """Returns the difference of ONNX Runtime's results if it exceeds rounding, else None."""
        error = _difference_of(own, runtime)
        if error is None or not _is_narrow(runtime) or _subgraphs(node.source):
            return error
        # ONNX Runtime used rounded operands; only a difference on the same operands is its own.
        again, _ = node.run([_rounded(value) for value in node.given])
        return error if again is None else _difference_of(again, runtime)

    def _by_runtime(self, node: "_Node", kind: int) -> _Results | None:
        """Returns ONNX Runtime's results in a type; None if it has no kernel for the type."""
        try:
            import onnxruntime as ort
        except ImportError:
            return None
        model = self._graph_of(node, kind)
        if model is None:
            return None
        feeds = {
            item.name: _retyped(node.operands[item.name], item.type.tensor_type.elem_type)
            for item in model.graph.input
        }
        key = model.SerializeToString()
        try:
            if key not in self._sessions:
                options = ort.SessionOptions()
                options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
                options.log_severity_level = 4
                options.intra_op_num_threads = 1
                options.enable_cpu_mem_arena = False
                self._sessions[key] = ort.InferenceSession(
                    key, options, providers=["CPUExecutionProvider"]
                )
            if self._sessions[key] is None:
                return None
            results = self._sessions[key].run(None, feeds)
        except Exception:  # its exception classes are not public
            self._sessions[key] = None
            return None
        return results if all(map(_is_array, results)) else None

    def _upgraded(self, node: "_Node", *, must_be_other: bool = True) -> _Results | None:
        """Returns the evaluator's results for a newer version of the operator, if there is one.

        Args:
          node: the node to evaluate.
          must_be_other: whether to return None if the code is the same, or known to be wrong.
        """
        newest = onnx.defs.onnx_opset_version()
        if node.source.domain not in ("", "ai.onnx") or _subgraphs(node.source):
            return None
        model = self._graph_of(node, TensorProto.DOUBLE)
        if model is None:
            return None
        with contextlib.suppress(Exception), np.errstate(all="ignore"):
            newer = onnx.version_converter.convert_version(model, newest)
            evaluator = ReferenceEvaluator(newer)
            if must_be_other and any(
                # Versions in one module share functions, and therefore faults.
                type(item).__module__ == node.implementation.__module__
                or onnx_operators.is_replaced(item.op_type, newest)
                for item in evaluator.rt_nodes_
            ):
                return None
            taken = {item.name: node.operands[item.name] for item in newer.graph.input}
            results: _Results = evaluator.run(None, taken)
            return results
        return None

    def _inferred_shapes(self, node: "_Node") -> list[tuple[int, ...]] | None:
        """Returns the shapes of a node's results if ONNX's shape inference finds them."""
        model = self._graph_of(node, TensorProto.FLOAT)
        if model is None:
            return None
        with contextlib.suppress(Exception):
            graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
            sizes = (value.type.tensor_type.shape.dim for value in graph.output)
            return [tuple(dimension.dim_value for dimension in shape) for shape in sizes]
        return None

    def _graph_of(self, node: "_Node", kind: int) -> onnx.ModelProto | None:
        """Returns a graph of one node in a type; None if an operand is not an array."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node.source)
        self._retype([copy], kind)
        allowed = _allowed_types(copy, self._opsets)
        inputs, weights = [], []
        for name, value in node.operands.items():
            if not _is_array(value) or value.dtype.kind in "OSU":
                return None
            place = list(copy.input).index(name) if name in copy.input else None
            element = kind if is_float(value) else onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            if place is not None and place < len(allowed) and is_float(value):
                types = allowed[place]
                if "tensor(double)" not in types and "tensor(float)" in types:
                    element = TensorProto.FLOAT
            if place is not None and value.size <= _FEW and value.ndim <= 1:
                weights.append(onnx.numpy_helper.from_array(_retyped(value, element), name))
            else:
                inputs.append(onnx.helper.make_tensor_value_info(name, element, value.shape))
        outputs = [onnx.ValueInfoProto(name=name) for name in copy.output if name]
        graph = onnx.helper.make_graph([copy], "node", inputs, outputs, weights)
        opsets = [onnx.helper.make_opsetid(k, v) for k, v in self._opsets.items()]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=self._ir_version)


@attrs.frozen(kw_only=True)
class _Node:
    """A node and its operands.

    Attributes:
      source: the node in the program's own types.
      implementation: class by which the evaluator computes it.
      run: evaluates the node on operands; returns results, or None and the reason.
      given: operands in order.
      operands: values that the node and its subgraphs use, by name.
    """

    source: onnx.NodeProto
    implementation: type
    run: Callable[[Sequence[Any]], tuple[_Results | None, str]]
    given: Sequence[Any]
    operands: Mapping[str, Any]


def _operands_of(
    source: onnx.NodeProto, given: Sequence[Any], context: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Returns the values that a node and its subgraphs use, by name; optional ones if given."""
    operands = {
        name: value
        for name, value in zip(source.input, given, strict=False)
        if name and value is not None
    }
    if context:
        used = {name for graph in _subgraphs(source) for name in _names(graph)}
        operands |= {name: context[name] for name in used if context.get(name) is not None}
    return operands


def _names(graph: onnx.GraphProto) -> set[str]:
    """Returns the names that a graph uses from its outer scope."""
    used = {value.name for value in graph.output}
    made = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        used.update(node.input)
        made.update(node.output)
        for inner in _subgraphs(node):
            used |= _names(inner)
    return used - made - {""}


def _subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [
        graph
        for attribute in node.attribute
        for graph in ([attribute.g] if attribute.HasField("g") else attribute.graphs)
    ]


def _allowed_types(node: onnx.NodeProto, opsets: Mapping[str, int]) -> list[set[str]]:
    try:
        version = opsets.get(node.domain, 1)
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
    except onnx.defs.SchemaError:
        return []
    return [set(item.types) for item in schema.inputs]


def _attempt(
    source: onnx.NodeProto,
    run: Callable[..., Any],
    keywords: Mapping[str, Any],
    given: Sequence[Any],
) -> tuple[_Results | None, str]:
    """Returns the named results of a node; if it fails, None and the reason."""
    try:
        with np.errstate(all="ignore"):
            results = list(run(*given, **keywords))
        if len(results) < len(source.output):
            return None, f"the reference evaluator returned too few results ({len(results)})"
        return [value for name, value in zip(source.output, results, strict=False) if name], ""
    except Exception as error:
        return None, error_line(error)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray | np.generic)


def _is_narrow(values: Sequence[Any]) -> bool:
    return any(is_float(value) and value.dtype != np.float64 for value in values)


def _retyped(value: Any, element: int) -> Array:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element) if is_float(value) else None
    return np.asarray(value, dtype)


def _shapes(values: Sequence[Any]) -> list[tuple[int, ...]]:
    return [np.shape(value) for value in values]


def _difference_of(first: _Results, second: _Results) -> float | None:
    return difference(first, second, tolerance=NODE_TOLERANCE)


def _rounded(value: Any) -> Any:
    return value.astype(np.float32).astype(np.float64) if is_float(value) else value


def _named(source: onnx.NodeProto) -> str:
    return f"{source.op_type} ({source.name or next(filter(None, source.output), '')})"


def _difference(source: onnx.NodeProto, routes: tuple[str, ...], error: float) -> RouteDifference:
    return RouteDifference(
        operator=source.op_type,
        node=source.name or next(filter(None, source.output), ""),
        routes=routes,
        error=finite(error),
    )
