"""Common parts of training models: batches, outputs, and the check of a single update.

The first steps from a checkpoint hide parts of an optimizer. AdamW corrects its moments for their
start at zero, which hides the decay of the second moment. Rounding in bf16 hides a learning rate
that is wrong by a few per cent. So one more update starts from typical moments of a late step, with
known gradients, and is compared with its result in float64. See `training.Optimizer` for the
formulas.
"""

import hashlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import model_interfaces, shared_model
from openxla.benchmark.training import STEPS, Optimizer, optimizer_of
from openxla.benchmark.training.architecture import (
    ARCHITECTURE,
    NEXT,
    is_mixed,
    judged,
    network_of,
    task_of,
    trained,
)

Floats = npt.NDArray[np.floating]
# Gives the values of a kind (`weight`, `gradient`, or a slot of the optimizer) for a weight.
Draw = Callable[[str, str, Sequence[int]], Floats]

# By then the bias of AdamW's first moment is gone, but the second moment still has one.
STEPS_BEFORE = 999
# Length of the pattern that fills a weight; an update treats all elements alike.
_PATTERN = 4096
# Number of elements compared in each weight.
COMPARED = 1024
_SCALES = {"weight": 0.05, "gradient": 1e-3, "first": 1e-3, "second": 1e-6, "momentum": 1e-3}
# Tolerance relative to the change, for square roots and quotients of a device, and spacings for
# rounding of the weight itself. Epsilon makes a difference of 1e-2.
_OF_CHANGE, _SPACINGS = 1e-4, 4

Model = TypeVar("Model", bound="TrainingModel")
Array = npt.NDArray[Any]

# Smaller changes count as zero; real changes have logarithms far from this one's.
_UNCHANGED = 1e-12


def draw_update(kind: str, name: str, shape: Sequence[int]) -> Floats:
    """Returns float32 numbers of a shape, the same ones for the same kind and name.

    Gradients are exact in bf16, in which a network may compute them.
    """
    return np.resize(_pattern(kind, name), tuple(shape))


def expected_update(optimizer: Optimizer, name: str, count: int) -> tuple[Floats, Floats]:
    """Returns the first elements of a weight before and after the update, in float64."""

    def given(kind: str) -> Floats:
        return draw_update(kind, name, (count,)).astype(np.float64)

    rate, decay = optimizer.learning_rate, optimizer.weight_decay
    weight, gradient = given("weight"), given("gradient")
    if optimizer.name == "sgd":
        momentum = optimizer.momentum * given("momentum") + (gradient + decay * weight)
        return weight, weight - rate * momentum
    (beta1, beta2), steps = optimizer.betas, STEPS_BEFORE + 1
    first = beta1 * given("first") + (1 - beta1) * gradient
    second = beta2 * given("second") + (1 - beta2) * gradient**2
    root = np.sqrt(second / (1 - beta2**steps)) + optimizer.epsilon
    return weight, weight * (1 - rate * decay) - rate * first / (1 - beta1**steps) / root


def worst_update_error(optimizer: Optimizer, after: Mapping[str, Floats]) -> tuple[float, str]:
    """Returns the largest error of weights after the update, and the weight that has it.

    Args:
      optimizer: with the right hyper-parameters.
      after: the first `COMPARED` elements of each weight, in the order of its layout.

    Returns:
      The error relative to the tolerance, above 1 for a wrong update; infinity for NaN.
    """
    worst = (0.0, "")
    for name, weights in after.items():
        before, expected = expected_update(optimizer, name, weights.size)
        change = np.abs(expected - before)
        allowed = _OF_CHANGE * (change + np.sqrt(np.mean(change**2)))
        allowed += _SPACINGS * np.finfo(np.float32).eps * np.abs(expected)
        errors = np.abs(weights.astype(np.float64).ravel() - expected) / allowed
        share = float(np.max(errors, initial=0.0))
        worst = max(worst, (np.inf if np.isnan(share) else share, name))
    return worst


def _pattern(kind: str, name: str) -> Floats:
    seed = int.from_bytes(hashlib.sha256(f"{kind}/{name}".encode()).digest()[:8])
    random = np.random.Generator(np.random.Philox(seed))
    if kind == "second":
        return (_SCALES[kind] * random.uniform(0.25, 1, _PATTERN)).astype(np.float32)
    values = (_SCALES[kind] * random.standard_normal(_PATTERN)).astype(np.float32)
    return values.astype(ml_dtypes.bfloat16).astype(np.float32) if kind == "gradient" else values


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
        results: Sequence[tuple[Any, Any]],
        start: Mapping[str, Any],
        end: Mapping[str, Any],
        xp: Any = np,
    ) -> tuple[Any, ...]:
        """Returns the outputs of a run, in the type of the weights.

        Args:
          results: loss and gradient norm of each step.
          start: the trained weights before the run, in any layout, by name.
          end: the trained weights after the run.
          xp: `numpy`, or `jax.numpy` for traced weights.
        """
        dtype = next(iter(start.values())).dtype
        steps = xp.stack([xp.stack([xp.asarray(value) for value in pair]) for pair in results])
        pairs = [(start[n], end[n]) for n in self.judged]
        outputs = digest(pairs, self.optimizer, xp, self.unchanged)
        return tuple(value.astype(dtype) for value in (steps, *outputs))


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
        module = f"openxla.benchmark.models.{framework}.{name}"
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
