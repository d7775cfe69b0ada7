"""The float64 run of a model whose float64 copy does not fit into memory.

The model stays in its own type. Each layer (an element of a `ModuleList`; elsewhere each module
that holds weights itself) is float64 only while it runs, with the same values that a float64 copy
of the model would have, so the outputs are the same.

A model that continues prompts would widen all its layers for each token. So tokens are drafted in
the model's own type, then a window of them is run in float64, which shows how many are correct
(speculative decoding: Leviathan, Kalman and Matias 2023, arXiv:2211.17192, in its greedy form).
Drafts affect only the time, never the outputs.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from comparative_benchmark.backends.frameworks import torch_modules as modules
from openxla.benchmark.models.pt.greedy import GreedyModel, KeysValues, choose
from openxla.benchmark.operators.in_torch import TrainingModel
from openxla.benchmark.training.in_torch import TrainableModel

# Widening all layers takes as long as drafting about ten tokens, and nearly all drafts of a 16-bit
# model are correct.
_WINDOW = 32


class RoundsError(RuntimeError):
    """A part of a model computes in a narrower type although its layer is float64."""


def forward(model: Any, tensors: Sequence[torch.Tensor]) -> Any:
    """Returns the outputs of `model.forward` in float64.

    Args:
      model: in its own type, and unchanged afterwards.
      tensors: its inputs, in its own type.

    Raises:
      RoundsError: the result would not be exact enough for a truth.
    """
    if isinstance(model, GreedyModel):
        return _generate(model, tensors)
    if isinstance(model, TrainingModel | TrainableModel):
        raise RoundsError("gradients are computed when the layers are no longer float64")
    with _in_float64(model):
        return model.forward(*map(_wide, tensors))


def float64_bytes(model: Any) -> int:
    """Returns the memory that a float64 copy of the model's weights takes."""
    tensors = {id(tensor): tensor for tensor in modules.tensors_of(model)}
    return sum(8 * t.numel() for t in tensors.values() if t.is_floating_point())


def _generate(
    model: GreedyModel, inputs: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `GenerationModel.generate`."""
    prompt, given = inputs[: model.prompt_inputs], inputs[model.prompt_inputs :]
    first, count = model.first_position(*prompt), model.max_new_tokens
    draft = None if given else _Draft(model, prompt)
    with _in_float64(model):
        start, cache = model.prefill(*map(_wide, prompt))
    logits, tokens = start[:, None], choose(start)[:, None]
    while (done := tokens.shape[1]) < count:
        until = min(done + _WINDOW, count)
        positions = torch.arange(first + done - 1, first + until - 1)
        if draft is None:
            window = given[0][:, done - 1 : until - 1]
        else:
            window = draft.follow(tokens[:, -1], positions)
        with _in_float64(model):
            read, cache = model.read(window, positions, cache)
        chosen = choose(read)
        # Tokens after a wrong one are wrong as well.
        kept = until - done if draft is None else 1 + _agreeing(window[:, 1:], chosen[:, :-1])
        tokens = torch.cat((tokens, chosen[:, :kept]), dim=1)
        logits = torch.cat((logits, read[:, :kept]), dim=1)
    return tokens, logits


class _Draft:
    """Guesses the next tokens in the model's own type."""

    def __init__(self, model: GreedyModel, prompt: Sequence[torch.Tensor]) -> None:
        self._model = model
        self._cache: KeysValues
        _, self._cache = model.prefill(*prompt)

    def follow(self, token: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Returns a token of each row, and guesses after it: i32[batch, len(positions)].

        All of them are read, so that the cache covers everything before the next window, however
        many of these tokens are kept; later entries are overwritten before they are read.
        """
        window = [token]
        for position in positions:
            logits, self._cache = self._model.decode(window[-1], position[None], self._cache)
            window.append(choose(logits))
        return torch.stack(window[:-1], dim=1)


def _agreeing(left: torch.Tensor, right: torch.Tensor) -> int:
    """Returns the number of leading columns in which two matrices agree in all rows."""
    return int((left == right).all(dim=0).cumprod(dim=0).sum())


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


@contextlib.contextmanager
def _in_float64(model: Any) -> Iterator[None]:
    """Makes each layer of a model compute in float64 inside the block."""
    layers = [layer for root in modules.of(model) for layer in _layers(root)]
    hooks = []
    try:
        for module, tensors in layers:
            widening = _Widening(tensors)
            hooks.append(module.register_forward_pre_hook(widening.start))
            hooks.append(module.register_forward_hook(widening.end, always_call=True))
        with _NothingRounded([tensor for _, tensors in layers for tensor in tensors]):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _layers(root: torch.nn.Module) -> Iterator[tuple[torch.nn.Module, list[torch.Tensor]]]:
    """Yields modules, each with the tensors that are float64 while it runs."""
    layers = {
        layer
        for module in root.modules()
        if isinstance(module, torch.nn.ModuleList)
        for layer in module
    }
    for module in root.modules():
        is_layer = module in layers
        tensors = [
            tensor
            for tensor in (*module.parameters(is_layer), *module.buffers(is_layer))
            if tensor.is_floating_point() and tensor.dtype != torch.float64
        ]
        if tensors:
            yield module, tensors


class _Widening:
    """Widens tensors at the start of a module's forward, and restores them at its end."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._narrow: list[tuple[torch.Tensor, torch.Tensor]] = []

    def start(self, *_: Any) -> None:
        # Except tensors that an enclosing module, or one that shares them, has widened.
        self._narrow = [(t, t.data) for t in self._tensors if t.dtype != torch.float64]
        for tensor, values in self._narrow:
            tensor.data = values.double()

    def end(self, *_: Any) -> None:
        for tensor, values in self._narrow:
            tensor.data = values
        self._narrow = []


class _NothingRounded(TorchDispatchMode):
    """Refuses operations that round: their outputs would not be a truth.

    Operations on integers only are the same in a float64 copy.
    """

    def __init__(self, weights: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._narrow_weights = {weight.untyped_storage().data_ptr() for weight in weights}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        narrow = [t.dtype for t in _floating(result) if t.dtype != torch.float64]
        # A view of weights whose layer has not started computes nothing.
        if narrow and not func.is_view and any(map(self._is_exact, _floating((args, kwargs)))):
            raise RoundsError(f"{func} rounds to {narrow[0]} although its layer is float64")
        return result

    def _is_exact(self, value: torch.Tensor) -> bool:
        if value.dtype == torch.float64:
            return True
        return value.untyped_storage().data_ptr() in self._narrow_weights


def _floating(values: Any) -> list[torch.Tensor]:
    return [
        value
        for value in tree_leaves(values)
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    ]
