"""Optional interfaces of models: timed code, the parts of generation, and training steps.

Each iteration of a training model is one step of a run, and runs are verified.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs

from comparative_benchmark.backends.api import Array, GenerationParts
from openxla.benchmark.models.model_interfaces import InferenceModel, TrainingRun

# Makes outputs of the losses and norms of all steps.
Outputs = Callable[[Sequence[tuple[Any, Any]]], Sequence[Any]]


@attrs.frozen(eq=False)
class Taken:
    """A handle on a step: the number of steps that the run has taken, including it."""

    steps: int


@attrs.frozen(kw_only=True)
class StepParts:
    """Parts of a training step that can be run separately, in the order of a step.

    Attributes:
      how: whether a step consists of these `calls`, or is one program while these are separate
        `programs`: a compiler may optimise the whole step differently from its parts.
      parts: name and function of each: `forward`, then `backward` or, if that requires a forward
        pass, `forward_backward`; then `update`, with the gradient's norm.
      wait: waits until the result of a part is complete.
    """

    how: Literal["calls", "programs"]
    parts: Sequence[tuple[str, Callable[[], Any]]]
    wait: Callable[[Any], object]


class TrainingLoop:
    """Takes the steps of a run one by one, and starts again after the last.

    The result of a step depends on those before it. So the outputs of the last timed step are those
    of its whole run: the steps before it were timed as well or were the first ones of the same run,
    and `finish` takes those after it, with the same program.
    """

    def __init__(
        self, run: TrainingRun, batches: Sequence[tuple[Any, ...]], outputs: Outputs
    ) -> None:
        self.run = run
        self._batches, self._outputs = batches, outputs
        self._told: list[tuple[Any, Any]] = []

    def rewind(self) -> None:
        """Goes back to the start if the run has ended; never timed as part of a step."""
        if len(self._told) == len(self._batches):
            self.restart(self._batches)

    def restart(self, batches: Sequence[tuple[Any, ...]]) -> None:
        """Goes back to the start and uses these batches from now on."""
        self._batches, self._told = batches, []
        self.run.start()

    def batch(self) -> tuple[Any, ...]:
        """Returns the first batch, for parts of steps."""
        return self._batches[0]

    def abandon(self) -> None:
        """Goes back to the start, whatever was done to the weights."""
        self.restart(self._batches)

    def dispatch(self) -> Taken:
        """Takes the next step."""
        self.rewind()
        self._told.append(self.run.step(*self._batches[len(self._told)]))
        return Taken(len(self._told))

    def finish(self, handle: Any) -> Any:
        """Returns the outputs of a step's run, after taking its remaining steps.

        Raises:
          RuntimeError: further steps were taken since, so this run is gone.
        """
        if not isinstance(handle, Taken):
            return handle  # finished
        if handle.steps != len(self._told):
            raise RuntimeError("training has continued: an earlier step's outputs are unavailable")
        while len(self._told) < len(self._batches):
            self._told.append(self.run.step(*self._batches[len(self._told)]))
        return tuple(self._outputs(self._told))


class ForeignModel(InferenceModel):
    """A model that runs itself; PyTorch only.

    Attributes:
      replayed: whether `outputs_of` runs the iterations that are verified.
    """

    replayed: bool = False

    @abc.abstractmethod
    def reside(self, inputs: Sequence[Array]) -> tuple[Any, ...]:
        """Writes inputs into the tensors that the foreign code reads, and returns these tensors."""

    @abc.abstractmethod
    def timed(self, *inputs: Any) -> Any:
        """Runs one iteration on the resident inputs; returns a handle on its outputs."""

    @abc.abstractmethod
    def outputs_of(self, handle: Any) -> tuple[Any, ...]:
        """Returns the tensors to verify; never timed."""

    @abc.abstractmethod
    def compile_in_place(self, compile_part: Callable[[Callable[..., Any]], Any]) -> None:
        """Replaces the module that the foreign code calls by a compiled one.

        Args:
          compile_part: `torch.compile` with a backend.

        Raises:
          UnsupportedError: the code calls nothing that can be compiled separately.
        """

    @abc.abstractmethod
    def judged_by(self, inputs: Sequence[Array]) -> tuple[list[Any], list[Any]]:
        """Returns truth and reference of a run on inputs; see `backends.api.Reference`."""

    @abc.abstractmethod
    def notes(self) -> dict[str, Any]:
        """Returns details of the run for results, as plain JSON values."""


# Chosen tokens i32[batch], the logits that they were chosen by, and the cache.
Step = tuple[Any, Any, Any]


class FunctionParts(GenerationParts):
    """Calls two functions that also choose the tokens.

    Args:
      prefill: reads the prompts.
      decode: reads tokens at a position, given the cache.
      positions: position of each step, as `decode` takes it.
      wait: waits until tokens and logits are complete.
      to_host: copies an array of the framework to the host.
    """

    def __init__(
        self,
        prefill: Callable[[], Step],
        decode: Callable[[Any, Any, Any], Step] | None,
        positions: Sequence[Any],
        *,
        wait: Callable[[Any], object],
        to_host: Callable[[Any], Array],
    ) -> None:
        self.steps = len(positions)
        self._prefill: Any = prefill
        self._decode: Any = decode
        self._positions = positions
        self._wait, self._to_host = wait, to_host
        self._next = 0
        self._token: Any = None
        self._cache: Any = None

    def prefill(self) -> Any:
        """See `GenerationParts.prefill`."""
        self._token, logits, self._cache = self._prefill()
        self._next = 0
        return self._token, logits

    def decode(self) -> Any:
        """See `GenerationParts.decode`."""
        position = self._positions[self._next % self.steps]
        self._next += 1
        self._token, logits, self._cache = self._decode(self._token, position, self._cache)
        return self._token, logits

    def synchronize(self, handle: Any) -> None:
        """Waits until both are complete."""
        self._wait(handle)

    def fetch(self, handle: Any) -> tuple[Array, Array]:
        """Copies tokens and logits to the host."""
        tokens, logits = handle
        return self._to_host(tokens), self._to_host(logits)
