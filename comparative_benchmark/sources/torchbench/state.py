"""The state of a folder's object: saved, restored, widened, and perturbed by rounding steps.

A training step changes the start of the next one, and some inference draws random numbers. So runs
are verified by repeating them from a known state.
"""

import contextlib
import copy
import random
from collections import UserDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from comparative_benchmark.backends.api import Array
from openxla.benchmark.user_models.inputs import is_float

# Maximum depth of containers in attributes: folders keep batches in lists of pairs.
_DEEPEST = 4

_WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
# With the same seed, these draw other numbers in double; dropout does not.
_DRAW = {
    *(torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.normal, torch.bernoulli),
    *(torch.multinomial, torch.Tensor.multinomial, torch.Tensor.bernoulli),
}
_DRAW_INTO = {
    *(torch.Tensor.normal_, torch.Tensor.uniform_, torch.Tensor.exponential_),
    *(torch.Tensor.log_normal_, torch.Tensor.cauchy_, torch.Tensor.geometric_),
}

_WITH_STATE = (torch.optim.lr_scheduler.LRScheduler, torch.amp.GradScaler)
_KEPT_IN_PLACE = (torch.Tensor, torch.nn.Module, torch.optim.Optimizer)


def leaves(value: Any) -> tuple[torch.Tensor, ...]:
    """Returns the tensors in a value, in the order in which PyTorch flattens it."""
    flat = pytree.tree_leaves(plain(value))
    return tuple(item for item in flat if isinstance(item, torch.Tensor))


def plain(value: Any) -> Any:
    """Returns a mapping that PyTorch does not flatten, e.g. a tokenizer's, as a dictionary."""
    return dict(value) if isinstance(value, UserDict) else value


def held(made: Any, kind: type) -> list[Any]:
    """Returns the objects of a type among an object's attributes, each once."""
    items: dict[int, Any] = {}
    for value in vars(made).values():
        for item in within(value):
            if isinstance(item, kind):
                items.setdefault(id(item), item)
    return list(items.values())


def owners(made: Any) -> list[Any]:
    """Returns an object and the objects of the folder's own classes in it, e.g. with counters."""
    owners = {id(made): made}
    for value in vars(made).values():
        owners |= {id(item): item for item in within(value) if _is_of_a_folder(item)}
    return list(owners.values())


def within(value: Any, depth: int = _DEEPEST) -> Iterator[Any]:
    """Yields a value, and the contents of containers and of objects of the folder's classes."""
    yield value
    if depth and isinstance(value, list | tuple):
        for item in value:
            yield from within(item, depth - 1)
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from within(item, depth - 1)
    elif depth and _is_of_a_folder(value):  # e.g. an agent that holds networks
        for item in vars(value).values():
            yield from within(item, depth - 1)


