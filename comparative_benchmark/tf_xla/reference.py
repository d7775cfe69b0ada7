"""Truth, reference and cost of a TensorFlow model.

Work is counted from its graph, which is traced, never run.
"""

import contextlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.frameworks.tensorflow_models import function_of
from comparative_benchmark.tf_xla.backend import to_numpy
from openxla.benchmark.artifacts.workload_store import WorkloadCost
from openxla.benchmark.models.shared_model import ArchitectureModel, as_tuple
from openxla.benchmark.user_models.programs.program_model import rounded

# Operations that read only part of their first operand.
_INDEXING = ("GatherV2", "GatherNd", "StridedSlice", "Slice")
# Operations that stand for others, or repeat them; their contents are not counted.
_CONTROL = ("While", "StatelessWhile", "If", "StatelessIf", "Case", "StatelessCase")
# Other operations that multiply; without a formula there is no count.
_PRODUCTS = re.compile(r"MatMul|Conv|Einsum|Dot|PartitionedCall|RNN|LSTM|GRU|PyFunc|Fused")
# Constants with at most this many numbers are shapes, permutations and paddings.
_FEW = 8


def cost(model: Any, inputs: Sequence[Array]) -> WorkloadCost:
    """Returns flops and compulsory bytes of `model` on `inputs`.

    Raises:
      ValueError: the work depends on values (loops, branches), or an operation multiplies in a way
        that has no formula here.
    """
    specs = [tf.TensorSpec(value.shape, value.dtype) for value in inputs]
    program = tf.function(model.forward).get_concrete_function(*specs)
    operations = program.graph.get_operations()
    moved = sum(map(_bytes, program.inputs[: len(inputs)])) + sum(map(_bytes, program.outputs))
    moved += sum(_read_of(handle) for handle in program.graph.internal_captures)
    moved += sum(_read_of_constant(operation) for operation in operations)
    return WorkloadCost.counted(
        sum(map(_flops, operations)), moved, of="the TensorFlow model's graph"
    )


def _flops(operation: Any) -> int:
    if operation.type in _CONTROL:
        raise ValueError(f"{operation.name}: the cost of `{operation.type}` depends on values")
    if operation.type in _FORMULAS:
        return _FORMULAS[operation.type](operation)
    if _PRODUCTS.search(operation.type):
        raise ValueError(f"{operation.name}: no formula for `{operation.type}`")
    return 0


def _read_of(captured: Any) -> int:
    """Returns the bytes read of a variable, or of a tensor of the model; at most its size."""
    if captured.dtype != tf.resource:
        return _read(captured)
    users = captured.consumers()
    values = [user.outputs[0] for user in users if user.type == "ReadVariableOp"]
    rows = [user.outputs[0] for user in users if user.type == "ResourceGather"]
    total = sum(map(_read, values)) + sum(map(_bytes, rows))
    return min([total, *map(_bytes, values)])


def _read_of_constant(operation: Any) -> int:
    if operation.type != "Const" or _size(operation.outputs[0]) <= _FEW:
        return 0
    return _read(operation.outputs[0])


def _read(value: Any) -> int:
    """Returns the bytes that the users of a tensor read of it; at most its size."""
    total = 0
    for user in value.consumers():
        if user.type == "Identity":
            total += _read(user.outputs[0])
        elif user.type in _INDEXING and user.inputs[0] is value:
            total += sum(map(_bytes, user.outputs))
        else:
            total += _bytes(value)
    return min(total, _bytes(value))


def _matmul(operation: Any) -> int:
    [product] = operation.outputs
    transposed = operation.get_attr("transpose_a" if operation.type == "MatMul" else "adj_x")
    return 2 * _size(product) * int(operation.inputs[0].shape[-2 if transposed else -1])


def _einsum(operation: Any) -> int:
    terms, _, _ = operation.get_attr("equation").decode().partition("->")
    sizes: dict[str, int] = {}
    for labels, operand in zip(terms.split(","), operation.inputs, strict=True):
        if "..." in labels:
            raise ValueError(f"{operation.name}: the size of the ellipsis in {labels} is unknown")
        sizes.update(zip(labels, map(int, operand.shape), strict=True))
    return 2 * math.prod(sizes.values()) if len(operation.inputs) > 1 else 0


def _conv(operation: Any) -> int:
    height, width, inputs, _ = map(int, operation.inputs[1].shape)
    return 2 * _size(operation.outputs[0]) * height * width * inputs


