"""Training in TensorFlow: a gradient tape, and in-place updates of variables."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import model_interfaces
from openxla.benchmark.models.tf.keras_model import variables_of
from openxla.benchmark.models.tf.operations import at_least_float32, differentiable
from openxla.benchmark.training import Optimizer, models
from openxla.benchmark.training.architecture import MASKED, NEXT
from openxla.benchmark.training.models import Draw


class TrainableModel(models.TrainableModel):
    """Base of models that TensorFlow trains."""

    def named_variables(self, network: Any) -> Mapping[str, tf.Variable]:
        """Returns the trained variables of a network, by name."""
        raise NotImplementedError

    def loss(self, *batch: Any) -> Any:
        """Returns the loss of a batch."""
        raise NotImplementedError

    def run(self, compiled: Callable[..., Any] = lambda step: step) -> "Run":
        """Returns a run that starts from the network's current weights.

        Args:
          compiled: compiles the step.
        """
        return Run(self, compiled)

    def forward(self, *inputs: Any) -> Any:
        """Takes all steps, then restores the weights."""
        run = self.run()
        steps = [run.step(*batch) for batch in self.batches([*map(tf.convert_to_tensor, inputs)])]
        outputs = run.outputs(steps)
        run.start()
        return outputs


class TrainingModel(TrainableModel, models.TrainingModel):
    """Inputs and outputs: see `TrainingArchitecture`."""

    def __init__(self, parameters: Parameters) -> None:
        self.set_training("tf", parameters)

    @property
    def layer(self) -> Any:
        """The network's layer, which holds the variables."""
        return self.network.layer

    @property
    def variables(self) -> Any:
        """The network's variables, under the name that backends look for."""
        return self.network.layer.variables

    def as_float64(self) -> "TrainingModel":
        """Returns a copy that computes in float64, see `KerasModel.as_float64`."""
        wide = copy.copy(self)
        wide.network = wide.masters = self.masters.as_float64()
        return wide

    def named_variables(self, network: Any) -> Mapping[str, tf.Variable]:
        """See `TrainableModel`."""
        names = network.weight_names
        by_name = {
            names["/".join(map(str, path))]: variable.value
            for path, variable in variables_of(network.layer)
        }
        return {name: by_name[name] for name in self.trained}

    def loss(self, *batch: Any) -> Any:
        """Returns the mean cross-entropy of the predictions."""
        inputs, labels = self.split(batch)
        logits = self.network.forward(*inputs)
        if self.task == MASKED:
            words = tf.convert_to_tensor(self.layer.words)
            logits = tf.matmul(logits, words, transpose_b=True) * logits.shape[-1] ** -0.5
        elif self.task == NEXT:
            logits, labels = logits[:, :-1], inputs[0][:, 1:]
        logits = tf.cast(logits, at_least_float32(logits.dtype))
        counted = labels >= 0
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            tf.where(counted, labels, 0), logits
        )
        weight = tf.cast(counted, losses.dtype)
        return tf.reduce_sum(losses * weight) / tf.reduce_sum(weight)


