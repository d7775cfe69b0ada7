"""Training steps as iterations: each iteration is one step of a run, and runs are verified."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs

from openxla.benchmark.models.model_interfaces import TrainingRun

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
            raise RuntimeError("training went on: the outputs of an earlier step are gone")
        while len(self._told) < len(self._batches):
            self._told.append(self.run.step(*self._batches[len(self._told)]))
        return tuple(self._outputs(self._told))
