"""Training in PyTorch in the usual form: `backward`, and an optimizer of `torch.optim`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import model_interfaces
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.training import Optimizer, models
from openxla.benchmark.training.architecture import IGNORED, MASKED, NEXT
from openxla.benchmark.training.models import Draw

# Names of the optimizers' slots in `torch.optim`.
_SLOTS = {"exp_avg": "first", "exp_avg_sq": "second", "momentum_buffer": "momentum"}


class _TaskLoss(torch.nn.Module):
    """Network and loss as one module, which is compiled together with its backward."""

    def __init__(self, model: "TrainingModel") -> None:
        super().__init__()
        self.network, self._task, self._split = model.network, model.task, model.split

    def forward(self, *batch: torch.Tensor) -> torch.Tensor:
        """Returns the mean cross-entropy of the predictions."""
        inputs, labels = self._split(batch)
        logits = self.network(*inputs)
        if self._task == MASKED:
            words = self.network.model.get_input_embeddings().weight
            logits = logits @ words.T * logits.shape[-1] ** -0.5
        elif self._task == NEXT:
            logits, labels = logits[:, :-1], inputs[0][:, 1:]
        wide = torch.promote_types(logits.dtype, torch.float32)
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, -2).to(wide), labels.flatten().long(), ignore_index=IGNORED
        )


class TrainableModel(torch.nn.Module, models.TrainableModel):
    """Base of models that PyTorch trains."""

    def loss_module(self) -> torch.nn.Module:
        """Returns network and loss as one module, which maps a batch to its loss."""
        raise NotImplementedError

    def module_of(self, network: Any) -> torch.nn.Module:
        """Returns the module with the trained parameters."""
        raise NotImplementedError

    def run(self, compile_part: Callable[[torch.nn.Module], Any] = lambda part: part) -> "Run":
        """Returns a run that starts from the network's current weights.

        Args:
          compile_part: compiles the module that returns the loss. The optimizer is not compiled, as
            in a training loop that compiles its model.
        """
        return Run(self, compile_part)

    def forward(self, *inputs: Any) -> Any:
        """Takes all steps, then restores the weights."""
        run = self.run()
        steps = [run.step(*batch) for batch in self.batches(list(map(as_tensor, inputs)))]
        outputs = run.outputs(steps)
        run.start()
        return outputs


class TrainingModel(TrainableModel, models.TrainingModel):
    """Inputs and outputs: see `TrainingArchitecture`."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_training("pt", parameters)

    def loss_module(self) -> torch.nn.Module:
        """See `TrainableModel`."""
        return _TaskLoss(self)

    def module_of(self, network: Any) -> torch.nn.Module:
        """See `TrainableModel`."""
        module: torch.nn.Module = network.model
        return module


