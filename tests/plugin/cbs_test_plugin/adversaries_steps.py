"""Faults of training steps: in PyTorch, mistakes of users; in JAX, as written out."""

from collections.abc import Callable
from typing import Any

import attrs

# Changes of hyper-parameters.
HYPER_PARAMETERS: dict[str, Callable[[Any], Any]] = {
    "rate-off-by-a-tenth": lambda o: attrs.evolve(o, learning_rate=1.1 * o.learning_rate),
    "decay-forgotten": lambda o: attrs.evolve(o, weight_decay=0.0),
    "momentum-forgotten": lambda o: attrs.evolve(o, momentum=0.0),
    "second-moment-decays-faster": lambda o: attrs.evolve(o, betas=(o.betas[0], 0.99)),
    "epsilon-off": lambda o: attrs.evolve(o, epsilon=1e-8),
    "rate-off-by-a-hundredth": lambda o: attrs.evolve(o, learning_rate=1.01 * o.learning_rate),
}
# Which an update by itself shows, and the first steps do not, in some network or type.
UPDATES = ("second-moment-decays-faster", "epsilon-off", "rate-off-by-a-hundredth")
_ANY = ("rate-off-by-a-tenth", "decay-forgotten", "layer-not-trained", "last-update-forgotten")
# By optimizer.
STEPS = {
    "adamw": (*_ANY, "correction-missing"),
    "sgd": (*_ANY, "momentum-forgotten", "momentum-dampened"),
}
# Functions of JAX have no gradients to be zeroed.
ONLY_IN_TORCH = ("gradients-kept",)
# Of weights in float32 for a network in bf16.
ONLY_MIXED = ("masters-in-bf16",)
PLANTED = tuple(
    dict.fromkeys((*STEPS["adamw"], *STEPS["sgd"], *UPDATES, *ONLY_IN_TORCH, *ONLY_MIXED))
)
# A layer of each network.
_LAYERS = ("encoder.layer.1.", "transformer.h.1.", "resnet.encoder.stages.1.", "vit.layers.1.")
_LONG_AGO = 10**8
_DAMPENING = 0.9


def create_model(fault: str, framework: str, **parameters: Any) -> Any:
    """Returns a model that is trained wrong, or right for `none`."""
    if fault == "none":
        fault = ""
    return (_in_torch if framework == "pt" else _in_jax)(fault, parameters)


def _in_torch(fault: str, parameters: dict[str, Any]) -> Any:
    import torch

    from openxla.benchmark.training import in_torch

    class WrongRun(in_torch.Run):
        def __init__(self, model: Any, compile_part: Any) -> None:
            super().__init__(model, compile_part)
            self.taken = 0
            weights = list(self._weights.values())
            if fault in HYPER_PARAMETERS:
                wrong = HYPER_PARAMETERS[fault](model.optimizer)
                self._optimizer = in_torch.make_optimizer(wrong, weights)
            if fault == "momentum-dampened":
                for group in self._optimizer.param_groups:
                    group["dampening"] = _DAMPENING
            if fault == "layer-not-trained":
                for name, weight in self._used.items():
                    if name.startswith(_LAYERS):
                        weight.register_hook(lambda gradient: gradient * 0)
            if fault == "gradients-kept":
                self._forget_gradients = lambda: None
            if fault == "last-update-forgotten":
                self._optimizer.register_step_pre_hook(self._before)
            if fault == "masters-in-bf16":
                self._optimizer.register_step_post_hook(self._round)

        def _before(self, *_: Any) -> None:
            self.taken += 1
            if self.taken % 3 == 0:
                for group in self._optimizer.param_groups:
                    for weight in group["params"]:
                        weight.grad = None

        def _round(self, *_: Any) -> None:
            with torch.no_grad():
                for weight in self._weights.values():
                    weight.copy_(weight.bfloat16())

        def step(self, *batch: Any) -> Any:
            if fault == "correction-missing":
                for state in self._optimizer.state.values():
                    state["step"].fill_(_LONG_AGO)
            return super().step(*batch)

    class Wrong(in_torch.TrainingModel):
        def run(self, compile_part: Any = lambda part: part) -> Any:
            return WrongRun(self, compile_part)

    return Wrong(in_torch.models.ARCHITECTURE.creation_parameters(parameters))


def _in_jax(fault: str, parameters: dict[str, Any]) -> Any:
    import jax
    import jax.numpy as jnp

    from openxla.benchmark.training import in_jax

    class Wrong(in_jax.TrainingModel):
        def update(self, state: Any, gradients: Any) -> Any:
            right = self.optimizer
            if fault in HYPER_PARAMETERS:
                self.optimizer = HYPER_PARAMETERS[fault](right)
            try:
                return super().update(state, gradients)
            finally:
                self.optimizer = right

        def step(self, state: Any, params: Any, *batch: Any) -> Any:
            right, count = self.optimizer, state["count"]
            if fault == "correction-missing":
                state = {**state, "count": count + _LONG_AGO}
            after, told = super().step(state, params, *batch)
            before, weights = state["weights"], after["weights"]
            if fault == "momentum-dampened":
                after["momentum"] = jax.tree.map(
                    lambda old, new: jnp.where(
                        count == 0, new, new - _DAMPENING * (new - right.momentum * old)
                    ),
                    state["momentum"], after["momentum"],
                )  # fmt: skip
                weights = jax.tree.map(
                    lambda w, m: w - right.learning_rate * m, before, after["momentum"]
                )
            if fault == "last-update-forgotten":
                weights = jax.tree.map(
                    lambda old, new: jnp.where(count == 2, old, new), before, weights
                )
            if fault == "masters-in-bf16":
                weights = jax.tree.map(lambda w: w.astype(jnp.bfloat16).astype(w.dtype), weights)
            return {**after, "weights": weights, "count": count + 1}, told

        def loss(self, weights: Any, params: Any, *batch: Any) -> Any:
            if fault == "layer-not-trained":
                weights = {
                    name: jax.lax.stop_gradient(value) if name.startswith(_LAYERS) else value
                    for name, value in weights.items()
                }
            return super().loss(weights, params, *batch)

    return Wrong(in_jax.models.ARCHITECTURE.creation_parameters(parameters))
