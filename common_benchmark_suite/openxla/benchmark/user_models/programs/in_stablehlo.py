"""In a worker: a user's StableHLO module, or a file written by `jax.export`."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import export
from jaxlib.mlir import ir

from openxla.benchmark.artifacts.workload_store import TruthCheck
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.preprocessing import element_type_of, numpy_dtype
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.user_models.cross_check import checked
from openxla.benchmark.user_models.inputs import Array, form_of
from openxla.benchmark.user_models.programs import stablehlo_float64
from openxla.benchmark.user_models.programs.program_model import (
    NotWidenedError,
    ProgramModel,
    in_place_of_truth,
    rounded,
)
from openxla.benchmark.user_models.programs.programs import JAX_EXPORT
from openxla.benchmark.user_models.programs.signature import (
    Argument,
    Signature,
    element_type_or_refuse,
)
from openxla.benchmark.user_models.python_files.loading import told
from openxla.benchmark.user_models.specs import InputSpec
from openxla.benchmark.user_models.wanted import BroughtError

# As little optimisation as XLA supports.
_PLAINLY: dict[str, Any] = {"xla_backend_optimization_level": 0}
_WIDE = frozenset({"f64", "i64"})


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
        try:
            content = self.path.read_bytes()
            if parameters["program"] == JAX_EXPORT.name:
                self._exported = export.deserialize(bytearray(content))
            else:
                self._exported = _exported(stablehlo_float64.read(content))
        except Exception as error:
            kind = parameters["program"]
            raise BroughtError(
                f"{self.path} is not a valid {kind} program: {told(error)}"
            ) from None
        self.check_types(aval.dtype for aval in self._exported.in_avals + self._exported.out_avals)
        self._taken = self.signature()
        if any(argument.element_type in _WIDE for argument in self._taken.arguments):
            jax.config.update("jax_enable_x64", True)
        if any(isinstance(s, str) for argument in self._taken.arguments for s in argument.sizes):
            with contextlib.suppress(BroughtError):  # the user's own arrays determine the sizes
                self._exported = _with_sizes(self._exported, self.inputs())

    def signature(self) -> Signature:
        """Returns the program's signature."""
        if self._taken is not None:
            return self._taken
        names = [f"argument {place}" for place in range(len(self._exported.in_avals))]
        return Signature(
            where=self.path.name,
            arguments=tuple(
                Argument(
                    name=name,
                    element_type=_element_type(name, aval, self.path.name),
                    sizes=tuple(s if isinstance(s, int) else str(s) for s in aval.shape),
                )
                for name, aval in zip(names, self._exported.in_avals, strict=True)
            ),
        )

    def apply(self, _: Any, *inputs: Any) -> Any:
        """Runs the program; can be jitted."""
        return _call(self._exported, inputs)

    def forward(self, *inputs: Any) -> Any:
        """Runs the program."""
        return self.apply((), *inputs)

    def try_out(self, *inputs: Array) -> None:
        """Checks the inputs, and that the program draws no random numbers.

        Raises:
          BroughtError: the program takes other inputs, or draws random numbers.
        """
        super().try_out(*inputs)
        module = stablehlo_float64.read(self._exported.mlir_module_serialized)
        if drawing := stablehlo_float64.random_operators(module):
            raise BroughtError(f"the program draws random numbers ({', '.join(drawing)})")

    def truth_and_reference(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """See `ProgramModel`; both run on XLA's CPU backend, the reference barely optimised."""
        own = self._plain(inputs)
        self.without_float64, truth = None, None
        try:
            wide = _widened(self._exported)
            with jax.enable_x64(True):
                values = [_wide_array(value) for value in inputs]
                truth = [np.asarray(value) for value in as_tuple(_call(wide, values))]
                self.note_check(_check(wide, values, truth))
        except NotWidenedError as error:
            self.without_float64 = f"the program has no float64 run: {error}"
        if truth is None or self.without_float64 is not None:
            return in_place_of_truth(own), self._plain(rounded(inputs))
        return truth, own

    def _plain(self, inputs: Sequence[Array]) -> list[Array]:
        try:
            compiled = jax.jit(self.forward).lower(*inputs).compile(compiler_options=_PLAINLY)
            return [np.asarray(value) for value in as_tuple(compiled(*inputs))]
        except Exception as error:
            forms = ", ".join(map(form_of, inputs))
            raise BroughtError(f"the program cannot run on {forms}: {told(error)}") from error


def create_model(**parameters: Any) -> StableHloModel:
    """Returns the program of a file.

    Raises:
      BroughtError: the file is incomplete, or not a StableHLO program.
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
        stablehlo_float64.bytecode(module),
        enable_shape_assertions=True,
        validate_static_shapes=True,
    )
    return _exported(stablehlo_float64.read(refined))


def _exported(module: Any) -> export.Exported:
    """Returns a StableHLO module as a program that JAX can call.

    Raises:
      ValueError: the module has dynamic sizes, or an argument or result is not an array.
    """
    main = stablehlo_float64.main_of(module)
    with module.context:
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
        platforms=("cpu", "cuda")[:1],
        ordered_effects=(),
        unordered_effects=(),
        disabled_safety_checks=(export.DisabledSafetyCheck.platform(),),
        mlir_module_serialized=stablehlo_float64.portable(module),
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
    dtype = {"bf16": jax.numpy.bfloat16, "i1": np.bool_}.get(name)
    if dtype is None:
        letters = {"f": "float", "i": "int", "ui": "uint", "si": "int"}
        stem = name.rstrip("0123456789")
        if stem not in letters:
            raise ValueError(f"{kind} has a type that NumPy lacks")
        dtype = np.dtype(f"{letters[stem]}{name[len(stem) :]}")
    return jax.core.ShapedArray(tuple(kind.shape), dtype)


def _element_type(name: str, aval: Any, where: str) -> str:
    known = ("f64", "f32", "f16", "bf16", "i8", "i32", "i64", "i1", "u8")
    found = element_type_of(aval.dtype)
    return element_type_or_refuse(name, found if found in known else None, where)


def _widened(exported: export.Exported) -> export.Exported:
    module = stablehlo_float64.read(exported.mlir_module_serialized)
    stablehlo_float64.widen(module)
    return dataclasses.replace(
        exported,
        in_avals=tuple(map(_wide_aval, exported.in_avals)),
        out_avals=tuple(map(_wide_aval, exported.out_avals)),
        mlir_module_serialized=stablehlo_float64.portable(module),
    )


def _check(wide: export.Exported, values: Sequence[Array], truth: Sequence[Array]) -> TruthCheck:
    """Compares XLA's float64 run with the interpreter, or with XLA at minimal optimisation."""
    module = stablehlo_float64.read(wide.mlir_module_serialized)
    second, name = stablehlo_float64.interpreted(module, values), "StableHLO's interpreter"
    if second is None:
        name = "XLA without optimisation"
        run = jax.jit(lambda *given: _call(wide, given)).lower(*values)
        found = run.compile(compiler_options=_PLAINLY)(*values)
        second = [np.asarray(value) for value in as_tuple(found)]
    return checked(truth, second, routes=("XLA", name), where="the program")


def _wide_aval(aval: Any) -> Any:
    if not jax.numpy.issubdtype(aval.dtype, jax.numpy.floating):
        return aval
    return aval.update(dtype=np.dtype(np.float64))


def _wide_array(value: Array) -> Array:
    is_float = jax.numpy.issubdtype(value.dtype, jax.numpy.floating)
    return value.astype(np.float64) if is_float else value