def _conv_backward(operation: Any) -> int:
    # Both gradients of a convolution need as many multiplications as the convolution.
    is_of_input = operation.type == "Conv2DBackpropInput"
    kernel = operation.inputs[1] if is_of_input else operation.outputs[0]
    height, width, inputs, _ = map(int, kernel.shape)
    return 2 * _size(operation.inputs[2]) * height * width * inputs


def _depthwise_conv(operation: Any) -> int:
    height, width, _, _ = map(int, operation.inputs[1].shape)
    return 2 * _size(operation.outputs[0]) * height * width


_FORMULAS: Mapping[str, Callable[[Any], int]] = {
    "MatMul": _matmul,
    "BatchMatMul": _matmul,
    "BatchMatMulV2": _matmul,
    "Einsum": _einsum,
    "Conv2D": _conv,
    "Conv2DBackpropInput": _conv_backward,
    "Conv2DBackpropFilter": _conv_backward,
    "DepthwiseConv2dNative": _depthwise_conv,
}


def _size(tensor: Any) -> int:
    if not tensor.shape.is_fully_defined():
        raise ValueError(f"{tensor.name} has no fixed shape")
    return math.prod(map(int, tensor.shape))


def _bytes(tensor: Any) -> int:
    return _size(tensor) * int(tensor.dtype.size)


def compute(model: Any, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
    """Returns the outputs of the model in float64, and op by op in its own type, on the CPU.

    The float64 run uses the same weights as the model, so that for a 16-bit model only the
    computation differs, not the rounding of weights and inputs.

    Raises:
      TypeError: the model has no `as_float64()`, or its result computes in another type.
    """
    if not hasattr(model, "as_float64"):
        raise TypeError(
            f"{type(model).__name__} needs an as_float64() method that returns a float64 model"
        )
    with tf.device("CPU:0"):
        tensors = [tf.convert_to_tensor(value) for value in inputs]
        same_type = in_own_type(model, inputs)
        wide = [tf.cast(x, tf.float64) if x.dtype.is_floating else x for x in tensors]
        truth = _run(model.as_float64(), wide)
    for value in truth:
        # The kind of bfloat16 is V.
        if "float" in value.dtype.name and value.dtype != np.float64:
            raise TypeError(f"the model computes in {value.dtype} although its weights are float64")
    return truth, same_type


def in_own_type(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a run in the model's own type, op by op, on the CPU."""
    with tf.device("CPU:0"):
        tensors = [tf.convert_to_tensor(value) for value in inputs]
        if not isinstance(model, ArchitectureModel):
            # A model that compiles its `forward` must not be its own compiler's reference.
            with contextlib.suppress(Exception), _without_functions():
                return _run(model, tensors)
        return _run(model, tensors)


def nearby(model: Any, inputs: Sequence[Array]) -> list[Array]:
    """Returns the outputs of a plain run on weights and inputs that are off by a spacing.

    The weights are variables, and the tensors that the model closes over.
    """
    with tf.device("CPU:0"):
        tensors = [tf.convert_to_tensor(value) for value in rounded(inputs)]
        try:
            traced = function_of(model.forward, jit_compile=None).get_concrete_function(*tensors)
        except Exception:  # it looks at values: only its inputs are moved
            return _run(model, tensors)
        variables = [item for item in traced.graph.variables if item.dtype.is_floating]
        handles = {id(variable.handle) for variable in traced.graph.variables}
        for seed, tensor in enumerate(traced.captured_inputs):
            if id(tensor) not in handles and tensor.dtype.is_floating:
                off = tf.convert_to_tensor(_moved(tensor, seed))
                spec = tf.TensorSpec(tensor.shape, tensor.dtype)
                traced.replace_capture_with_deferred_capture(tensor, lambda off=off: off, spec)
        kept = [np.asarray(variable.numpy()) for variable in variables]
        try:
            for seed, variable in enumerate(variables):
                variable.assign(_moved(variable, seed))
            return [to_numpy(value) for value in as_tuple(traced(*tensors))]
        finally:
            for variable, value in zip(variables, kept, strict=True):
                variable.assign(value)


def _moved(value: Any, seed: int) -> Array:
    (off,) = rounded([np.asarray(value.numpy())], spacings=1.0, seed=seed)
    return off


@contextlib.contextmanager
def _without_functions() -> Iterator[None]:
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)


def _run(model: Any, tensors: list[Any]) -> list[Any]:
    return [to_numpy(value) for value in as_tuple(model.forward(*tensors))]