class Run(model_interfaces.TrainingRun):
    """Trains the network's variables in place.

    If the network computes in bf16, its variables are copies of the master weights, made after each
    update, and its gradients are widened for the optimizer.
    """

    def __init__(self, model: TrainableModel, compiled: Callable[..., Any]) -> None:
        self._model = model
        self._weights = model.named_variables(model.masters)
        self._used = model.named_variables(model.network)
        self._first = {name: tf.identity(value) for name, value in self._weights.items()}
        moments = 1 if model.optimizer.name == "sgd" else 2
        self._slots = [
            [tf.Variable(tf.zeros_like(value)) for _ in range(moments)]
            for value in self._weights.values()
        ]
        self._count = tf.Variable(tf.zeros((), tf.int32))
        self._step = compiled(self._one_step)

    def start(self) -> None:
        """Restores the initial weights, and zeroes the optimizer's slots."""
        for name, value in self._first.items():
            self._weights[name].assign(value)
        self._refresh()
        for slots in self._slots:
            for slot in slots:
                slot.assign(tf.zeros_like(slot))
        self._count.assign(0)
        if tf.config.get_visible_devices("GPU"):  # no step may wait for this
            tf.test.experimental.sync_devices()

    def step(self, *batch: Any) -> tuple[Any, Any]:
        """See `TrainingRun.step`."""
        loss, norm = self._step(*batch)
        return loss, norm

    def weights(self) -> Mapping[str, Any]:
        """See `TrainingRun.weights`."""
        return _on_host(self._weights)

    def outputs(self, steps: Sequence[tuple[Any, Any]]) -> tuple[tf.Tensor, ...]:
        """Returns the outputs, given losses and norms of all steps."""
        floats = [(float(loss), float(norm)) for loss, norm in steps]
        outputs = self._model.outputs(floats, _on_host(self._first), self.weights())
        return tuple(map(tf.convert_to_tensor, outputs))

    def _one_step(self, *batch: Any) -> tuple[Any, Any]:
        loss, gradients = self.gradients(*batch)
        return loss, self.update(*gradients)

    def gradients(self, *batch: Any) -> tuple[Any, list[Any]]:
        """Returns the loss of a batch, and its gradients in the order of the weights."""
        used, weights = list(self._used.values()), list(self._weights.values())
        with tf.GradientTape() as tape, differentiable():
            loss = self._model.loss(*batch)
        # Gradients of gathered rows are `IndexedSlices`.
        return loss, [
            tf.cast(tf.convert_to_tensor(gradient), weight.dtype)
            for weight, gradient in zip(weights, tape.gradient(loss, used), strict=True)
        ]

    def given(self, draw: Draw, steps: int) -> list[tf.Tensor]:
        """Assigns artificial weights and moments after `steps` steps; returns such gradients."""
        self._count.assign(steps)
        names = ("momentum",) if self._model.optimizer.name == "sgd" else ("first", "second")
        gradients = []
        for (name, weight), slots in zip(self._weights.items(), self._slots, strict=True):
            shape = tuple(weight.shape)
            weight.assign(draw("weight", name, shape))
            for slot, kind in zip(slots, names, strict=True):
                slot.assign(draw(kind, name, shape))
            gradients.append(tf.convert_to_tensor(draw("gradient", name, shape)))
        return gradients

    def update(self, *gradients: Any) -> Any:
        """Updates the weights; returns the gradient norm."""
        weights = self._weights.values()
        self._count.assign_add(1)
        for weight, gradient, slots in zip(weights, gradients, self._slots, strict=True):
            update(self._model.optimizer, weight, gradient, slots, self._count)
        self._refresh()
        return tf.linalg.global_norm(gradients)

    def _refresh(self) -> None:
        if self._model.network is not self._model.masters:
            for used, weight in zip(self._used.values(), self._weights.values(), strict=True):
                used.assign(tf.cast(weight, used.dtype))


def update(optimizer: Optimizer, weight: Any, gradient: Any, slots: list[Any], count: Any) -> None:
    """Updates a weight in place, with the formulas of `torch.optim`."""
    rate, decay = optimizer.learning_rate, optimizer.weight_decay
    if optimizer.name == "sgd":
        [momentum] = slots
        momentum.assign(optimizer.momentum * momentum + (gradient + decay * weight))
        weight.assign_sub(rate * momentum)
        return
    (beta1, beta2), (first, second) = optimizer.betas, slots
    steps = tf.cast(count, weight.dtype)
    first.assign(beta1 * first + (1 - beta1) * gradient)
    second.assign(beta2 * second + (1 - beta2) * gradient * gradient)
    # Computing 1 - beta ** steps directly would lose precision in float32.
    correction1, correction2 = (-tf.math.expm1(steps * np.log(beta)) for beta in (beta1, beta2))
    root = tf.sqrt(second) / tf.sqrt(correction2) + optimizer.epsilon
    weight.assign(weight * (1 - rate * decay) - rate / correction1 * (first / root))


def _on_host(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.array(value.numpy()) for name, value in weights.items()}


create_model = models.creator(TrainingModel)
