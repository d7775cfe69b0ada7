"""Common parts of training models in all frameworks: batches and outputs."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import model_interfaces, shared_model
from openxla.benchmark.training.architecture import (
    ARCHITECTURE,
    NEXT,
    is_mixed,
    judged,
    network_of,
    task_of,
    trained,
)
from openxla.benchmark.training.optimizers import STEPS, Optimizer, optimizer_of

Model = TypeVar("Model", bound="TrainingModel")
Array = npt.NDArray[Any]

# Smaller changes count as none; the logarithm of this is far from those of real changes.
_UNCHANGED = 1e-12


class TrainableModel(model_interfaces.TrainingModel):
    """Base of all trained models, including users' models.

    Attributes:
      optimizer: optimizer with hyper-parameters.
      trained: names of the trained weights, in the checkpoint's order.
      judged: names of the weights in the digest.
      network: the framework's inference model, on the same checkpoint.
      masters: the same model in float32, whose weights are updated; the network itself if it
        computes in float32.
      unchanged: root mean square of a change below which a weight counts as unchanged.
    """

    optimizer: Optimizer
    trained: list[str]
    judged: list[str]
    network: Any
    masters: Any
    unchanged: float = _UNCHANGED

    def batches(self, inputs: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Returns the arguments of each step."""
        return [tuple(value[step] for value in inputs) for step in range(STEPS)]

    def outputs(
        self,
        told: Sequence[tuple[Any, Any]],
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        xp: Any = np,
    ) -> tuple[Any, ...]:
        """Returns the outputs of a run, in the type of the weights.

        Args:
          told: loss and gradient norm of each step.
          start: the trained weights before the run, in any layout, by name.
          end: the trained weights after the run.
          xp: `numpy`, or `jax.numpy` for traced weights.
        """
        dtype = next(iter(start.values())).dtype
        steps = xp.stack([xp.stack([xp.asarray(value) for value in pair]) for pair in told])
        pairs = [(start[n], end[n]) for n in self.judged]
        found = digest(pairs, self.optimizer, xp, self.unchanged)
        return tuple(value.astype(dtype) for value in (steps, *found))


class TrainingModel(shared_model.ArchitectureModel, TrainableModel):
    """A network of the suite, with the loss of its task.

    Attributes:
      task: task of the network.
    """

    task: str

    def set_training(self, framework: str, parameters: Parameters) -> None:
        """Makes the network in a framework, given by its folder: `pt`, `jax` or `tf`."""
        self.architecture = ARCHITECTURE
        self.model_parameters = parameters
        self.optimizer = optimizer_of(parameters)
        self.task = task_of(parameters)
        self.trained = trained(parameters)
        self.judged = judged(parameters)
        name = network_of(parameters).name
        module = f"openxla.benchmark.models.{framework}.{name}.{name}_model"
        given = {key: value for key, value in parameters.items() if key != "train"}
        create = importlib.import_module(module).create_model
        self.network = self.masters = create(**{**given, "data_type": "fp32"})
        # In JAX, a pure function computes in the type of the weights passed to it.
        if is_mixed(parameters) and framework != "jax":
            self.network = create(**given)
        self.checkpoint: Path = self.network.checkpoint

    def split(self, batch: Sequence[Any]) -> tuple[Sequence[Any], Any]:
        """Returns the network's inputs and the labels; None if the inputs are the labels."""
        return (batch, None) if self.task == NEXT else (batch[:-1], batch[-1])


def digest(
    weights: Sequence[tuple[Any, Any]],
    optimizer: Optimizer,
    xp: Any = np,
    unchanged: float = _UNCHANGED,
) -> tuple[Any, Any]:
    """Returns the change of each weight, [weights, 2] and [weights], independent of layout.

    For a weight w that has changed by d, the first output is the logarithm of d's root mean square,
    so that relative differences count alike in all layers, and the mean of d over its root mean
    square, which has a sign. The second output is d's projection on w over |w|, over learning rate
    and number of steps. It shows weight decay, which is small compared with the step itself. It
    grows with |w|, whereas its rounding error does not, so it is more sensitive for large weights.

    Args:
      weights: pairs before and after.
      optimizer: the optimizer used.
      xp: `numpy` or `jax.numpy`.
      unchanged: root mean square of d below which a weight counts as unchanged.
    """
    rate = optimizer.learning_rate * STEPS
    rows, projections = [], []
    for before, after in weights:
        w, d = before, after - before
        if xp is np:  # float64 for sums of many numbers
            w, d = before.astype(np.float64), after.astype(np.float64) - before.astype(np.float64)
        size = xp.maximum(xp.sqrt(xp.mean(d * d)), unchanged)
        projections.append(xp.sum(w * d) / (xp.sqrt(xp.sum(w * w)) + _UNCHANGED) / rate)
        rows.append(xp.stack([xp.log(size), xp.mean(d) / size]))
    return xp.stack(rows), xp.stack(projections)


def creator(build: Callable[[Parameters], Model]) -> Callable[..., Model]:
    """Returns the `create_model` of a framework's module; see `shared_model.creator`."""
    return shared_model.creator(ARCHITECTURE, build)
