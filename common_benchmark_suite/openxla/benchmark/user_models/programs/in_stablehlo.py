"""In a worker: a user's StableHLO module or `jax.export` file, and its float64 form."""

import contextlib
import dataclasses
import functools
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax import export
from jax.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

from openxla.benchmark.artifacts.workload_store import TruthCheck
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.preprocessing import element_type_of, numpy_dtype
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.user_models.inputs import Array, cross_checked, form_of, is_float
from openxla.benchmark.user_models.model_options import InputSpec, UserModelError
from openxla.benchmark.user_models.programs.program_model import (
    NotWidenedError,
    ProgramModel,
    in_place_of_truth,
    rounded,
)
from openxla.benchmark.user_models.programs.programs import JAX_EXPORT
from openxla.benchmark.user_models.programs.signature import Signature
from openxla.benchmark.user_models.python_files.loading import refusing

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
_WITHOUT_CHLO = "builtin.module(func.func(chlo-legalize-to-stablehlo))"
_MAGIC = b"ML\xefR"

# As little optimisation as XLA supports.
_PLAINLY: dict[str, Any] = {"xla_backend_optimization_level": 0}
_WIDE = frozenset({"f64", "i64"})


def read_module(content: bytes) -> Any:
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
      ValueError: the function is missing, or ambiguous.
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
    entries = named or public
    if len(entries) != 1:
        names = ", ".join(op.name.value for op in entries)
        raise ValueError(
            f"expected a function main or one public function, found {len(entries)} ({names})"
        )
    return entries[0]


def random_operators(module: Any) -> list[str]:
    """Returns the operators that draw random numbers."""
    return sorted({op.name for op in _operations(module.operation)} & {_RANDOM})


