"""In a worker: an ONNX graph in float64, and plain runs of graphs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from openxla.benchmark.brought.inputs import Array
from openxla.benchmark.brought.program_model import NotWidenedError
from openxla.benchmark.brought.wanted import BroughtError

_NARROW = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16})
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
_SEED = 7


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy whose floating-point numbers are all float64.

    Raises:
      NotWidenedError: it rounds by intent, or has operators that are not ONNX's own.
    """
    kinds = {node.op_type for node in nodes(model)}
    if found := sorted(kinds & _QUANTIZED):
        raise NotWidenedError(f"it rounds to integers by intent ({found[0]})")
    if foreign := sorted(
        f"{node.domain}.{node.op_type}" for node in nodes(model) if _is_foreign(node, model)
    ):
        raise NotWidenedError(f"{foreign[0]} is not an operator of ONNX")
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    _widen_graph(wide.graph)
    for function in wide.functions:
        _widen_nodes(function.node)
    return wide


def rounded(model: onnx.ModelProto, spacing: float) -> onnx.ModelProto:
    """Returns a copy on weights that are off by up to so much of themselves."""
    random = np.random.Generator(np.random.Philox(_SEED))
    other = onnx.ModelProto()
    other.CopyFrom(model)
    for tensor in other.graph.initializer:
        if tensor.data_type in _NARROW:
            value = numpy_helper.to_array(tensor)
            off = 1 + spacing * random.uniform(-1, 1, value.shape)
            _replace(tensor, (value.astype(np.float64) * off).astype(value.dtype))
    return other


def random_operators(model: onnx.ModelProto) -> list[str]:
    """Returns the operators that draw random numbers."""
    return sorted({node.op_type for node in nodes(model)} & _RANDOM)


def run(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a run by ONNX's reference evaluator: numpy, operator by operator."""
    return _run(ReferenceEvaluator(model), model, inputs)


def run_in_float64(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a widened graph.

    Raises:
      NotWidenedError: an operator computes in a narrower type all the same.
    """
    evaluator = ReferenceEvaluator(model)
    narrow: list[str] = []
    for node in evaluator.rt_nodes_:
        node.run = _watched(node, narrow)
    wide = [value.astype(np.float64) if _is_float(value) else value for value in inputs]
    outputs = _run(evaluator, model, wide)
    if narrow:
        raise NotWidenedError(f"{narrow[0]} of the reference evaluator rounds to a narrower type")
    return outputs


def nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yields all nodes, those inside of others among them."""
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
            raise BroughtError(f"the output {declared.name!r} is a {type(value).__name__}")
    return [np.asarray(value) for value in outputs]


def _watched(node: Any, narrow: list[str]) -> Callable[..., Any]:
    original = node.run

    def run(*arguments: Any, **keywords: Any) -> Any:
        results = original(*arguments, **keywords)
        if any(_is_float(value) and value.dtype != np.float64 for value in results):
            narrow.append(node.op_type)
        return results

    return run


def _is_float(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and (dtype.kind == "f" or dtype.name == "bfloat16")


def _widen_graph(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for sparse in graph.sparse_initializer:
        _widen_tensor(sparse.values)
    for value in (*graph.input, *graph.output, *graph.value_info):
        kind = value.type.tensor_type
        if kind.elem_type in _NARROW:
            kind.elem_type = TensorProto.DOUBLE
    _widen_nodes(graph.node)


def _widen_nodes(found: Any) -> None:
    for node in found:
        for attribute in node.attribute:
            if attribute.name in _TYPE_ATTRIBUTES and attribute.i in _NARROW:
                attribute.i = TensorProto.DOUBLE
            for tensor in (attribute.t, *attribute.tensors):
                _widen_tensor(tensor)
            for inner in (attribute.g, *attribute.graphs):
                _widen_graph(inner)
        if node.op_type == "Constant":
            _widen_constant(node)
        elif node.op_type == "ConstantOfShape" and not node.attribute:
            zero = numpy_helper.from_array(np.zeros(1))
            node.attribute.append(onnx.helper.make_attribute("value", zero))


def _widen_constant(node: onnx.NodeProto) -> None:
    """Numbers that are no tensors would be of float32."""
    for attribute in node.attribute:
        if attribute.name in ("value_float", "value_floats"):
            numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
            tensor = numpy_helper.from_array(np.asarray(numbers, np.float64))
            attribute.CopyFrom(onnx.helper.make_attribute("value", tensor))


def _widen_tensor(tensor: TensorProto) -> None:
    if tensor.data_type in _NARROW:
        _replace(tensor, numpy_helper.to_array(tensor).astype(np.float64))


def _replace(tensor: TensorProto, value: Array) -> None:
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name))
