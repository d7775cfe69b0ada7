"""Layers of PyTorch models, by forward hooks."""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import torch

from comparative_benchmark.backends.frameworks import torch_modules
from comparative_benchmark.backends.intermediates import Array, Note, layer_of, widened
from openxla.benchmark.models import checkpoints
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.models.shared_model import as_tuple


def run(model: Any, inputs: Sequence[Array], note: Note) -> tuple[Any, ...]:
    """Runs a model in float64, in place, and records each layer's output; returns the outputs."""
    torch.set_grad_enabled(False)
    known = checkpoints.load_tensors(model.architecture, model.checkpoint)
    hooks = []
    for part in torch_modules.of(model):
        part.double()
        for name, module in _layers(part, known):
            hooks.append(module.register_forward_hook(_hook(name, note)))
    try:
        outputs = model.forward(*(as_tensor(widened(value)) for value in inputs))
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(value.detach().cpu().numpy() for value in as_tuple(outputs))


def _layers(root: torch.nn.Module, known: Container[str]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields the modules that hold weights of the checkpoint, by the checkpoint's name."""
    for path, module in root.named_modules():
        tensors = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        names = [_in_checkpoint(f"{path}.{name}", known) for name, _ in tensors]
        layers = {layer_of(name) for name in names if name is not None}
        # The root has an empty name; its outputs are the model's, which are compared anyway.
        if len(layers) == 1 and (layer := layers.pop()):
            yield layer, module


def _in_checkpoint(name: str, known: Container[str]) -> str | None:
    """Returns a tensor's name in the checkpoint; the suite's wrappers may add a prefix to it."""
    while name not in known:
        _, dot, name = name.partition(".")
        if not dot:
            return None
    return name


def _hook(name: str, note: Note) -> Callable[..., None]:
    def hook(_: torch.nn.Module, __: Any, output: Any) -> None:
        values = output.values() if isinstance(output, Mapping) else as_tuple(output)
        value = next((item for item in values if isinstance(item, torch.Tensor)), None)
        if value is not None:
            note(name, value.detach().cpu().numpy())

    return hook
