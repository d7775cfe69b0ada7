"""Training in JAX: a pure step that maps a state to the next."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import model_interfaces
from openxla.benchmark.training import Optimizer, models
from openxla.benchmark.training.architecture import MASKED, NEXT, is_mixed
from openxla.benchmark.training.models import Draw

# Trained weights by name, the optimizer's slots for each, and the number of steps taken.
State = dict[str, Any]


class TrainableModel(models.TrainableModel):
    """Base of models that JAX trains.

    Attributes:
      params: the network's weights as a tree of mappings.
      paths: path of each weight in the tree, by name.
    """

    params: Any
    paths: Mapping[str, tuple[Any, ...]]

    @property
    def _slots(self) -> tuple[str, ...]:
        return ("momentum",) if self.optimizer.name == "sgd" else ("first", "second")

    def loss(self, weights: Mapping[str, Any], params: Any, *batch: Any) -> Any:
        """Returns the loss of a batch; pure.

        Args:
          weights: the trained weights, by name.
          params: all weights of the network, in which `weights` are replaced.
          *batch: inputs and labels.
        """
        raise NotImplementedError

    def state(self, params: Any) -> State:
        """Returns the state before the first step."""
        flat = nnx.traversals.flatten_mapping(params)
        weights = {name: flat[self.paths[name]] for name in self.trained}
        zeros = {slot: jax.tree.map(jnp.zeros_like, weights) for slot in self._slots}
        return {"weights": weights, "count": jnp.zeros((), jnp.int32), **zeros}

    def step(self, state: State, params: Any, *batch: Any) -> tuple[State, tuple[Any, Any]]:
        """Takes a step; pure, can be jitted.

        Args:
          state: state before the step.
          params: the network's weights; the untrained ones are used.
          *batch: inputs and labels.

        Returns:
          The state after the step; loss and gradient norm.
        """
        loss, gradients = jax.value_and_grad(self.loss)(state["weights"], params, *batch)
        state, norm = self.update(state, gradients)
        return state, (loss, norm)

    def update(self, state: State, gradients: Any) -> tuple[State, Any]:
        """Returns the state after an update, and the gradient norm; pure."""
        norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(gradients)))
        return update(self.optimizer, state, gradients), norm

    def given(self, draw: Draw, steps: int) -> tuple[State, Any]:
        """Returns an artificial state after `steps` steps, and artificial gradients."""

        def make(kind: str) -> dict[str, Any]:
            return {name: jnp.asarray(draw(kind, name, shape)) for name, shape in shapes.items()}

        flat = nnx.traversals.flatten_mapping(self.params)
        shapes = {name: flat[self.paths[name]].shape for name in self.trained}
        slots = {slot: make(slot) for slot in self._slots}
        state = {"weights": make("weight"), "count": jnp.asarray(steps, jnp.int32), **slots}
        return state, make("gradient")

    def apply(self, params: Any, *inputs: Any) -> Any:
        """Takes all steps with the given weights."""
        first = state = self.state(params)
        results = []
        for batch in self.batches(inputs):
            state, of_step = self.step(state, params, *batch)
            results.append(of_step)
        return self.outputs(results, first["weights"], state["weights"], jnp)

    def forward(self, *inputs: Any) -> Any:
        """Takes all steps with the network's own weights."""
        return self.apply(self.params, *map(jnp.asarray, inputs))


