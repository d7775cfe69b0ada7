"""In a worker: the inputs of a brought model, and whether it can be run on them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from openxla.benchmark import testdata
from openxla.benchmark.brought import specs
from openxla.benchmark.brought.loading import told
from openxla.benchmark.brought.wanted import BroughtError
from openxla.benchmark.def_types import DefinitionError, Parameters
from openxla.benchmark.models.architectures.base import element_type
from openxla.benchmark.models.model_interfaces import InferenceModel
from openxla.benchmark.models.preprocessing import element_type_of, numpy_dtype
from openxla.benchmark.models.shared_model import as_tuple

Array = npt.NDArray[Any]
# Two runs of one model in one process: more than sums in another order can do.
_MOST_APART = 1e-2


class BroughtModel(InferenceModel):
    """What a brought model is in any framework; subclasses hold it and define `forward`.

    Attributes:
      model_parameters: of the case.
      example: what the file's `example_inputs()` gives; None without.
      file: of the user, for messages.
    """

    model_parameters: Parameters
    example: Any
    file: Path | None

    def generate_default_inputs(self) -> Any:
        """Returns the inputs that the case names, or the file's own."""
        written = str(self.model_parameters.get("inputs", ""))
        if written:
            return [specs.parse(text).array(i) for i, text in enumerate(written.split("; "))]
        if self.example is None:
            raise BroughtError(
                "the model has no inputs; add example_inputs() to its file, or pass --input"
            )
        return self.example

    def generate_inputs(self, input_data: str) -> Any:
        """Returns the raw input; there is one, whatever it is called."""
        if input_data in (testdata.INPUT_DATA_SHORT.name, testdata.INPUT_DATA_LONG.name):
            raise DefinitionError(f"your own models have no input data {input_data}")
        return self.generate_default_inputs()

    def preprocess(self, raw_input: Any) -> tuple[Array, ...]:
        """Returns arrays; numbers of 32 bits in the model's own type."""
        own = numpy_dtype(element_type(self.model_parameters["data_type"]))
        arrays = [self.as_array(value) for value in as_tuple(raw_input)]
        return tuple(a.astype(own) if a.dtype == np.float32 else a for a in arrays)

    def as_array(self, value: Any) -> Array:
        """Returns one of the user's values as an array."""
        return np.asarray(value)

    def try_out(self, *inputs: Array) -> None:
        """Runs the model twice on its inputs, before anything is made by it.

        Raises:
          BroughtError: it raises, changes its inputs, gives nothing, or gives something else when
            it is run again.
        """
        self.run_twice(inputs)

    def run_twice(self, inputs: Sequence[Array]) -> None:
        """Runs the model twice on its inputs; see `try_out`."""
        forms = ", ".join(form_of(value) for value in inputs)
        kept = [value.copy() for value in inputs]
        try:
            first, second = (self.outputs_of(inputs, seed=seed) for seed in (1, 2))
        except Exception as error:
            raise BroughtError(
                f"the model cannot run on {forms}: {told(error, self.file)}"
            ) from error
        if any(old.tobytes() != new.tobytes() for old, new in zip(kept, inputs, strict=True)):
            raise BroughtError("the model changes its inputs; let it work on copies")
        if not first:
            raise BroughtError("the model returns no array")
        if any(map(_apart, first, second)):
            raise BroughtError(
                "the model returns different outputs for the same inputs: it draws random numbers "
                "(is dropout still on?) or keeps state"
            )

    def outputs_of(self, inputs: Sequence[Array], *, seed: int) -> list[Array]:
        """Returns the outputs of a run after which random numbers would differ by the seed."""
        raise NotImplementedError


def form_of(value: Array) -> str:
    """Returns type and sizes as a user writes them, e.g. `f32[1,3]`."""
    return f"{element_type_of(value.dtype)}[{','.join(map(str, value.shape))}]"


def follows_interface(model: Any) -> bool:
    """Tells whether an object makes its own inputs, as an `InferenceModel` does."""
    names = ("generate_default_inputs", "preprocess", "forward")
    return all(callable(getattr(model, name, None)) for name in names)


def with_inputs(model: Any, parameters: Parameters, wrap: Callable[[Any], BroughtModel]) -> Any:
    """Returns the model wrapped, or as it is where it makes its own inputs and none were given."""
    if follows_interface(model) and not parameters.get("inputs"):
        return model
    return wrap(model)


def _apart(one: Array, other: Array) -> bool:
    if one.shape != other.shape or (one.dtype.kind not in "fciub" and one.dtype.name != "bfloat16"):
        return True
    left, right = (np.asarray(value, np.float64) for value in (one, other))
    scale = np.abs(left).max(initial=0.0)
    return bool(np.abs(left - right).max(initial=0.0) > _MOST_APART * scale)
