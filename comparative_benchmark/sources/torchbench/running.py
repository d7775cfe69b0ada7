"""Runs an object of a folder's class: its steps, the calls in them, and the outputs to verify."""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.utils import _pytree as pytree

from comparative_benchmark.backends.api import Array, UnsupportedError
from comparative_benchmark.sources.torchbench import state
from comparative_benchmark.sources.torchbench.loading import LoadedFolder
from openxla.benchmark.models.pt.tensors import as_tensor

# At most this many numbers of a training step's weights and gradients are verified, spread evenly.
_MOST_JUDGED = 1 << 20
# Types that a call may be given in addition to what `get_module()` returns.
_PLAIN = (torch.Tensor, bool, int, float, str, type(None), torch.dtype, torch.device)
# Gradients below this share of the root mean square of all may be rounding errors.
_NOISE_IN_GRADIENTS = 1e-3


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
    original = vars(module).get(method)
    if original is not None:  # set by the folder, and copied anyway
        setattr(module, method, call)
        return lambda: setattr(module, method, original)
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


class Running:
    """A folder's object, its module and its inputs.

    Attributes:
      made: the folder's object.
      modules: all its modules.
      module: the return value of `get_module()`, or the one module that `eval` calls instead: some
        folders of 2021 keep a second one for inference. None if missing.
      inputs: tensors among the example inputs.
      one_call: whether an iteration of `eval` is one call of the module, and returns no more.
      why_not_function: why the module on its inputs does not represent an iteration; None if it
        does.
      constant: whether `eval` returns only constants, with which anything would agree.
      replayed: whether outputs come from steps that start from the object's initial state.
    """

    def __init__(self, folder: LoadedFolder, device: str | None = None) -> None:
        self._folder = folder
        self._test = folder.request.test
        self.made = folder.make(device)
        self.module: Any = None
        self._example: Any = ()
        # Positional and named arguments of an iteration's call of the module, if it was seen.
        self._call: tuple[Any, Any] | None = None
        try:
            with folder.refusing(NotImplementedError), torch.enable_grad():
                self.module, self._example = _pair(self.made.get_module())
        except NotImplementedError:
            pass  # it can be run, but neither compiled nor exported
        self.inputs = state.leaves(self._example)
        self.modules = state.modules_of(self.made, self.module)
        if (device or folder.device) != "cpu":
            self._take_weights_of(Running(folder, "cpu"))
        self._step = folder.step_of(self.made)
        self._calls, self._seen = Calls(), Calls()
        self._is_watched = False
        self._unwatch: Callable[[], None] = lambda: None
        self.replayed = self._test == "train"
        self.one_call = self._returns_more = False
        self._constant: list[bool] = []
        self.constant = False
        self.why_not_function: str | None = "a training step is more than one call to its module"
        self._state: state.State | None = state.State(self.made, self.modules, self.inputs)
        if self._test == "eval":
            with folder.refusing():
                self._try_out()

    def run(self) -> tuple[Any, Any]:
        """Runs an iteration; returns its return value, and the module's last output."""
        self._calls.count = 0
        returned = self._step()
        return returned, self._calls.last

    def outputs_of(self, handle: Any) -> tuple[torch.Tensor, ...]:
        """Returns the outputs to verify, from `run` or a replay.

        Raises:
          UnsupportedError: the run has no outputs.
        """
        if self._test == "train":
            outputs = self._gradients_and_weights()
        else:
            if self._state is not None:
                self._state.restore()
                handle = self.run()
            outputs = self._judged_outputs(state.leaves(handle[1] if self.one_call else handle[0]))
        if not outputs:
            raise UnsupportedError(
                f"{self._test} returns no tensor and does not consist of a single call to "
                "the module from get_module(), so nothing can be verified"
            )
        return tuple(value.detach() for value in outputs)

    def loss_of(self, handle: tuple[Any, Any]) -> float | None:
        """Returns the loss of a training step that returns it."""
        leaves = state.leaves(handle[0]) if handle else ()
        return float(leaves[0].detach()) if len(leaves) == 1 and leaves[0].numel() == 1 else None

    def write(self, values: Sequence[Array]) -> None:
        """Writes arrays into the inputs, in the inputs' types."""
        with torch.no_grad():
            for resident, value in zip(self.inputs, values, strict=True):
                resident.copy_(as_tensor(value))

    def watch(self) -> None:
        """Keeps the module's outputs from now on, if a run is verified by them."""
        if self.one_call and not self._is_watched:
            call = self._calls.watching(self.module.forward)
            self._is_watched, self._unwatch = True, put_in_place(self.module, "forward", call)

    def refusing(self) -> AbstractContextManager[None]:
        """See `LoadedFolder.refusing`."""
        return self._folder.refusing()

    def function(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the module's outputs on inputs."""
        called = _call_on(self._example) if self._call is None else self._call
        flat, spec = pytree.tree_flatten(called)
        given = iter(values)
        filled = [next(given) if isinstance(item, torch.Tensor) else item for item in flat]
        arguments, named = pytree.tree_unflatten(filled, spec)
        return self._judged_outputs(state.leaves(self.module(*arguments, **named)))

    def _judged_outputs(self, values: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Returns the outputs in the form to verify, without those that are always constant."""
        judged = state.judged(values)
        if any(self._constant) and not self.constant and len(self._constant) == len(judged):
            return tuple(v for v, is_one in zip(judged, self._constant, strict=True) if not is_one)
        return judged

    def compile_in_place(self, compile_part: Callable[[Callable[..., Any]], Any]) -> None:
        """Has the module compiled when it is next called, wherever the folder keeps it."""
        module, through_module = self._compiled_module()
        if not isinstance(module, torch.nn.Module):
            raise UnsupportedError("get_module() returns no module that can be compiled")
        self._unwatch()
        self._is_watched = True
        call = module._call_impl if through_module else module.forward  # noqa: SLF001

        def called(*arguments: Any, **named: Any) -> Any:
            # Wrapped in our own function, because Dynamo skips PyTorch's, which `Module.compile`
            # passes.
            return call(*arguments, **named)

        compiled = compile_part(called)
        watched = self._calls.watching(compiled) if self.one_call else compiled
        # The attribute that a call of the module looks up first, wherever the folder keeps it.
        method = "_compiled_call_impl" if through_module else "forward"
        put_in_place(module, method, watched)

    def _compiled_module(self) -> tuple[Any, bool]:
        """Returns the module to compile, and whether the module or its `forward` is called."""
        if self._test == "train" and self._state is not None:
            with watching(self._candidates()) as seen:
                self._step()
            self._state.restore()
            self._seen = self._choose(seen)
        return self.module, self._seen.through_module > 0 or self._seen.count == 0

    def widen(self) -> None:
        """Makes it compute in float64 from here on."""
        if self._state is not None:
            self._state.restore()
        state.widen(self.made, self.modules, self._example)
        if self._state is not None:
            self._state.keep_weights()

    def roughen(self, seed: int) -> None:
        """Moves its weights by less than a rounding step, in a different way for each seed."""
        if self._state is not None:
            self._state.restore()
        state.roughen(self.modules, seed)
        if self._state is not None:
            self._state.keep_weights()

    def _candidates(self) -> list[Any]:
        """Returns the modules that an iteration may call: those that the object holds directly."""
        held = state.held(self.made, torch.nn.Module)
        inside = {id(part) for one in held for part in one.modules() if part is not one}
        others = [one for one in held if one is not self.module and id(one) not in inside]
        return [self.module, *others]

    def _choose(self, seen: list[tuple[torch.nn.Module, Calls]]) -> Calls:
        """Returns the module's calls; switches to another module if only that is called, once."""
        called = [(module, calls) for module, calls in seen if calls.count]
        for module, calls in called:
            if module is self.module:
                return calls
        if len(called) != 1:
            return Calls()
        module, calls = called[0]
        if self._test == "train":
            self.module = module
        elif calls.count == 1 and calls.example is not None:
            self.module, self._example = module, calls.example
            self.inputs = state.leaves(self._example)
            if self._state is not None:
                self._state.leave_out(self.inputs)
        return calls

    def _try_out(self) -> None:
        """Finds out what an iteration calls, and whether two iterations return the same.

        Raises:
          UnsupportedError: only the first iteration computes anything.
        """
        buffers = [value for module in self.modules for value in module.buffers()]
        copies = [value.clone() for value in buffers]
        with watching(self._candidates()) as seen:
            returned = self._step()
            self._seen = calls = self._choose(seen)
            last, given_back = calls.last, state.leaves(returned)
            self.one_call = calls.count == 1 and bool(state.leaves(last))
            # Tensors of `torch.func` transforms are valid only inside the transform.
            is_whole = not any(map(is_functorch_wrapped_tensor, state.leaves(last)))
            if self.one_call and not (is_whole and _are_among(given_back, state.leaves(last))):
                self.one_call, self._returns_more = False, True
            self.why_not_function = self._why_not_function(calls, same(copies, buffers))
            first = [value.clone() for value in state.leaves(last if self.one_call else returned)]
            self._constant = [state.is_constant(value) for value in state.judged(tuple(first))]
            self.constant = bool(first) and all(self._constant)
            called = sum(item.count for _, item in seen)
            returned = self._step()
            is_called_again = sum(item.count for _, item in seen) > called
            second = state.leaves(calls.last if self.one_call else returned)
        again = state.leaves(returned)
        if called and not is_called_again and _are_the_same_memory(given_back, again):
            raise UnsupportedError(
                "eval() calls its module only in the first iteration and then returns the cached "
                "result, so there is nothing to measure"
            )
        if same(first, second):
            self._state = None
            return
        self.replayed = True
        self.why_not_function = "the output differs between calls: it is random or depends on state"

    def _why_not_function(self, calls: Calls, keeps_buffers: bool) -> str | None:
        if self.module is None:
            return "get_module() is not implemented"
        if not keeps_buffers:
            return "eval() changes its module's buffers, as batch normalization does in training"
        if self._returns_more:
            return "eval() and the module from get_module() return different tensors"
        if not self.one_call:
            return f"eval() must call the module once and get tensors (calls: {calls.count})"
        if not same(state.leaves((calls.arguments, calls.named)), self.inputs):
            return "eval() passes the module inputs that get_module() does not return"
        called = (calls.arguments, calls.named)
        shown = pytree.tree_leaves(self._example)
        for item in pytree.tree_leaves(called):
            # Each call may change its other arguments, as it would a cache.
            if not isinstance(item, _PLAIN) and not any(item is one for one in shown):
                return f"eval() passes the module an object of type {type(item).__name__}"
        self._call = called
        return None

    def _gradients_and_weights(self) -> tuple[torch.Tensor, ...]:
        """Returns gradients, if the folder leaves any, and weights after two steps, a row each.

        Where a gradient is only a rounding error, Adam makes a whole step of it, in any direction.
        So steps are damped where the gradient is small compared with all others.
        """
        assert self._state is not None
        self._state.restore()
        self.run()
        self._state.restore_moved()
        trained = [p for m in self.modules for p in m.parameters() if p.requires_grad]
        stride = max(1, math.ceil(sum(p.numel() for p in trained) / _MOST_JUDGED))
        before = [p.detach().reshape(-1)[::stride].clone() for p in trained]
        self.run()
        with_gradient = [p for p in trained if p.grad is not None]
        squares = sum(float(p.grad.double().square().sum()) for p in with_gradient)
        count = sum(p.numel() for p in with_gradient) or 1
        noise = squares / count * _NOISE_IN_GRADIENTS**2
        picked: list[list[torch.Tensor]] = [[], []]
        for parameter, start in zip(trained, before, strict=True):
            weights = parameter.detach().reshape(-1)[::stride]
            if parameter.grad is not None:
                gradient = parameter.grad.to_dense().reshape(-1)[::stride]
                picked[0].append(gradient)
                if noise:
                    signal = gradient.double().square()
                    damping = (signal / (signal + noise)).to(weights.dtype)
                    weights = start + (weights - start) * damping
            picked[1].append(weights)
        return tuple(torch.cat(values) for values in picked if values)

    def _take_weights_of(self, other: "Running") -> None:
        """Takes the weights of an object made on the CPU: a GPU draws other random numbers."""
        with torch.no_grad():
            for mine, theirs in zip(self.modules, other.modules, strict=True):
                mine.load_state_dict(theirs.state_dict())


def _pair(returned: Any) -> tuple[Any, Any]:
    """Returns a module and its inputs; some folders return a module alone, or nothing."""
    if isinstance(returned, NotImplementedError):
        raise returned
    if isinstance(returned, tuple | list) and len(returned) == 2:
        return returned[0], state.plain(returned[1])
    return (returned, ()) if callable(returned) else (None, ())


def _call_on(example: Any) -> tuple[Any, Any]:
    """Returns call arguments from `get_module()`; a dictionary holds named ones."""
    if isinstance(example, Mapping):
        return (), dict(example)
    return (tuple(example) if isinstance(example, tuple | list) else (example,)), {}


def _are_among(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Returns whether all of `some` are in `others`, in any shape."""
    flat = [value.reshape(-1) for value in others]
    return all(any(same([one.reshape(-1)], [other]) for other in flat) for one in some)


def _are_the_same_memory(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Returns whether tensors, at least one, share their memory pairwise; both must be alive."""
    return len(some) == len(others) > 0 and all(
        one.layout is torch.strided
        and other.layout is torch.strided
        and one.numel() > 0
        and one.data_ptr() == other.data_ptr()
        for one, other in zip(some, others, strict=True)
    )


def same(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Returns whether tensors are equal in number, type, shape and value; NaN counts as 0."""
    return len(some) == len(others) and all(
        one.dtype == other.dtype
        and one.shape == other.shape
        and torch.equal(torch.nan_to_num(one.detach()), torch.nan_to_num(other.detach()))
        for one, other in zip(some, others, strict=True)
    )