def widen_module(module: Any) -> None:
    """Makes all floating-point numbers of a module float64, in place.

    Raises:
      NotWidenedError: the module uses bits of numbers, or calls a function of one fixed type.
    """
    with module.context, ir.Location.unknown():
        operations = list(_operations(module.operation))
        # Check all before widening any, because that changes the types of operands.
        for operation in operations:
            _stablehlo_float64_check(operation)
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

    Returns None if the interpreter lacks an operation, would return complex numbers, or would take
    more than a few seconds.

    Args:
      module: the module to run.
      inputs: arrays of the module's input types.
    """
    operations = list(_operations(module.operation))
    unknown = {operation.name for operation in operations} - _INTERPRETED
    returned = [operation.operands for operation in operations if operation.name == "func.return"]
    # The interpreter ends the process if it returns complex numbers.
    is_complex = any("complex" in str(value.type) for values in returned for value in values)
    if unknown or is_complex or _total_steps(module) > _MOST_STEPS:
        return None
    with module.context, ir.Location.unknown():
        try:
            given = [ir.DenseElementsAttr.get(np.asarray(value, order="C")) for value in inputs]
            return [np.array(value) for value in stablehlo.eval_module(module, given)]
        except (ValueError, TypeError, RuntimeError):  # attributes do not support the type
            return None


def _total_steps(module: Any) -> float:
    """Returns the steps of a module; a function counts once for each of its calls."""
    functions = {op.name.value: op for op in module.body if op.operation.name == "func.func"}

    @functools.cache
    def steps(name: str) -> float:
        return sum(
            steps(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
            if op.name == "func.call"
            else _steps(op)
            for op in _operations(functions[name].operation)
        )

    return steps(main_of(module).name.value)


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


def _stablehlo_float64_check(operation: Any) -> None:
    types = [str(value.type) for value in (*operation.operands, *operation.results)]
    if any("!quant" in kind for kind in types):
        raise NotWidenedError("the program is quantised")
    if not any(_is_float(value.type) for value in (*operation.operands, *operation.results)):
        return
    if operation.name in _BY_BITS:
        raise NotWidenedError(f"{operation.name} operates on the bits of numbers")
    if operation.name == "stablehlo.custom_call":
        target = ir.StringAttr(operation.attributes["call_target_name"]).value
        if not target.startswith(_ANY_TYPE):
            raise NotWidenedError(f"custom call {target} supports only one type")


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


class StableHloModel(ProgramModel):
    """A program that JAX can call: `apply` takes its arguments as the file declares them.

    Attributes:
      params: empty; weights are constants or arguments of the program.
    """

    params: tuple[()] = ()

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        # Keeps the dynamic sizes, which the program loses when the inputs fix them.
        self._taken: Signature | None = None
        with refusing(f"{self.path} is not a valid {parameters['program']} program"):
            content = self.path.read_bytes()
            if parameters["program"] == JAX_EXPORT.name:
                self._exported = export.deserialize(bytearray(content))
            else:
                self._exported = _exported(read_module(content))
        self.check_types(aval.dtype for aval in self._exported.in_avals + self._exported.out_avals)
        self._taken = self.signature()
        if any(argument.element_type in _WIDE for argument in self._taken.arguments):
            jax.config.update("jax_enable_x64", True)
        if any(isinstance(s, str) for argument in self._taken.arguments for s in argument.sizes):
            with contextlib.suppress(UserModelError):  # the user's own arrays determine the sizes
                self._exported = _with_sizes(self._exported, self.inputs())

    def signature(self) -> Signature:
        """Returns the program's signature."""
        if self._taken is not None:
            return self._taken
        avals = self._exported.in_avals
        names = [f"argument {place}" for place in range(len(avals))]
        kinds = [element_type_of(aval.dtype) for aval in avals]
        shapes = [tuple(s if isinstance(s, int) else str(s) for s in aval.shape) for aval in avals]
        return Signature.of(self.path.name, zip(names, kinds, shapes, strict=True))

    def apply(self, _: Any, *inputs: Any) -> Any:
        """Runs the program; can be jitted."""
        return _call(self._exported, inputs)

    def forward(self, *inputs: Any) -> Any:
        """Runs the program."""
        return self.apply((), *inputs)

    def try_out(self, *inputs: Array) -> None:
        """Checks the inputs, and that the program draws no random numbers.

        Raises:
          UserModelError: the program takes other inputs, or draws random numbers.
        """
        super().try_out(*inputs)
        module = read_module(self._exported.mlir_module_serialized)
        if drawing := random_operators(module):
            raise UserModelError(f"the program draws random numbers ({', '.join(drawing)})")

    def truth_and_reference(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """See `ProgramModel`; both run on XLA's CPU backend, the reference barely optimised."""
        own = self._plain(inputs)
        self.without_float64, truth = None, None
        try:
            wide = _widened(self._exported)
            with jax.enable_x64(True):
                values = [v.astype(_wide_dtype(v.dtype), copy=False) for v in inputs]
                truth = [np.asarray(value) for value in as_tuple(_call(wide, values))]
                self.note_check(_check(wide, values, truth))
        except NotWidenedError as error:
            self.without_float64 = f"the program has no float64 run: {error}"
        if truth is None or self.without_float64 is not None:
            # Integers cannot be rounded: another order of operations shows the effect of rounding.
            options = _PLAINLY if any(map(is_float, inputs)) else None
            return in_place_of_truth(own), self._plain(rounded(inputs), options)
        return truth, own

    def _plain(self, inputs: Sequence[Array], options: Any = _PLAINLY) -> list[Array]:
        with refusing(f"the program cannot run with inputs {', '.join(map(form_of, inputs))}"):
            compiled = jax.jit(self.forward).lower(*inputs).compile(compiler_options=options)
            return [np.asarray(value) for value in as_tuple(compiled(*inputs))]


def create_model(**parameters: Any) -> StableHloModel:
    """Returns the program of a file.

    Raises:
      UserModelError: the file is incomplete, or not a StableHLO program.
    """
    return StableHloModel(parameters)


def _call(exported: Any, inputs: Sequence[Any]) -> Any:
    arguments, keywords = jax.tree.unflatten(exported.in_tree, list(inputs))
    leaves = tuple(jax.tree.leaves(exported.call(*arguments, **keywords)))
    return leaves[0] if len(leaves) == 1 else leaves


def _with_sizes(exported: export.Exported, inputs: Sequence[InputSpec]) -> export.Exported:
    """Returns the program with fixed sizes, because users of StableHLO support no others.

    JAX itself does this when it compiles (`jax._src.compiler`), with the same function.
    """
    from jaxlib import _jax

    forms = [jax.ShapeDtypeStruct(spec.sizes, numpy_dtype(spec.element_type)) for spec in inputs]
    lowered = jax.jit(lambda *values: _call(exported, values), keep_unused=True).lower(*forms)
    module = lowered.compiler_ir("stablehlo")
    refined = _jax.mlir.refine_polymorphic_shapes(
        bytecode(module), enable_shape_assertions=True, validate_static_shapes=True
    )
    return _exported(read_module(refined))


def _exported(module: Any) -> export.Exported:
    """Returns a StableHLO module as a program that JAX can call.

    Raises:
      ValueError: the module has dynamic sizes, or an argument or result is not an array.
    """
    main = main_of(module)
    with module.context:
        # JAX's text may contain CHLO, which portable artifacts do not.
        stablehlo.register_stablehlo_passes()
        PassManager.parse(_WITHOUT_CHLO).run(module.operation)
        main.operation.attributes["sym_name"] = ir.StringAttr.get("main")
        main.operation.attributes["sym_visibility"] = ir.StringAttr.get("public")
    takes, gives = (tuple(map(_aval, kinds)) for kinds in (main.type.inputs, main.type.results))
    nothing, count = (None,), len(takes)
    return export.Exported(
        fun_name="main",
        in_tree=jax.tree.structure((takes, {})),
        in_avals=takes,
        out_tree=jax.tree.structure(gives),
        out_avals=gives,
        _has_named_shardings=False,
        _in_named_shardings=nothing * count,
        _out_named_shardings=nothing * len(gives),
        in_shardings_hlo=nothing * count,
        out_shardings_hlo=nothing * len(gives),
        nr_devices=1,
        platforms=("cpu",),
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=(export.DisabledSafetyCheck.platform(),),
        mlir_module_serialized=portable(module),
        calling_convention_version=export.maximum_supported_calling_convention_version,
        module_kept_var_idx=tuple(range(count)),
        uses_global_constants=False,
        _get_vjp=None,
    )


def _aval(kind: Any) -> Any:
    if not isinstance(kind, ir.RankedTensorType):
        raise ValueError(f"{kind} is not an array")  # noqa: TRY004  # it is about the file
    if not kind.has_static_shape:
        raise ValueError(f"{kind} has a dynamic size; export the program with fixed sizes")
    name = str(kind.element_type)
    complexes = {"complex<f32>": np.complex64, "complex<f64>": np.complex128}
    dtype = ({"bf16": jax.numpy.bfloat16, "i1": np.bool_} | complexes).get(name)
    if dtype is None:
        letters = {"f": "float", "i": "int", "ui": "uint", "si": "int"}
        stem = name.rstrip("0123456789")
        if stem not in letters:
            raise ValueError(f"{kind} has a type that NumPy does not support")
        dtype = np.dtype(f"{letters[stem]}{name[len(stem) :]}")
    return jax.core.ShapedArray(tuple(kind.shape), dtype)


def _widened(exported: export.Exported) -> export.Exported:
    module = read_module(exported.mlir_module_serialized)
    widen_module(module)
    return dataclasses.replace(
        exported,
        in_avals=tuple(map(_wide_aval, exported.in_avals)),
        out_avals=tuple(map(_wide_aval, exported.out_avals)),
        mlir_module_serialized=portable(module),
    )


def _check(wide: export.Exported, values: Sequence[Array], truth: Sequence[Array]) -> TruthCheck:
    """Compares XLA's float64 run with the interpreter, or with XLA at minimal optimisation."""
    module = read_module(wide.mlir_module_serialized)
    second, name = interpreted(module, values), "StableHLO's interpreter"
    if second is None:
        name = "XLA without optimisation"
        run = jax.jit(lambda *given: _call(wide, given)).lower(*values)
        outputs = run.compile(compiler_options=_PLAINLY)(*values)
        second = [np.asarray(value) for value in as_tuple(outputs)]
    return cross_checked(truth, second, routes=("XLA", name), where="the program")


def _wide_aval(aval: Any) -> Any:
    return aval.update(dtype=_wide_dtype(aval.dtype))


def _wide_dtype(dtype: Any) -> Any:
    if jax.numpy.issubdtype(dtype, jax.numpy.complexfloating):
        return np.dtype(np.complex128)
    return np.dtype(np.float64) if jax.numpy.issubdtype(dtype, jax.numpy.floating) else dtype
