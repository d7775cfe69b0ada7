"""In a worker: reads, writes and widens StableHLO modules."""

import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jax.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from openxla.benchmark.user_models.programs.program_model import NotWidenedError

_RANDOM = "stablehlo.rng"
# Operations that use the bits of a number, or round it intentionally.
_BY_BITS = ("stablehlo.bitcast_convert", "stablehlo.reduce_precision")
# Custom calls that XLA computes in any type.
_ANY_TYPE = ("mhlo.", "stablehlo.", "Sharding", "shape_assertion", "annotate")
# StableHLO operations that the reference interpreter supports; others end the process.
_INTERPRETED = frozenset(
    f"stablehlo.{name}"
    for name in (
        *("abs", "add", "and", "atan2", "broadcast_in_dim", "case", "cbrt", "ceil", "clamp"),
        *("compare", "complex", "concatenate", "constant", "convert", "convolution", "cosine"),
        *("divide", "dot_general", "dynamic_slice", "dynamic_update_slice", "exponential"),
        *("exponential_minus_one", "floor", "gather", "if", "imag", "iota", "is_finite", "log"),
        *("log_plus_one", "logistic", "maximum", "minimum", "multiply", "negate", "not", "or"),
        *("pad", "power", "real", "reduce", "reduce_window", "remainder", "reshape", "return"),
        *("reverse", "round_nearest_afz", "round_nearest_even", "rsqrt", "scatter", "select"),
        *("sign", "sine", "slice", "sort", "sqrt", "subtract", "tan", "tanh", "transpose", "xor"),
    )
) | {"func.func", "func.call", "func.return", "builtin.module"}
# Limit on steps of the interpreter, which takes 2 microseconds per step.
_MOST_STEPS = 2e6
_MAGIC = b"ML\xefR"


def read(content: bytes) -> Any:
    """Returns the module in a file: text, bytecode or portable artifact.

    The module is only valid in its own context.

    Raises:
      ValueError: the file is not a module, or uses a dialect other than StableHLO.
    """
    context = mlir.make_ir_context()
    with context, ir.Location.unknown():
        try:
            if content.startswith(_MAGIC):
                try:
                    return stablehlo.deserialize_portable_artifact(context, content)
                except (ValueError, RuntimeError, ir.MLIRError):
                    return ir.Module.parse(content)
            return ir.Module.parse(content.decode())
        except (ir.MLIRError, UnicodeDecodeError) as error:
            lines = [line for line in str(error).splitlines() if "error:" in line]
            said = lines[0].partition("error:")[2] if lines else str(error)
            raise ValueError(said.strip().strip('"')) from error


def portable(module: Any) -> bytes:
    """Returns a module as a portable artifact."""
    with module.context:
        content: bytes = stablehlo.serialize_portable_artifact(
            module, stablehlo.get_current_version()
        )
        return content


def bytecode(module: Any) -> bytes:
    """Returns a module as MLIR bytecode."""
    stream = io.BytesIO()
    module.operation.write_bytecode(file=stream)
    return stream.getvalue()


def main_of(module: Any) -> Any:
    """Returns a module's entry point: `main`, or its only public function.

    Raises:
      ValueError: there is no such function, or several.
    """
    functions = [op for op in module.body if op.operation.name == "func.func"]
    if not functions:
        raise ValueError("it has no function")
    named = [op for op in functions if op.name.value == "main"]
    public = [
        op
        for op in functions
        if op.operation.attributes.get("sym_visibility") is None
        or ir.StringAttr(op.operation.attributes["sym_visibility"]).value == "public"
    ]
    found = named or public
    if len(found) != 1:
        names = ", ".join(op.name.value for op in found)
        raise ValueError(
            f"expected a function main or one public function, found {len(found)} ({names})"
        )
    return found[0]


def random_operators(module: Any) -> list[str]:
    """Returns the operators that draw random numbers."""
    return sorted({op.name for op in _operations(module.operation)} & {_RANDOM})


def widen(module: Any) -> None:
    """Makes all floating-point numbers of a module float64, in place.

    Raises:
      NotWidenedError: the module uses bits of numbers, or calls a function of one fixed type.
    """
    with module.context, ir.Location.unknown():
        operations = list(_operations(module.operation))
        # Check all before widening any, because that changes the types of operands.
        for operation in operations:
            _check(operation)
        for operation in operations:
            if operation.name == "stablehlo.constant":
                _convert(operation)
            else:
                _widen(operation)
        try:
            module.operation.verify()
        except ir.MLIRError as error:
            raise NotWidenedError(f"invalid in float64: {str(error).splitlines()[-1]}") from error


