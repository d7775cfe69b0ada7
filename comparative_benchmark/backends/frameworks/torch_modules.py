"""The torch modules inside a model, their tensors, layers, and the two programs of a generator.

Exported programs have no loop over tokens, and unrolling hundreds of steps would make a program
that does not occur in practice. So prefill and decode are both exported, and the host calls decode
repeatedly, as servers of such models do with these runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

import attrs
import ml_dtypes
import torch

from comparative_benchmark.backends.api import Array, PhaseTimer
from comparative_benchmark.backends.frameworks import torch_export
from comparative_benchmark.backends.intermediates import Note, layer_of, widened
from comparative_benchmark.backends.resident_programs import GenerationPlan
from openxla.benchmark.models import checkpoints
from openxla.benchmark.models.model_interfaces import GenerationModel
from openxla.benchmark.models.pt.greedy import choose
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.models.shared_model import as_tuple


def is_generator(model: Any) -> bool:
    """Returns whether a model generates with PyTorch functions `prefill` and `decode`."""
    return isinstance(model, GenerationModel) and isinstance(model, torch.nn.Module)


def export_programs(
    model: Any, inputs: Sequence[Array], phase: PhaseTimer
) -> tuple[list[torch.export.ExportedProgram], GenerationPlan | None]:
    """Exports a model; returns its program, or the two of a model that generates and their plan.

    Raises:
      UnsupportedError: `torch.export` cannot export it.
    """
    if is_generator(model):
        return export_parts(model, inputs, phase)
    return [torch_export.export(model, inputs, phase)], None


def export_parts(
    model: Any, inputs: Sequence[Array], phase: PhaseTimer
) -> tuple[list[torch.export.ExportedProgram], GenerationPlan]:
    """Exports prefill and decode with the shapes and types of the inputs; phase `trace`.

    Args:
      model: a `GenerationModel` that is a module.
      inputs: one array for each argument of `prefill`.
      phase: times the export, and the one run of both that it requires.

    Raises:
      UnsupportedError: `torch.export` cannot export them.
    """
    tensors = tuple(as_tensor(value) for value in inputs)
    position = torch.tensor([model.first_position(*tensors)], dtype=torch.int64)
    with phase("trace"), torch_export.refusing("torch.export"), torch.no_grad():
        # A run shows the shapes of the state, and which of its parts a step changes.
        logits, cache = model.prefill(*tensors)
        token, state = choose(logits), list(_leaves(cache))
        changes = _changes(model, token, position, cache)
        decode = _Decode(model, cache, changes)
        programs = [
            torch.export.export(_Prefill(model), tensors, strict=False),
            torch.export.export(decode, (token, position, *state), strict=False),
        ]
    plan = GenerationPlan(
        steps=model.max_new_tokens - 1, first_position=int(position), changes=changes
    )
    return programs, plan


class _Prefill(torch.nn.Module):
    """(*inputs) -> tokens, logits, *state."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits, cache = self.model.prefill(*inputs)
        return (choose(logits), logits, *_leaves(cache))


class _Decode(torch.nn.Module):
    """(tokens, position, *state) -> tokens, logits, *changed parts of the state."""

    def __init__(self, model: Any, cache: Any, changes: Sequence[bool]) -> None:
        super().__init__()
        self.model = model
        self._cache = cache
        self._changes = tuple(changes)

    def forward(
        self, token: torch.Tensor, position: torch.Tensor, *state: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        # The model writes into its cache; an exported program returns the changes as outputs.
        copies = [
            part.clone() if changed else part
            for part, changed in zip(state, self._changes, strict=True)
        ]
        cache = _rebuilt(self._cache, iter(copies))
        logits, cache = self.model.decode(token, position, cache)
        after = zip(_leaves(cache), self._changes, strict=True)
        return (choose(logits), logits, *(part for part, changed in after if changed))


def _changes(
    model: Any, token: torch.Tensor, position: torch.Tensor, cache: Any
) -> tuple[bool, ...]:
    """Returns which tensors of a cache a step replaces or writes into."""
    copies = [part.clone() for part in _leaves(cache)]
    before = [part._version for part in copies]  # noqa: SLF001  # counts writes; has no other name
    _, after = model.decode(token, position, _rebuilt(cache, iter(copies)))
    return tuple(
        now is not part or part._version != version  # noqa: SLF001
        for now, part, version in zip(_leaves(after), copies, before, strict=True)
    )


def _leaves(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors of a cache (lists, tuples and attrs classes) in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from _leaves(getattr(value, field.name))
    else:
        raise TypeError(f"a cache contains a {type(value).__name__}, which cannot be exported")


def _rebuilt(like: Any, leaves: Iterator[torch.Tensor]) -> Any:
    """Returns a cache of the same structure with other tensors."""
    if isinstance(like, torch.Tensor):
        return next(leaves)
    if isinstance(like, list | tuple):
        return type(like)(_rebuilt(item, leaves) for item in like)
    names = [field.name for field in attrs.fields(type(like))]
    return type(like)(**{name: _rebuilt(getattr(like, name), leaves) for name in names})


def of(model: Any) -> Iterator[torch.nn.Module]:
    """Yields the model if it is a module, else the modules among its attributes."""
    if isinstance(model, torch.nn.Module):
        yield model
    else:
        parts = getattr(model, "__dict__", {}).values()
        yield from (part for part in parts if isinstance(part, torch.nn.Module))


def tensors_of(model: Any) -> Iterator[torch.Tensor]:
    """Yields the parameters and buffers of a model's modules."""
    for module in of(model):
        yield from (*module.parameters(), *module.buffers())


def element_types(model: Any) -> frozenset[str]:
    """Returns the NumPy names of the element types of a model's parameters and buffers."""
    return frozenset(str(tensor.dtype).removeprefix("torch.") for tensor in tensors_of(model))


class _Forward(torch.nn.Module):
    """The `forward` of a model that is not a module, with the modules that it uses."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(of(model))
        self._forward = model.forward

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self._forward(*inputs)


def as_module(model: Any) -> torch.nn.Module:
    """Returns the model as one module, for exporters that accept nothing else."""
    return model if isinstance(model, torch.nn.Module) else _Forward(model)


def to_numpy(value: Any) -> Array:
    """Returns a tensor as an array on the host; bfloat16 is copied as bits.

    Raises:
      TypeError: the value is not a tensor, or its class may compute when it is read, which would
        not be timed.
    """
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        raise TypeError(f"forward returned a {type(value).__name__}, expected a plain tensor")
    host = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
    if host.dtype == torch.bfloat16:
        bits: Array = host.view(torch.int16).numpy()
        return bits.view(ml_dtypes.bfloat16)
    array: Array = host.numpy()
    return array


def record_layers(model: Any, inputs: Sequence[Array], note: Note) -> tuple[Any, ...]:
    """Runs a model in float64, in place, and records each layer's output; returns the outputs."""
    torch.set_grad_enabled(False)
    known = checkpoints.load_tensors(model.architecture, model.checkpoint)
    hooks = []
    for part in of(model):
        part.double()
        for name, module in _layers(part, known):
            hooks.append(module.register_forward_hook(_hook(name, note)))
    try:
        outputs = model.forward(*(as_tensor(widened(value)) for value in inputs))
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(map(to_numpy, as_tuple(outputs)))


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
            note(name, value.detach().cpu().resolve_conj().resolve_neg().numpy())

    return hook
