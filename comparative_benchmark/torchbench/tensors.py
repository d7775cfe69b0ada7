"""Tensors that a folder's object holds or returns, wherever they are in it."""

from collections import UserDict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

# How deep containers in attributes are looked into: folders keep batches in lists of pairs.
_DEEPEST = 4


def leaves(value: Any) -> tuple[torch.Tensor, ...]:
    """Returns the tensors in a value, in the order in which PyTorch flattens it."""
    flat = pytree.tree_leaves(plain(value))
    return tuple(item for item in flat if isinstance(item, torch.Tensor))


def plain(value: Any) -> Any:
    """Returns a mapping that PyTorch does not flatten, a tokenizer's say, as a dictionary."""
    return dict(value) if isinstance(value, UserDict) else value


def held(made: Any, kind: type) -> list[Any]:
    """Returns the objects of a kind among an object's attributes, each once."""
    found: dict[int, Any] = {}
    for value in vars(made).values():
        for item in within(value):
            if isinstance(item, kind):
                found.setdefault(id(item), item)
    return list(found.values())


def within(value: Any) -> Iterator[Any]:
    """Yields a value, and what is in it if it is a container or an object of the folder's."""
    yield from _within(value, _DEEPEST)


def owners(made: Any) -> list[Any]:
    """Returns an object and those of the folder's own classes in it, which keep counters, say."""
    found = {id(made): made}
    for value in vars(made).values():
        found |= {id(item): item for item in within(value) if _is_of_a_folder(item)}
    return list(found.values())


def _within(value: Any, depth: int) -> Iterator[Any]:
    yield value
    if depth and isinstance(value, list | tuple):
        for item in value:
            yield from _within(item, depth - 1)
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from _within(item, depth - 1)
    elif depth and _is_of_a_folder(value):  # an agent that holds networks, say
        for item in vars(value).values():
            yield from _within(item, depth - 1)


def judged(values: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Returns outputs as they are judged: a single number, which has no spread, beside a zero."""
    return tuple(
        torch.stack([torch.zeros_like(value).reshape(()), value.reshape(())])
        if value.numel() == 1
        else value
        for value in values
    )


def is_constant(value: torch.Tensor) -> bool:
    """Tells whether a tensor has no spread: one number everywhere, or none; NaN has one."""
    flat = value.detach().reshape(-1)
    return flat.numel() == 0 or bool((flat == flat[0]).all())


def attributes(module: torch.nn.Module, kind: type) -> Iterator[tuple[torch.nn.Module, str, Any]]:
    """Yields what parts of a module keep as attributes: tensors for a cache, an optimizer."""
    for part in module.modules():
        for name, value in vars(part).items():
            if isinstance(value, kind):
                yield part, name, value


def _is_of_a_folder(value: Any) -> bool:
    module = type(value).__module__
    known = isinstance(value, torch.nn.Module | torch.Tensor)
    return module.startswith("torchbenchmark.") and hasattr(value, "__dict__") and not known
