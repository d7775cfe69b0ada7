"""In a worker: ONNX graphs in float64, and plain runs of graphs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from openxla.benchmark.user_models.cross_check import is_float
from openxla.benchmark.user_models.inputs import Array
from openxla.benchmark.user_models.onnx import onnx_operators
from openxla.benchmark.user_models.onnx.onnx_routes import NodeRoutes
from openxla.benchmark.user_models.programs import program_model
from openxla.benchmark.user_models.programs.program_model import NotWidenedError
from openxla.benchmark.user_models.wanted import BroughtError

_NARROW = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
_FLOATS = _NARROW | {TensorProto.DOUBLE}
# Attributes that name an element type.
_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_datatype"})
_QUANTIZED = frozenset(
    {
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
        *("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv"),
    }
)
_RANDOM = frozenset(
    {
        *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
        *("Bernoulli", "Multinomial"),
    }
)
# Operators that take scales as numbers.
_SCALED = frozenset({"Resize", "Upsample"})


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy whose floating-point numbers are all float64.

    Raises:
      NotWidenedError: the graph rounds intentionally, or has operators that are not ONNX's own.
    """
    kinds = {node.op_type for node in nodes(model)}
    if found := sorted(kinds & _QUANTIZED):
        raise NotWidenedError(f"it rounds to integers deliberately ({found[0]})")
    if foreign := sorted(
        f"{node.domain}.{node.op_type}" for node in nodes(model) if _is_foreign(node, model)
    ):
        raise NotWidenedError(f"{foreign[0]} is not an ONNX operator")
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _retype_graph(wide.graph, TensorProto.DOUBLE)
    for function in wide.functions:
        retype(function.node, TensorProto.DOUBLE)
    return wide


def rounded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy whose weights are perturbed by `rounding_of` their type."""
    other = onnx.ModelProto()
    other.CopyFrom(model)
    # Scales determine sizes: 1.9999999 times 3 gives 5, not 6.
    sizes = {
        name for node in nodes(model) if node.op_type in _SCALED for name in list(node.input)[1:]
    }
    weights = [
        tensor
        for tensor in other.graph.initializer
        if tensor.data_type in _NARROW and tensor.name not in sizes
    ]
    values = program_model.rounded([numpy_helper.to_array(tensor) for tensor in weights])
    for tensor, value in zip(weights, values, strict=True):
        _replace(tensor, value)
    return other


def random_operators(model: onnx.ModelProto) -> list[str]:
    """Returns the operators that draw random numbers."""
    return sorted({node.op_type for node in nodes(model)} & _RANDOM)


def run(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of ONNX's reference evaluator: NumPy, operator by operator."""
    return _run(_evaluator(model), model, inputs)


def run_in_float64(
    model: onnx.ModelProto, inputs: Sequence[Array]
) -> tuple[list[Array], NodeRoutes]:
    """Returns the outputs of a graph in float64, and how they were checked.

    Raises:
      NotWidenedError: the graph cannot be run in float64.
    """
    wide = widened(model)
    routes = NodeRoutes(model, retype)
    evaluator = _evaluator(wide)
    for node, source in zip(evaluator.rt_nodes_, model.graph.node, strict=True):
        node.run = _routed(node, source, routes)
    values = [value.astype(np.float64) if is_float(value) else value for value in inputs]
    return _run(evaluator, wide, values), routes


def _evaluator(model: onnx.ModelProto) -> ReferenceEvaluator:
    opsets = {item.domain: item.version for item in model.opset_import}
    version = opsets.get("", opsets.get("ai.onnx", 1))
    kinds = (node.op_type for node in nodes(model) if not node.domain)
    own = [*onnx_operators.operators(version), *onnx_operators.missing(kinds, version)]
    return ReferenceEvaluator(model, new_ops=own)


def _routed(node: Any, source: onnx.NodeProto, routes: NodeRoutes) -> Callable[..., Any]:
    original = node.run

    def run(*given: Any, **keywords: Any) -> Any:
        return tuple(routes.evaluate(source, type(node), original, given, keywords))

    return run


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yields all nodes, including nested ones."""
    yield from _nodes(model.graph.node)
    for function in model.functions:
        yield from _nodes(function.node)


def _nodes(found: Any) -> Iterator[onnx.NodeProto]:
    for node in found:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner.node)


def _is_foreign(node: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    own = {(function.domain, function.name) for function in model.functions}
    return node.domain not in ("", "ai.onnx", "ai.onnx.ml") and (
        (node.domain, node.op_type) not in own
    )


def _run(evaluator: Any, model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    weights = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in weights]
    with np.errstate(all="ignore"):
        outputs = evaluator.run(None, dict(zip(names, inputs, strict=True)))
    for value, declared in zip(outputs, model.graph.output, strict=True):
        if not isinstance(value, np.ndarray | np.generic):
            raise BroughtError(
                f"output {declared.name!r} is a {type(value).__name__}, not an array"
            )
    return [np.asarray(value) for value in outputs]


def _retype_graph(graph: onnx.GraphProto, kind: int) -> None:
    for tensor in graph.initializer:
        _retype_tensor(tensor, kind)
    for sparse in graph.sparse_initializer:
        _retype_tensor(sparse.values, kind)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type in _FLOATS:
            value.type.tensor_type.elem_type = kind
    retype(graph.node, kind)


def retype(found: Iterable[onnx.NodeProto], kind: int) -> None:
    """Converts all floating-point numbers inside nodes to a type, in place."""
    for node in found:
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _FLOATS:
                attribute.i = kind
            # Reading an unset field creates it in some versions of protobuf.
            for tensor in (*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors):
                _retype_tensor(tensor, kind)
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                _retype_graph(inner, kind)
        if node.op_type == "Constant":
            _retype_constant(node, kind)
        elif node.op_type == "ConstantOfShape" and not node.attribute:
            zero = onnx.helper.make_tensor("value", kind, [1], [0.0])
            node.attribute.append(onnx.helper.make_attribute("value", zero))


def _retype_constant(node: onnx.NodeProto, kind: int) -> None:
    """Converts scalar constants to tensors, because ONNX defines scalars as float32."""
    for attribute in node.attribute:
        if attribute.name in ("value_float", "value_floats"):
            numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = numpy_helper.from_array(np.asarray(numbers, np.float64))
            _retype_tensor(tensor, kind)
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def _retype_tensor(tensor: TensorProto, kind: int) -> None:
    if tensor.data_type in _FLOATS and tensor.data_type != kind:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
        _replace(tensor, numpy_helper.to_array(tensor).astype(dtype))


def _replace(tensor: TensorProto, value: Array) -> None:
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