class TrainingModel(TrainableModel, models.TrainingModel):
    """Inputs and outputs: see `TrainingArchitecture`."""

    def __init__(self, parameters: Parameters) -> None:
        self.set_training("jax", parameters)
        self.params = self.masters.params
        self._mixed = is_mixed(parameters)
        self.paths = {name: path for path, name in self.network.weight_names.items()}

    def loss(self, weights: Mapping[str, Any], params: Any, *batch: Any) -> Any:
        """Returns the mean cross-entropy of the predictions."""
        flat = dict(nnx.traversals.flatten_mapping(params))
        flat |= {self.paths[name]: value for name, value in weights.items()}
        if self._mixed:
            flat = {path: _narrowed(value) for path, value in flat.items()}
        inputs, labels = self.split(batch)
        logits = self.network.apply(nnx.traversals.unflatten_mapping(flat), *inputs)
        if self.task == MASKED:
            words = flat[self.paths["embeddings.word_embeddings.weight"]]
            logits = logits @ words.T * logits.shape[-1] ** -0.5
        elif self.task == NEXT:
            logits, labels = logits[:, :-1], inputs[0][:, 1:]
        logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
        counted = labels >= 0
        safe_labels = jnp.where(counted, labels, 0)[..., None]
        right = jnp.take_along_axis(jax.nn.log_softmax(logits), safe_labels, axis=-1)[..., 0]
        return -jnp.sum(jnp.where(counted, right, 0)) / jnp.sum(counted)


class Run(model_interfaces.TrainingRun):
    """Runs a compiled step repeatedly; the step may reuse the memory of the state."""

    def __init__(
        self, model: TrainableModel, step: Callable[..., Any], first: State, params: Any
    ) -> None:
        self._model, self._step, self._first, self._params = model, step, first, params
        self._state: State = {}
        self.start()

    def start(self) -> None:
        """Copies the first state."""
        self._state = jax.block_until_ready(jax.tree.map(jnp.copy, self._first))

    def step(self, *batch: Any) -> tuple[Any, Any]:
        """See `TrainingRun.step`."""
        self._state, result = self._step(self._state, self._params, *batch)
        return result  # type: ignore[no-any-return]

    def pending(self) -> Any:
        """Returns the values that are complete once the last step has finished."""
        return self._state

    def weights(self) -> Mapping[str, Any]:
        """See `TrainingRun.weights`."""
        return _on_host(self._state["weights"])

    def outputs(self, results: Sequence[tuple[Any, Any]]) -> tuple[Any, ...]:
        """Returns the outputs, given losses and norms of all steps."""
        floats = [(float(loss), float(norm)) for loss, norm in results]
        return self._model.outputs(floats, _on_host(self._first["weights"]), self.weights())


def update(optimizer: Optimizer, state: State, gradients: Any) -> State:
    """Returns the state after an update, with the formulas of `torch.optim`."""
    rate, decay, weights = optimizer.learning_rate, optimizer.weight_decay, state["weights"]
    count = state["count"] + 1
    if optimizer.name == "sgd":
        momentum = jax.tree.map(
            lambda m, g, w: optimizer.momentum * m + (g + decay * w),
            state["momentum"], gradients, weights,
        )  # fmt: skip
        after = jax.tree.map(lambda w, m: w - rate * m, weights, momentum)
        return {"weights": after, "count": count, "momentum": momentum}
    beta1, beta2 = optimizer.betas
    first = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, state["first"], gradients)
    second = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, state["second"], gradients)

    def adamw(w: Any, m: Any, v: Any) -> Any:
        steps = count.astype(w.dtype)
        # Computing 1 - beta ** steps directly would lose precision in float32.
        correction1 = -jnp.expm1(steps * np.log(beta1))
        correction2 = -jnp.expm1(steps * np.log(beta2))
        root = jnp.sqrt(v) / jnp.sqrt(correction2) + optimizer.epsilon
        return w * (1 - rate * decay) - rate / correction1 * (m / root)

    after = jax.tree.map(adamw, weights, first, second)
    return {"weights": after, "count": count, "first": first, "second": second}


def _narrowed(weight: Any) -> Any:
    """Rounds a float32 weight to bf16, with a widened gradient; float64 stays, for the truth."""
    return weight.astype(jnp.bfloat16) if weight.dtype == jnp.float32 else weight


def _on_host(weights: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(value) for name, value in weights.items()}


create_model = models.creator(TrainingModel)