def interpreted(module: Any, inputs: Sequence[Any]) -> list[Any] | None:
    """Returns the outputs of StableHLO's reference interpreter.

    Returns None if the interpreter lacks an operation, or would take more than a few seconds.

    Args:
      module: the module to run.
      inputs: arrays of the module's input types.
    """
    operations = list(_operations(module.operation))
    if not {operation.name for operation in operations} <= _INTERPRETED:
        return None
    if sum(map(_steps, operations)) > _MOST_STEPS:
        return None
    with module.context, ir.Location.unknown():
        try:
            given = [ir.DenseElementsAttr.get(np.asarray(value, order="C")) for value in inputs]
            return [np.array(value) for value in stablehlo.eval_module(module, given)]
        except (ValueError, TypeError, RuntimeError):  # attributes do not support the type
            return None


def _steps(operation: Any) -> float:
    """Returns the elements that an operation reads and writes, times the length of sums."""
    kinds = (value.type for value in (*operation.operands, *operation.results))
    arrays = [kind for kind in kinds if isinstance(kind, ir.RankedTensorType)]
    sizes = [float(math.prod(kind.shape)) for kind in arrays]
    if operation.name in ("stablehlo.dot_general", "stablehlo.convolution"):
        left, right, result = sizes
        # The length of the sums follows from the sizes of factors and result.
        length = math.sqrt(max(left * right / max(result, 1), 1))
        return float(result * length)
    if operation.name in ("stablehlo.reduce_window", "stablehlo.scatter", "stablehlo.sort"):
        return 16.0 * sum(sizes)
    return sum(sizes)


def _operations(operation: Any) -> Iterator[Any]:
    yield operation
    for region in operation.regions:
        for block in region:
            for inner in block:
                yield from _operations(inner.operation)


def _check(operation: Any) -> None:
    types = [str(value.type) for value in (*operation.operands, *operation.results)]
    if any("!quant" in kind for kind in types):
        raise NotWidenedError("it rounds to integers deliberately")
    if not any(_is_float(value.type) for value in (*operation.operands, *operation.results)):
        return
    if operation.name in _BY_BITS:
        raise NotWidenedError(f"{operation.name} operates on the bits of numbers")
    if operation.name == "stablehlo.custom_call":
        target = ir.StringAttr(operation.attributes["call_target_name"]).value
        if not target.startswith(_ANY_TYPE):
            raise NotWidenedError(f"it calls {target}, which supports only one type")


def _widen(operation: Any) -> None:
    for value in operation.results:
        value.set_type(_wide(value.type))
    for region in operation.regions:
        for block in region:
            for argument in block.arguments:
                argument.set_type(_wide(argument.type))
    for name in list(operation.attributes):
        # Iterating gives names or named attributes, depending on the version.
        key = name if isinstance(name, str) else name.name
        attribute = operation.attributes[key]
        if isinstance(attribute, ir.TypeAttr) and isinstance(attribute.value, ir.FunctionType):
            kind = attribute.value
            wide = ir.FunctionType.get(
                list(map(_wide, kind.inputs)), list(map(_wide, kind.results))
            )
            operation.attributes[key] = ir.TypeAttr.get(wide)


def _convert(constant: Any) -> None:
    """Adds a conversion after a constant, which may be large and of any type."""
    narrow = constant.results[0]
    wide = _wide(narrow.type)
    if wide == narrow.type:
        return
    with ir.InsertionPoint.after(constant):
        converted = stablehlo.ConvertOp(wide, narrow)
    narrow.replace_all_uses_except(converted.result, converted.operation)


def _wide(kind: Any) -> Any:
    if not isinstance(kind, ir.RankedTensorType):
        return kind
    element = kind.element_type
    if isinstance(element, ir.ComplexType) and isinstance(element.element_type, ir.F32Type):
        return ir.RankedTensorType.get(kind.shape, ir.ComplexType.get(ir.F64Type.get()))
    if not _is_float(kind):
        return kind
    return ir.RankedTensorType.get(kind.shape, ir.F64Type.get(), kind.encoding)


def _is_float(kind: Any) -> bool:
    """Returns whether a type is a floating-point type to be widened."""
    if not isinstance(kind, ir.RankedTensorType):
        return False
    element = kind.element_type
    if isinstance(element, ir.ComplexType):
        element = element.element_type
    return isinstance(element, ir.F32Type | ir.F16Type | ir.BF16Type)