class Run(model_interfaces.TrainingRun):
    """Trains the network in place.

    If the network computes in bf16, its weights are copies of the master weights, made after each
    update, and its gradients are widened for the optimizer.
    """

    def __init__(self, model: TrainableModel, compile_part: Callable[..., Any]) -> None:
        self._model = model
        self._weights = _trained(model, model.masters)
        self._used = _trained(model, model.network)
        self._mixed = model.masters is not model.network
        if self._mixed:  # master weights, statistics and all others
            masters = model.module_of(model.masters)
            model.module_of(model.network).load_state_dict(masters.state_dict())
        self._first = {name: value.detach().clone() for name, value in self._weights.items()}
        self._loss = compile_part(model.loss_module())
        self._optimizer = make_optimizer(model.optimizer, list(self._weights.values()))

    def start(self) -> None:
        """Restores the initial weights, and zeroes the optimizer's slots."""
        with torch.no_grad():
            for name, value in self._first.items():
                self._weights[name].copy_(value)
            self._refresh()
            for state in self._optimizer.state.values():
                for value in state.values():
                    if value is not None:
                        value.zero_()
        if torch.cuda.is_initialized():  # no step may wait for this
            torch.cuda.synchronize()

    def step(self, *batch: Any) -> tuple[Any, Any]:
        """See `TrainingRun.step`."""
        loss = self.forward(*batch)
        self.backward(loss)
        return loss.detach(), self.update()

    def forward(self, *batch: Any) -> Any:
        """First part of a step: returns the loss of a batch, with its graph."""
        with torch.enable_grad():  # backends disable gradients elsewhere
            return self._loss(*batch)

    def backward(self, loss: Any) -> None:
        """Second part of a step: computes the gradients."""
        with torch.enable_grad():
            loss.backward()

    def update(self) -> Any:
        """Last part of a step: updates the weights; returns the gradient norm."""
        if self._mixed:
            for master, used in zip(self._weights.values(), self._used.values(), strict=True):
                master.grad = used.grad.to(master.dtype)
        # A weight that the loss does not use has no gradient and is not updated.
        gradients = [value.grad for value in self._weights.values() if value.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        self._optimizer.step()
        self._forget_gradients()
        self._refresh()
        return norm

    def update_from(self, draw: Draw, steps: int) -> None:
        """Updates artificial weights with artificial gradients and moments after `steps` steps.

        At least one step must have been taken, because the optimizer creates its slots in the
        first.
        """
        with torch.no_grad():
            for name, weight in self._weights.items():
                if weight not in self._optimizer.state:
                    continue
                shape, used = tuple(weight.shape), self._used[name]
                weight.copy_(torch.from_numpy(draw("weight", name, shape)))
                gradient = torch.from_numpy(draw("gradient", name, shape))
                used.grad = torch.empty_like(used).copy_(gradient)
                for slot, value in self._optimizer.state[weight].items():
                    if slot == "step":
                        value.fill_(steps)
                    elif value is not None:
                        value.copy_(torch.from_numpy(draw(_SLOTS[slot], name, shape)))
        self.update()

    def weights(self) -> Mapping[str, Any]:
        """See `TrainingRun.weights`."""
        return _on_host(self._weights)

    def updated(self) -> list[str]:
        """Returns the names of the weights that the optimizer updates, i.e. that the loss uses."""
        return [name for name, value in self._weights.items() if value in self._optimizer.state]

    def outputs(self, steps: Sequence[tuple[Any, Any]]) -> tuple[torch.Tensor, ...]:
        """Returns the outputs, given losses and norms of all steps."""
        floats = [(float(loss), float(norm)) for loss, norm in steps]
        outputs = self._model.outputs(floats, _on_host(self._first), self.weights())
        return tuple(map(torch.from_numpy, outputs))

    def _forget_gradients(self) -> None:
        self._optimizer.zero_grad()
        if self._mixed:
            for used in self._used.values():
                used.grad = None

    def _refresh(self) -> None:
        if self._mixed:
            with torch.no_grad():
                torch._foreach_copy_(list(self._used.values()), list(self._weights.values()))


def make_optimizer(optimizer: Optimizer, weights: Sequence[torch.Tensor]) -> torch.optim.Optimizer:
    """Returns the corresponding optimizer of `torch.optim`."""
    if optimizer.name == "sgd":
        return torch.optim.SGD(
            weights,
            lr=optimizer.learning_rate,
            momentum=optimizer.momentum,
            weight_decay=optimizer.weight_decay,
        )
    return torch.optim.AdamW(
        weights,
        lr=optimizer.learning_rate,
        betas=optimizer.betas,
        eps=optimizer.epsilon,
        weight_decay=optimizer.weight_decay,
    )


def _trained(model: TrainableModel, network: Any) -> dict[str, torch.nn.Parameter]:
    named = dict(model.module_of(network).named_parameters())
    return {name: named[name].requires_grad_() for name in model.trained}


def _on_host(weights: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    return {name: np.array(value.detach().cpu().numpy()) for name, value in weights.items()}


create_model = models.creator(TrainingModel)
