"""Training steps as iterations: each is one of a run's steps, and the run is what is verified."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs

from openxla.benchmark.models.model_interfaces import TrainingRun

# Makes outputs of the losses and norms of all steps.
Outputs = Callable[[Sequence[tuple[Any, Any]]], Sequence[Any]]


@attrs.frozen(eq=False)
class Taken:
    """A handle on a step: how many steps the run has taken with it."""

    steps: int


@attrs.frozen(kw_only=True)
class StepParts:
    """Parts of a training step that can be run apart, in the order of a step.

    Attributes:
      how: whether a step is these `calls`, or one program beside which these are `programs` of
        their own: a compiler may have made something else of all of them together.
      parts: name and function of each: `forward`, then `backward` or, where that cannot be had
        without a forward pass, `forward_backward`; then `update`, with the gradient's norm.
      wait: waits until what a part gave is complete.
    """

    how: Literal["calls", "programs"]
    parts: Sequence[tuple[str, Callable[[], Any]]]
    wait: Callable[[Any], object]


class TrainingLoop:
    """Takes the steps of a run one by one, and starts again after the last.

    What a step gives follows from those before it. So the outputs of the last step that was timed
    are those of its whole run: the steps before it have been timed as well or were the first ones
    of the same run, and those after it are taken when the outputs are asked for, by the same
    program.
    """

    def __init__(
        self, run: TrainingRun, batches: Sequence[tuple[Any, ...]], outputs: Outputs
    ) -> None:
        self.run = run
        self._batches, self._outputs = batches, outputs
        self._told: list[tuple[Any, Any]] = []

    def rewind(self) -> None:
        """Goes back to the start if the run is at its end; no part of any step."""
        if len(self._told) == len(self._batches):
            self.restart(self._batches)

    def restart(self, batches: Sequence[tuple[Any, ...]]) -> None:
        """Goes back to the start, from where on the run takes these batches."""
        self._batches, self._told = batches, []
        self.run.start()

    def batch(self) -> tuple[Any, ...]:
        """Returns the first batch, for parts of steps."""
        return self._batches[0]

    def abandon(self) -> None:
        """Goes back to the start, whatever has been done to the weights."""
        self.restart(self._batches)

    def dispatch(self) -> Taken:
        """Takes the next step."""
        self.rewind()
        self._told.append(self.run.step(*self._batches[len(self._told)]))
        return Taken(len(self._told))

    def finish(self, handle: Any) -> Any:
        """Returns the outputs of the run that a step belongs to, and takes the steps that it lacks.

        Raises:
          RuntimeError: steps have been taken since, so that this run is gone.
        """
        if not isinstance(handle, Taken):
            return handle  # finished
        if handle.steps != len(self._told):
            raise RuntimeError("training went on: the outputs of an earlier step are gone")
        while len(self._told) < len(self._batches):
            self._told.append(self.run.step(*self._batches[len(self._told)]))
        return tuple(self._outputs(self._told))
