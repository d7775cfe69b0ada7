"""In a worker: a user's model, trained with the loss in its file."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.training import STEPS, optimizer_of
from openxla.benchmark.training.models import TrainableModel
from openxla.benchmark.user_models.inputs import UserModel, form_of
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.python_files.call_form import CallForm
from openxla.benchmark.user_models.python_files.loading import UserFile

# A gradient that is zero except for rounding changes a weight by less than this share of the
# learning rate. AdamW divides by the size of the gradient, so rounding has a larger effect.
_ROUNDING = {"adamw": 1e-3, "sgd": 1e-7}


@attrs.frozen
class FileLoss:
    """`loss(model, *inputs)` of a user's file, and the form of its inputs."""

    function: Callable[..., Any]
    form: CallForm | None = None

    def of(self, model: Any, batch: Sequence[Any]) -> Any:
        """Returns the loss of a batch.

        Raises:
          UserModelError: the result is not one number.
        """
        called = functools.partial(self.function, model)
        value = called(*batch) if self.form is None else self.form.call(called, batch)
        shape = getattr(value, "shape", None)
        if shape is None or tuple(shape):
            form = type(value).__name__ if shape is None else f"an array of shape {list(shape)}"
            raise UserModelError(f"loss(model, *inputs) returned {form}, expected one number")
        return value


class OwnTrainingModel(UserModel, TrainableModel):
    """Takes training steps with `loss(model, *inputs)` of the user's file.

    Inputs: from `example_batch()`, each with a leading axis of `STEPS` batches. Outputs: see
    `TrainingArchitecture`. Dropout is off and batch statistics are frozen, as in the suite's own
    training cases.
    """

    file_loss: FileLoss

    def take_loss(self, brought: UserFile, parameters: Parameters, loss: Any = None) -> None:
        """Takes loss, optimizer and batches from a file.

        Args:
          brought: the file.
          parameters: parameters of the case.
          loss: used if the file has none.

        Raises:
          UserModelError: the loss is missing, or the batches have different forms.
        """
        self.model_parameters = parameters
        self.file = brought.place.file
        function = brought.function("loss") or loss
        if function is None:
            raise UserModelError(f"{self.file.name} has no loss(model, *inputs)")
        self.file_loss = FileLoss(function)
        self.optimizer = optimizer_of(parameters)
        self.unchanged = _ROUNDING[self.optimizer.name] * self.optimizer.learning_rate
        batches = [self.split(batch) for batch in brought.example_batches(STEPS)]
        if not batches[0][0].is_plain:
            self.file_loss = FileLoss(function, batches[0][0])
        arrays = [[self.as_array(value) for value in values] for _, values in batches]
        forms = [", ".join(map(form_of, values)) for values in arrays]
        if different := next((form for form in forms if form != forms[0]), None):
            raise UserModelError(
                f"example_batch() returned {forms[0]} first and then {different}; return batches "
                "of the same shapes"
            )
        self.example = [np.stack(values) for values in zip(*arrays, strict=True)]

    def called(self) -> Any:
        """Returns the loss as a function of the batch."""
        return functools.partial(self.file_loss.function, None)
