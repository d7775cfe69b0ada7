"""What an iteration of a folder calls: which module, on what, and what came of it."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch


class Calls:
    """The calls of a module.

    Attributes:
      count: how many there were.
      through_module: how many of them called the module, and not its `forward`.
      arguments: of the last one.
      named: of the last one, by name.
      last: what the last one returned.
    """

    def __init__(self) -> None:
        self.count = self.through_module = 0
        self.arguments: tuple[Any, ...] = ()
        self.named: dict[str, Any] = {}
        self.last: Any = None

    def watching(self, call: Callable[..., Any], *, inputs: bool = False) -> Callable[..., Any]:
        """Returns the call, which is counted here, and its outputs kept."""

        def watched(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            if inputs:
                self.arguments, self.named = arguments, named
            self.last = call(*arguments, **named)
            return self.last

        return watched

    @property
    def example(self) -> Any:
        """The last arguments as `get_module()` gives them; None where there are both kinds."""
        if self.arguments and self.named:
            return None
        return self.named or self.arguments


class OnlyOf:
    """Gives what is compiled to a module itself, and to no other of its class.

    Folders copy modules with all attributes and other weights (`higher` does, for each inner loop
    of MAML): a copy that took what was compiled along would compute with the weights of the first.
    """

    def __init__(self, module: torch.nn.Module, call: Callable[..., Any]) -> None:
        self._module, self._call = module, call

    def __get__(self, which: Any, kind: type | None = None) -> Callable[..., Any] | None:
        return self._call if which is self._module else None


def is_watchable(module: Any) -> bool:
    """Tells whether calls of a module can be seen: scripted ones keep their `forward`."""
    return isinstance(module, torch.nn.Module) and not isinstance(module, torch.jit.ScriptModule)


@contextlib.contextmanager
def watching(modules: Iterable[Any]) -> Iterator[list[tuple[torch.nn.Module, Calls]]]:
    """Watches modules inside a `with` block; yields them with their calls."""
    watched = [(module, Calls()) for module in modules if is_watchable(module)]
    with contextlib.ExitStack() as stack:
        for module, calls in watched:
            stack.callback(put_back, module, vars(module).get("forward"))
            module.forward = calls.watching(module.forward, inputs=True)

            def note(*_: Any, calls: Calls = calls) -> None:
                calls.through_module += 1

            stack.callback(module.register_forward_pre_hook(note).remove)
        yield watched


def put_back(module: torch.nn.Module, forward: Any) -> None:
    """Leaves the `forward` that the folder had put into its module, if any."""
    del module.forward
    if forward is not None:
        module.forward = forward