def judged(values: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Returns outputs as verified: a single number, which has no spread, is paired with a zero."""
    return tuple(
        torch.stack([torch.zeros_like(value).reshape(()), value.reshape(())])
        if value.numel() == 1
        else value
        for value in values
    )


def is_constant(value: torch.Tensor) -> bool:
    """Returns whether a tensor has no spread: empty, or the same number everywhere, except NaN."""
    flat = value.detach().reshape(-1)
    return flat.numel() == 0 or bool((flat == flat[0]).all())


def attributes(module: torch.nn.Module, kind: type) -> Iterator[tuple[torch.nn.Module, str, Any]]:
    """Yields attributes of a module's parts that have a type: a cache's tensors, an optimizer."""
    for part in module.modules():
        for name, value in vars(part).items():
            if isinstance(value, kind):
                yield part, name, value


def _is_of_a_folder(value: Any) -> bool:
    module = type(value).__module__
    known = isinstance(value, torch.nn.Module | torch.Tensor)
    return module.startswith("torchbenchmark.") and hasattr(value, "__dict__") and not known


class Widening(TorchFunctionMode):
    """Makes code that names single precision (`dtype=torch.float`, `.float()`) use double.

    Random numbers are drawn in single precision: with others, a run would compute something else.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Calls a function of PyTorch with each single type replaced."""
        named = kwargs or {}
        if func in _DRAW_INTO and args[0].dtype == torch.float64:
            return args[0].copy_(func(args[0].float(), *args[1:], **named))
        if func in _DRAW:
            return _drawn(func, args, named)
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        given = [_WIDE.get(item, item) if isinstance(item, torch.dtype) else item for item in args]
        named = {
            name: _WIDE.get(item, item) if isinstance(item, torch.dtype) else item
            for name, item in named.items()
        }
        return func(*given, **named)


def _drawn(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Returns random numbers drawn in single precision, as double."""
    into = named.pop("out", None)
    args, named = pytree.tree_map_only(torch.Tensor, _narrow, (args, named))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        drawn = func(*args, **named)
    finally:
        torch.set_default_dtype(before)
    wide = drawn.to(_WIDE.get(drawn.dtype, drawn.dtype))
    return wide if into is None else into.copy_(wide)


def _narrow(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.dtype == torch.float64 else value


class State:
    """The state that an object's next step starts from, saved on construction."""

    def __init__(
        self, made: Any, modules: list[torch.nn.Module], inputs: Sequence[torch.Tensor]
    ) -> None:
        self._modules = modules
        ours = {id(value) for value in inputs}
        self._tensors = [t for t in held(made, torch.Tensor) if id(t) not in ours]
        every = torch.nn.ModuleList(modules)
        self._attributes = list(attributes(every, torch.Tensor))
        self._others = [(owner, _copies_of_plain(owner)) for owner in owners(made)]
        inside = [value for _, _, value in attributes(every, torch.optim.Optimizer)]
        self._optimizers = [*held(made, torch.optim.Optimizer), *inside]
        self._types = [{name: p.dtype for name, p in m.named_parameters()} for m in modules]
        self.keep_weights()
        self._steps = [copy.deepcopy(optimizer.state_dict()) for optimizer in self._optimizers]
        self._counting = [
            (item, copy.deepcopy(item.state_dict()))
            for kind in _WITH_STATE
            for item in held(made, kind)
        ]
        self._drawn = (torch.get_rng_state(), np.random.get_state(), random.getstate())  # noqa: NPY002
        self._on_gpu = torch.cuda.get_rng_state() if torch.cuda.is_available() else None

    def keep_weights(self) -> None:
        """Saves the weights that modules hold now as those to restore."""
        self._weights = [
            {name: value.detach().clone() for name, value in _named(module)}
            for module in self._modules
        ]
        self._values = [tensor.detach().clone() for tensor in self._tensors]
        self._attributes = [
            (part, name, getattr(part, name).detach().clone()) for part, name, _ in self._attributes
        ]

    def leave_out(self, inputs: Sequence[torch.Tensor]) -> None:
        """Excludes tensors from restoring: they are inputs, which others write to."""
        ours = {id(value) for value in inputs}
        kept = [place for place, tensor in enumerate(self._tensors) if id(tensor) not in ours]
        self._tensors = [self._tensors[place] for place in kept]
        self._values = [self._values[place] for place in kept]

    def restore(self) -> None:
        """Restores the state in place, because compiled programs refer to these tensors."""
        self._restore_all_but_steps()
        for parameter in (p for module in self._modules for p in module.parameters()):
            parameter.grad = None
        for optimizer, steps in zip(self._optimizers, self._steps, strict=True):
            optimizer.load_state_dict(copy.deepcopy(steps))
        for item, counted in self._counting:
            item.load_state_dict(copy.deepcopy(counted))

    def restore_moved(self) -> None:
        """Restores all but gradients and optimizer state, and moves weights by a sixteenth.

        The next step then shows what an optimizer keeps of the one before, and whether it reads the
        current weights. Yet it does not start from weights with rounding errors: in some models, on
        few examples, these change the gradient by a third of its spread.
        """
        self._restore_all_but_steps()
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for module, weights, types in zip(
                self._modules, self._weights, self._types, strict=True
            ):
                for name, parameter in module.named_parameters():
                    if parameter.is_floating_point() and name in weights:
                        signs = torch.randint(0, 2, parameter.shape, generator=generator) * 2 - 1
                        # In the folder's type, so that the float64 run starts from the same
                        # numbers.
                        own = weights[name].to(types[name])
                        parameter.copy_(own * (1 + signs.to(own) / 16))

    def _restore_all_but_steps(self) -> None:
        with torch.no_grad():
            for module, weights in zip(self._modules, self._weights, strict=True):
                for name, value in _named(module):
                    if name not in weights:
                        _take_away(module, name)
                        continue
                    if value.shape != weights[name].shape:  # observers of quantisation grow theirs
                        value.resize_(weights[name].shape)
                    value.copy_(weights[name])
            for tensor, value in zip(self._tensors, self._values, strict=True):
                tensor.copy_(value)
                if tensor.is_leaf:
                    tensor.grad = None
            for part, name, value in self._attributes:
                _put_back(part, name, value)
            for owner, saved in self._others:
                for name, value in saved.items():
                    with contextlib.suppress(AttributeError):  # a frozen record has not changed
                        setattr(owner, name, copy.deepcopy(value))
            torch.set_rng_state(self._drawn[0])
            np.random.set_state(self._drawn[1])  # noqa: NPY002
            random.setstate(self._drawn[2])
            if self._on_gpu is not None:
                torch.cuda.set_rng_state(self._on_gpu)


def modules_of(made: Any, module: Any) -> list[torch.nn.Module]:
    """Returns the modules of an object, each once, starting with `module`."""
    modules = [module] if isinstance(module, torch.nn.Module) else []
    modules += [item for item in held(made, torch.nn.Module) if item is not module]
    inside = {id(part) for one in modules for part in one.modules() if part is not one}
    return [one for one in modules if id(one) not in inside]


def widen(made: Any, modules: list[torch.nn.Module], inputs: Any) -> None:
    """Converts modules and tensors of an object to float64."""
    for module in modules:
        module.double()
        for part, name, value in list(attributes(module, torch.Tensor)):
            if value.is_floating_point() or value.is_complex():
                wide = torch.complex128 if value.is_complex() else torch.float64
                setattr(part, name, value.to(wide))
    for tensor in (*held(made, torch.Tensor), *leaves(inputs)):
        if tensor.is_floating_point():
            tensor.data = tensor.data.double()


def roughen(modules: list[torch.nn.Module], seed: int) -> None:
    """Moves each weight by up to half a rounding step, as another order of sums might."""
    with torch.no_grad():
        generator = torch.Generator().manual_seed(seed)
        for module in modules:
            for parameter in module.parameters():
                if parameter.is_floating_point():
                    half = torch.finfo(parameter.dtype).eps / 2
                    noise = torch.rand(parameter.shape, generator=generator) * 2 - 1
                    parameter.mul_(1 + half * noise.to(parameter))


def roughened(inputs: Sequence[Array]) -> list[Array]:
    """Returns inputs whose floating-point numbers are moved by a rounding step, or not at all."""
    generator = np.random.default_rng(0)

    def moved(value: Array) -> Array:
        steps = generator.integers(-1, 2, value.shape) * float(ml_dtypes.finfo(value.dtype).eps)
        changed: Array = np.multiply(value, 1 + steps).astype(value.dtype)  # zeros stay
        return changed

    return [moved(value) if is_float(value) else value for value in inputs]


def _put_back(part: torch.nn.Module, name: str, value: torch.Tensor) -> None:
    """Writes a tensor into an attribute, or a new one if the module has replaced it."""
    now = getattr(part, name, None)
    if isinstance(now, torch.Tensor) and now.shape == value.shape and now.dtype == value.dtype:
        now.copy_(value)
    else:
        setattr(part, name, value.clone())


def _take_away(module: torch.nn.Module, name: str) -> None:
    """Removes a buffer that a step has made: the next one makes it again."""
    owner, _, last = name.rpartition(".")
    module.get_submodule(owner)._buffers.pop(last, None)  # noqa: SLF001


def _copies_of_plain(owner: Any) -> dict[str, Any]:
    """Returns copies of attributes without PyTorch objects: counters, buffers, games."""
    copies = {}
    excluded = (*_KEPT_IN_PLACE, *_WITH_STATE)
    for name, value in vars(owner).items():
        if any(
            isinstance(item, excluded) or callable(item) or _is_its_own_attributes(item)
            for item in within(value)
        ):
            continue
        with contextlib.suppress(Exception):  # what cannot be copied is not restored
            copies[name] = copy.deepcopy(value)
    return copies


def _is_its_own_attributes(item: Any) -> bool:
    """Returns whether a dictionary's items are its attributes: a copy of it would have none.

    The objects in it are saved nevertheless, as in other objects of the folder.
    """
    return isinstance(item, dict) and getattr(item, "__dict__", None) is item


def _named(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]
