"""Compiled programs bound to resident buffers, and the base class of backends that run them.

A model that generates is two programs, prefill and decode; any other is one. Shared by all
runtimes that execute exported programs with blocking calls. Independent of frameworks and
runtimes, which are behind `Program` and `Buffer`.
"""

import math
from collections.abc import Callable, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, Protocol

import attrs
import numpy as np

from comparative_benchmark.backends.api import (
    Array,
    Backend,
    BackendContext,
    GenerationParts,
    UnsupportedError,
)


class Buffer(Protocol):
    """Memory of one input or output on the device."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def write(self, values: Array) -> None:
        """Copies values in from the host."""

    def copy_to(self, target: Array) -> None:
        """Copies the content to an array on the host, of this shape and type."""


class Program(Protocol):
    """A program that a runtime has compiled."""

    def inputs(self) -> list[Any]:
        """Makes a buffer for each input."""

    def outputs(self) -> list[Any]:
        """Makes a buffer for each output."""

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Callable[[], object]:
        """Returns a blocking function that runs the program on these buffers."""

    def bind_inputs(self, inputs: Sequence[Any]) -> Callable[[], Any]:
        """Returns a function that runs it on these inputs and returns newly allocated outputs."""

    def take(self, allocated: Any, outputs: Sequence[Any]) -> None:
        """Copies the return value of a run of `bind_inputs` to buffers."""


# Each byte of a poisoned integer: not a small number, and not a plausible size.
_PATTERN = b"\x5a"


@attrs.frozen(kw_only=True)
class GenerationPlan:
    """How to call the two programs of a model that generates.

    `prefill` takes the inputs, and returns the first tokens i32[batch], their logits and the state.
    `decode` takes tokens, their position i64[1] and the state, and returns the next tokens, their
    logits and the changed parts of the state.

    Attributes:
      steps: number of calls of `decode` after `prefill`.
      first_position: position of the first new token.
      changes: for each part of the state, whether `decode` returns it.
    """

    steps: int
    first_position: int
    changes: tuple[bool, ...]


class SingleProgram:
    """A program whose inputs are written once."""

    def __init__(
        self, program: Program, inputs: Sequence[Array], *, allocates: bool = False
    ) -> None:
        """Makes buffers and writes the inputs.

        Args:
          program: the program to run.
          inputs: its inputs.
          allocates: whether each run gets new memory for its outputs instead of the same buffers.

        Raises:
          ValueError: the inputs do not match the program.
        """
        self._given = program.inputs()
        self.replace_inputs(inputs)
        self._outputs = program.outputs()
        self._take = program.take if allocates else None
        self.run: Callable[[], Any] = (
            program.bind_inputs(self._given)
            if allocates
            else program.bind(self._given, self._outputs)
        )

    def replace_inputs(self, inputs: Sequence[Array]) -> None:
        """Writes other inputs of the same shapes and types."""
        _write_all(self._given, inputs)

    def poison_outputs(self) -> None:
        """Fills the outputs with values that no run writes."""
        for buffer in self._outputs:
            buffer.write(poison(buffer.shape, buffer.dtype))

    def fetch(self, ran: Any = None) -> list[Array]:
        """Returns copies of the outputs on the host; `ran` is the return value of `run`."""
        if self._take is not None:
            self._take(ran, self._outputs)
        return [_read(buffer) for buffer in self._outputs]


class GenerationLoop:
    """Prefill once, then one token after the other; the host only passes the state on.

    The state has two sets of buffers. Each step reads from one and writes to the other, so nothing
    is copied between steps; prefill writes to the first. Parts that never change have one buffer.
    """

    def __init__(
        self, prefill: Program, decode: Program, plan: GenerationPlan, inputs: Sequence[Array]
    ) -> None:
        """Makes buffers and writes the inputs of `prefill`.

        Raises:
          ValueError: the inputs do not match the program.
        """
        self.plan = plan
        self._given = prefill.inputs()
        self.replace_inputs(inputs)
        first = prefill.outputs()
        second = decode.outputs()
        self._position = position = decode.inputs()[1]
        states = (first[2:], _merged(first[2:], second[2:], plan.changes))
        self._tokens, self._logits = (first[0], second[0]), (first[1], second[1])
        self._prefill = prefill.bind(self._given, first)
        # A step from the first set to the second, and one back.
        self._decode = (
            decode.bind([first[0], position, *states[0]], second),
            decode.bind(
                [second[0], position, *states[1]], [*first[:2], *compress(states[0], plan.changes)]
            ),
        )
        self._side = 0
        batch, *vocabulary = first[1].shape
        count = 1 + plan.steps
        self._all_tokens = np.empty((batch, count), first[0].dtype)
        self._all_logits = np.empty((batch, count, *vocabulary), first[1].dtype)

    def replace_inputs(self, inputs: Sequence[Array]) -> None:
        """Writes other inputs of `prefill`, of the same shapes and types."""
        self._own_inputs = tuple(inputs)
        _write_all(self._given, inputs)

    def poison_outputs(self) -> None:
        """Fills the logits only: tokens are used as indices, and the state is read, then masked."""
        for buffer in self._logits:
            buffer.write(poison(buffer.shape, buffer.dtype))

    def run(self) -> None:
        """Generates."""
        self._generate(None)

    def fetch(self, ran: Any = None) -> list[Array]:
        """Returns copies of the tokens [batch, count] and their logits [batch, count, vocab]."""
        return [self._all_tokens.copy(), self._all_logits.copy()]

    def run_with(self, inputs: Sequence[Array]) -> list[Array]:
        """Generates from other inputs, and returns the outputs.

        Args:
          inputs: those of `prefill`, and the tokens to continue with instead of the chosen ones.
        """
        _write_all(self._given, inputs[:-1])
        self._generate(inputs[-1])
        outputs = self.fetch()
        _write_all(self._given, self._own_inputs)
        return outputs

    def start(self) -> int:
        """Reads the prompts; returns the set of buffers that holds the first tokens."""
        self._prefill()
        self._side = 0
        return 0

    def step(self, index: int) -> int:
        """Reads the last tokens as those of step `index`; returns the set that holds the next."""
        self._position.write(np.array([self.plan.first_position + index], np.int64))
        self._decode[self._side]()
        self._side = 1 - self._side
        return self._side

    def read(self, side: int) -> tuple[Array, Array]:
        """Returns copies of the tokens and logits in a set of buffers."""
        return _read(self._tokens[side]), _read(self._logits[side])

    def _generate(self, forced_tokens: Array | None) -> None:
        self._note(0, self.start())
        for index in range(self.plan.steps):
            if forced_tokens is not None:
                self._tokens[self._side].write(np.ascontiguousarray(forced_tokens[:, index]))
            self._note(index + 1, self.step(index))

    def _note(self, index: int, side: int) -> None:
        self._tokens[side].copy_to(self._all_tokens[:, index])
        self._logits[side].copy_to(self._all_logits[:, index])


class LoopParts(GenerationParts):
    """Prefill and decode of a loop, called one by one."""

    def __init__(self, loop: GenerationLoop) -> None:
        self._loop = loop
        self.steps = loop.plan.steps
        self._index = 0

    def prefill(self) -> Any:
        """Reads the prompts."""
        self._index = 0
        return self._loop.start()

    def decode(self) -> Any:
        """Reads the tokens chosen last."""
        side = self._loop.step(self._index)
        self._index = (self._index + 1) % self.steps
        return side

    def synchronize(self, handle: Any) -> None:
        """Does nothing: the calls are synchronous."""

    def fetch(self, handle: Any) -> tuple[Array, Array]:
        """Returns copies of tokens and logits."""
        return self._loop.read(handle)


def poison(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Returns values to fill an output buffer with: NaN, or a byte pattern if the type has none.

    Kind `V` are the 16-bit floats that NumPy does not know.
    """
    if dtype.kind in "fcV":
        return np.full(shape, np.nan, dtype)
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    return np.frombuffer(_PATTERN * (math.prod(shape) * dtype.itemsize), dtype).reshape(shape)


