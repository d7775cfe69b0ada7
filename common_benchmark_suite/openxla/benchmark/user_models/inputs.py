"""In a worker: inputs of a user's model, and checks of its runs and results.

Results of two implementations of the same computation are compared.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from openxla.benchmark import testdata
from openxla.benchmark.artifacts.workload_store import RouteDifference, TruthCheck
from openxla.benchmark.def_types import DefinitionError, Parameters
from openxla.benchmark.models.architectures.base import element_type
from openxla.benchmark.models.model_interfaces import InferenceModel
from openxla.benchmark.models.preprocessing import element_type_of, numpy_dtype
from openxla.benchmark.models.second_input import second_inputs
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.user_models import model_options
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.python_files import call_form
from openxla.benchmark.user_models.python_files.call_form import CallForm, Trees
from openxla.benchmark.user_models.python_files.loading import UserFile, error_line

Array = npt.NDArray[Any]
# Two runs of a model in one process may differ by less: summation order cannot explain more.
_MOST_APART = 1e-2

# Float64 runs of a whole model agree to 1e-9 of the scale in all frameworks (design note 0031). The
# rounding error is 1e-16; sums of a million terms, or a condition number of a million, leave 1e-10.
WIDE_TOLERANCE = 1e-9
# Tolerance for a single ONNX operator. Some float64 kernels hold constants in float32, such as the
# scale of `Attention` (observed: 6e-8), or sum in it (`DeformConv`: 2.2e-7). Smaller differences
# cannot change a verdict, because float32 outputs may be off by at least eight spacings. A
# forgotten epsilon of 1e-5 gives 5e-6.
NODE_TOLERANCE = 2.0**-21
# Tolerance for an operator evaluated in float32 on float32 operands: 1000 spacings. Semantic faults
# (an axis, a coordinate, a length) give errors of order one.
_FLOAT32_TOLERANCE = 1000 * 2.0**-23
# 16-bit results may differ by this number of spacings.
_SPACINGS = 4
EVALUATOR, RUNTIME, UPGRADED = "ONNX's evaluator", "ONNX Runtime", "a newer version of the operator"


class UserModel(InferenceModel):
    """The part of a user's model that is common to all frameworks; subclasses define `forward`.

    Attributes:
      model_parameters: parameters of the case.
      trees: the framework's library for nested structures.
      form: how the model is called; None for positional arrays only.
      example: the arrays returned by the file's `example_inputs()`; None without it.
      file: the user's file, for messages.
    """

    model_parameters: Parameters
    trees: Trees
    form: CallForm | None = None
    example: Sequence[Any] | None = None
    file: Path | None = None

    def take_example(self, brought: UserFile) -> None:
        """Takes inputs and the form of the call from a file, or from named inputs of the case.

        Raises:
          UserModelError: see `call_form.split`.
        """
        self.file = brought.place.file
        given = brought.example_inputs()
        if given is not None:
            form, self.example = self.split(given)
            self.form = None if form.is_plain else form
        if names := model_options.names_in_specs(str(self.model_parameters.get("inputs", ""))):
            self.form = call_form.by_keyword(names, self.trees)

    def split(self, example: Any) -> tuple[CallForm, list[Any]]:
        """Returns the form of a call, and its arrays; see `call_form.split`."""
        return call_form.split(example, call_form.signature_of(self.called()), self.trees)

    def called(self) -> Any:
        """Returns the callable that takes the user's arguments, for its signature."""
        raise NotImplementedError

    def call(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Calls a function on arrays, in the form that the file uses if it fits."""
        if self.form is None or len(inputs) != len(self.form.names):
            return function(*inputs)
        return self.form.call(function, inputs)

    def generate_default_inputs(self) -> Any:
        """Returns the inputs that the case names, or the file's own."""
        written = str(self.model_parameters.get("inputs", ""))
        if written:
            given = [model_options.parse_spec(text) for text in written.split("; ")]
            arrays = {spec.name or i: spec.array(i) for i, spec in enumerate(given)}
            if self.form is None or not given[0].name:
                return list(arrays.values())
            return [arrays[name] for name in self.form.names]
        if self.example is None:
            raise UserModelError(
                "the model has no example inputs; add example_inputs() to its file, or pass --input"
            )
        return self.example

    def generate_inputs(self, input_data: str) -> Any:
        """Returns the raw input; there is only one, so its name does not matter."""
        if input_data in (testdata.INPUT_DATA_SHORT.name, testdata.INPUT_DATA_LONG.name):
            raise DefinitionError(f"your own models do not support input data {input_data}")
        return self.generate_default_inputs()

    def preprocess(self, raw_input: Any) -> tuple[Array, ...]:
        """Returns arrays; 32-bit floats are converted to the model's type."""
        own = numpy_dtype(element_type(self.model_parameters["data_type"]))
        arrays = [self.as_array(value) for value in as_tuple(raw_input)]
        return tuple(a.astype(own) if a.dtype == np.float32 else a for a in arrays)

    def as_array(self, value: Any) -> Array:
        """Returns one of the user's values as an array."""
        return np.asarray(value.numpy() if hasattr(value, "numpy") else value)

    def try_out(self, *inputs: Array) -> None:
        """Runs the model on its inputs, on others, and on its inputs again, before any other use.

        Raises:
          UserModelError: the model raises, modifies its inputs, returns nothing, or returns
            different results in the second run.
        """
        self.run_twice(inputs)

    def run_twice(self, inputs: Sequence[Array]) -> None:
        """Runs the model twice on its inputs, and once in between on others; see `try_out`."""
        forms = ", ".join(map(form_of, inputs))
        if self.form is not None and len(inputs) == len(self.form.names):
            named = zip(self.form.names, inputs, strict=True)
            forms = ", ".join(f"{name} {form_of(value)}" for name, value in named)
        copies = [value.copy() for value in inputs]
        try:
            first = self.outputs_of(inputs, seed=1)
            # A state that the same inputs overwrite shows after other inputs.
            with contextlib.suppress(Exception):
                self.outputs_of(second_inputs(self, inputs), seed=1)
            second = self.outputs_of(inputs, seed=2)
        except Exception as error:
            raise UserModelError(
                f"the model cannot run with inputs {forms}: {error_line(error, self.file)}"
            ) from error
        if any(old.tobytes() != new.tobytes() for old, new in zip(copies, inputs, strict=True)):
            raise UserModelError("the model changes its inputs; make it work on copies")
        if not first:
            raise UserModelError("the model returns no array")
        if any(map(_differ, first, second)):
            raise UserModelError(
                "the model returns different outputs for the same inputs: it draws random numbers "
                "(is dropout still on?) or keeps state"
            )

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of a run; `seed` would change any random numbers in it."""
        raise NotImplementedError


def form_of(value: Array) -> str:
    """Returns the type and shape as a user writes them, e.g. `f32[1,3]`."""
    return f"{element_type_of(value.dtype)}[{','.join(map(str, value.shape))}]"


def follows_interface(model: Any) -> bool:
    """Returns whether an object makes its own inputs, like an `InferenceModel`."""
    names = ("generate_default_inputs", "preprocess", "forward")
    return all(callable(getattr(model, name, None)) for name in names)


def with_inputs(model: Any, parameters: Parameters, wrap: Callable[[Any], UserModel]) -> Any:
    """Returns the model wrapped, or unchanged if it makes its own inputs and none were given."""
    if follows_interface(model) and not parameters.get("inputs"):
        return model
    return wrap(model)


def _differ(one: Array, other: Array) -> bool:
    if one.shape != other.shape or (one.dtype.kind not in "fciub" and one.dtype.name != "bfloat16"):
        return True
    left, right = (np.asarray(value, np.float64) for value in (one, other))
    scale = np.abs(left).max(initial=0.0)
    return bool(np.abs(left - right).max(initial=0.0) > _MOST_APART * scale)


def difference(
    first: Sequence[Any], second: Sequence[Any], *, tolerance: float = WIDE_TOLERANCE
) -> float | None:
    """Returns the relative difference of results if it exceeds rounding, else None.

    The difference is relative to the scale. It is infinite if shapes or kinds differ, if NaN or
    infinity occur in different places, or if integers are not equal.

    Args:
      first: arrays in order.
      second: the same arrays from another implementation.
      tolerance: tolerance in float64; results in a narrower type use the tolerance of that type.
    """
    if len(first) != len(second):
        return np.inf
    arrays = [tuple(map(np.asarray, pair)) for pair in zip(first, second, strict=True)]
    return max((_error(one, other, tolerance) for one, other in arrays), default=0.0) or None


def is_float(value: Any) -> bool:
    """Returns whether a value is an array of real floating-point numbers."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and (dtype.kind == "f" or dtype.name == "bfloat16")


def cross_checked(
    truth: Sequence[Array], second: Sequence[Array] | None, *, routes: tuple[str, str], where: str
) -> TruthCheck:
    """Compares a float64 truth with the result of a second route, for a program as a whole.

    Args:
      truth: outputs in float64.
      second: outputs of the second route; None if it is not available.
      routes: names of the two routes.
      where: what is evaluated, e.g. `the program`.
    """
    if second is None:
        return TruthCheck(routes=routes[:1], unchecked=(where,))
    for index, (one, other) in enumerate(zip(truth, second, strict=True)):
        if (error := difference([one], [other])) is not None:
            node = f"output {index}"
            doubt = RouteDifference(operator=where, node=node, routes=routes, error=finite(error))
            return TruthCheck(routes=routes, in_doubt=(doubt,))
    return TruthCheck(routes=routes)


def finite(error: float) -> float | None:
    """Returns an error as stored in a result: None if it is infinite."""
    return error if np.isfinite(error) else None


def _error(one: Array, other: Array, tolerance: float) -> float:
    if one.shape != other.shape:
        return np.inf
    kinds = {"f" if is_float(value) else value.dtype.kind for value in (one, other)}
    if kinds == {"c"}:
        one, other = (np.stack([value.real, value.imag]) for value in (one, other))
    elif kinds != {"f"}:
        is_same = (len(kinds) == 1 or kinds <= {"i", "u"}) and np.array_equal(one, other)
        return 0.0 if is_same else np.inf
    allowed = max(tolerance, *(_rounding_of(value) for value in (one, other)))
    a, b = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        off = np.abs(a - b)
    if not np.isfinite(off).all():
        inside = np.isfinite(a)
        ends_agree = np.array_equal(a[~inside], b[~inside], equal_nan=True)
        if not ends_agree or not np.array_equal(inside, np.isfinite(b)):
            return np.inf
        a, off = a[inside], off[inside]
    scale, worst = float(np.abs(a).max(initial=0.0)), float(off.max(initial=0.0))
    if worst <= allowed * scale:
        return 0.0
    return worst / scale if scale else np.inf


def _rounding_of(value: Array) -> float:
    """Returns the rounding error allowed for an operator in this type; 0 for float64."""
    if value.dtype in (np.float64, np.complex128):
        return 0.0
    return max(_FLOAT32_TOLERANCE, _SPACINGS * float(ml_dtypes.finfo(value.dtype).eps))
