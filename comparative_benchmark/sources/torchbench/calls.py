"""Calls in an iteration of a folder: the module, its arguments and its outputs."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch


class Calls:
    """The calls of a module.

    Attributes:
      count: number of calls.
      through_module: number of calls of the module itself instead of its `forward`.
      arguments: positional arguments of the last call.
      named: named arguments of the last call.
      last: return value of the last call.
    """

    def __init__(self) -> None:
        self.count = self.through_module = 0
        self.arguments: tuple[Any, ...] = ()
        self.named: dict[str, Any] = {}
        self.last: Any = None

    def watching(self, call: Callable[..., Any], *, inputs: bool = False) -> Callable[..., Any]:
        """Returns a wrapper of `call` that counts calls here and keeps their outputs."""

        def watched(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            if inputs:
                self.arguments, self.named = arguments, named
            self.last = call(*arguments, **named)
            return self.last

        return watched

    @property
    def example(self) -> Any:
        """The last arguments as `get_module()` returns them; None if there are both kinds."""
        if self.arguments and self.named:
            return None
        return self.named or self.arguments


class OnlyOf:
    """Replaces a method of one module, and not of other objects of its class.

    Folders copy modules with all attributes and other weights (`higher` does, for each inner loop
    of MAML): a copy that kept the compiled method would compute with the weights of the original.
    """

    def __init__(self, module: torch.nn.Module, call: Callable[..., Any], others: Any) -> None:
        self._module, self._call, self._others = module, call, others

    def __get__(self, which: Any, kind: type | None = None) -> Any:
        if which is self._module:
            return self._call
        return None if self._others is None else self._others.__get__(which, kind)


def put_in_place(
    module: torch.nn.Module, method: str, call: Callable[..., Any]
) -> Callable[[], None]:
    """Makes a module call `call` instead of a method; returns a function that undoes it.

    The module gets its own class, because an attribute would be copied with the module.
    """
    kept = vars(module).get(method)
    if kept is not None:  # set by the folder, and copied anyway
        setattr(module, method, call)
        return lambda: setattr(module, method, kept)
    shared = type(module)
    others = getattr(shared, method)
    module.__class__ = type(shared.__name__, (shared,), {"__module__": shared.__module__})
    setattr(type(module), method, OnlyOf(module, call, others))
    return lambda: setattr(module, "__class__", shared)


def is_watchable(module: Any) -> bool:
    """Returns whether calls of a module can be watched: scripted ones keep their `forward`."""
    return isinstance(module, torch.nn.Module) and not isinstance(module, torch.jit.ScriptModule)


@contextlib.contextmanager
def watching(modules: Iterable[Any]) -> Iterator[list[tuple[torch.nn.Module, Calls]]]:
    """Watches modules inside a `with` block; yields them with their calls."""
    watched = [(module, Calls()) for module in modules if is_watchable(module)]
    with contextlib.ExitStack() as stack:
        for module, calls in watched:
            call = calls.watching(module.forward, inputs=True)
            stack.callback(put_in_place(module, "forward", call))

            def note(*_: Any, calls: Calls = calls) -> None:
                calls.through_module += 1

            stack.callback(module.register_forward_pre_hook(note).remove)
        yield watched