def _merged(state: Sequence[Any], anew: Sequence[Any], changes: Sequence[bool]) -> list[Any]:
    """Returns the state with its changing parts replaced by `anew`, in order."""
    fresh = iter(anew)
    return [next(fresh) if changed else part for part, changed in zip(state, changes, strict=True)]


def _write_all(buffers: Sequence[Any], values: Sequence[Array]) -> None:
    if len(buffers) != len(values):
        raise ValueError(f"number of inputs: expected {len(buffers)}, got {len(values)}")
    for index, (buffer, value) in enumerate(zip(buffers, values, strict=True)):
        if (buffer.shape, buffer.dtype) != (value.shape, value.dtype):
            raise ValueError(
                f"input {index}: expected {buffer.dtype}{list(buffer.shape)}, "
                f"got {value.dtype}{list(value.shape)}"
            )
        buffer.write(value)


def _read(buffer: Any) -> Array:
    target: Array = np.empty(buffer.shape, buffer.dtype)
    buffer.copy_to(target)
    return target


SYNCHRONOUS = "synchronous: the host waits inside the call"


class ResidentBackend(Backend):
    """Runs programs that a subclass's `compile` has bound to resident buffers."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._model: Any = None
        self._arrays: tuple[Array, ...] = ()
        self._paths: Sequence[Path] = ()
        self._bound: Any = None
        self._run: Any = None

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Keeps model and inputs for `compile`: there is no device before there is a program."""
        self._model, self._arrays = model, tuple(inputs)

    def dispatch(self) -> Any:
        """Runs the program, which returns when its outputs are complete."""
        return self._run()

    def synchronize(self, outputs: Any) -> None:
        """Does nothing: `dispatch` is synchronous."""

    def fetch(self, outputs: Any) -> list[Any]:
        """Copies the outputs to the host."""
        return list(self._bound.fetch(outputs))

    def replace_inputs(self, inputs: Sequence[Array]) -> bool:
        """Writes them into the program's buffers."""
        self._arrays = tuple(inputs)
        self._bound.replace_inputs(inputs)
        return True

    def poison_outputs(self) -> None:
        """Fills the output buffers."""
        self._bound.poison_outputs()

    def run_with(self, inputs: Sequence[Array]) -> list[Any] | None:
        """Generates along given tokens; None for a model that is one program."""
        if not isinstance(self._bound, GenerationLoop):
            return None
        return list(self._bound.run_with(inputs))

    def generation_parts(self) -> GenerationParts:
        """Returns the two programs of a model that generates.

        Raises:
          UnsupportedError: the model is one program.
        """
        if not isinstance(self._bound, GenerationLoop):
            return super().generation_parts()
        return LoopParts(self._bound)

    def release(self) -> None:
        """Releases the programs."""
        self._bound = self._run = None

    def _take_model(self) -> Any:
        """Returns and forgets the model: its weights would count as the program's memory."""
        model, self._model = self._model, None
        return model

    def _bind(self, programs: Sequence[Program], plan: GenerationPlan | None) -> None:
        """Writes the inputs (`h2d`); `dispatch` then runs these programs.

        Raises:
          UnsupportedError: allocated outputs were requested for a model that generates.
        """
        allocates = self.output_mode() == "allocated"
        if allocates and plan is not None:
            raise UnsupportedError(
                "allocated outputs are not supported for generative models here: steps pass their "
                "state through two sets of bound buffers"
            )
        with self.context.phase("h2d"):
            if plan is None:
                self._bound = SingleProgram(programs[0], self._arrays, allocates=allocates)
            else:
                self._bound = GenerationLoop(programs[0], programs[1], plan, self._arrays)
        self._run = self._bound.run

    def _only_path(self, runtime: str) -> Path:
        """Returns the program's file, for a profiler.

        Raises:
          UnsupportedError: the model generates: its two programs alternate, each from the state
            that the other left.
        """
        if len(self._paths) != 1:
            raise UnsupportedError(
                f"{runtime} cannot profile a generative model, whose two programs alternate; "
                "profile a case that only scores its input"
            )
        return self._paths[0]
