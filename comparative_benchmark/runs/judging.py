"""Judges the outputs of a trial's runs, whatever kind of model it is."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy.typing as npt

from comparative_benchmark.judge.generation_verification import (
    verify_forced_run,
    verify_free_run,
    verify_same_run,
)
from comparative_benchmark.judge.verification import (
    Verification,
    open_array,
    sum_length,
    verify,
)
from comparative_benchmark.runs.trial import Trial
from openxla.benchmark.artifacts.workload_store import Due
from openxla.benchmark.models.generation import TOKENS
from openxla.benchmark.training import update_check
from openxla.benchmark.training.architecture import trained
from openxla.benchmark.training.optimizers import optimizer_of
from openxla.benchmark.workloads import generated_tokens, training_of

# Runs the model once on input files and returns the files of its outputs; the name tells such runs
# apart.
RunWith = Callable[[Sequence[Path], str], Sequence[Path]]


class Judge:
    """Holds what the outputs of a trial's runs on one input are judged by.

    Args:
      trial: whose outputs.
      due: that input, truth and reference.
      second: whether it is the second input.

    Attributes:
      due: that input, truth and reference.
      generates: whether the model continues prompts, and is judged step by step.
      trains: whether an iteration is a training step.
    """

    def __init__(self, trial: Trial, due: Due, *, second: bool = False) -> None:
        self.generates = generated_tokens(trial.case) is not None
        self.trains = training_of(trial.case) is not None
        self.due = due
        self._due = (due.truth, due.reference, trial.verify_parameters)
        self._parameters = trial.case.model.model_parameters
        # The names of its weights are known to the framework alone.
        self._is_own = trial.case.model.model_impl.architecture is None
        self._data_type = trial.workload.data_type
        shapes = [[open_array(path).shape for path in paths] for paths in (due.inputs, due.truth)]
        self._longest_sum = sum_length(*shapes)
        self._least_db = [] if trial.noise is None else trial.noise.least_db(second=second)

    def verify(self, outputs: Sequence[Path]) -> Verification:
        """Judges the outputs of a run on the input.

        If the model generates, the steps behind the verdict's `divergences` are still open: see
        `verify_rest`.
        """
        if self.generates:
            return verify_free_run(outputs, *self._due, data_type=self._data_type)
        return verify(
            outputs,
            *self._due,
            neighbours=self.due.neighbours_by_output,
            longest_sum=self._longest_sum,
            least_db=self._least_db,
        )

    def update_problem(
        self, after: Mapping[str, npt.NDArray[Any]]
    ) -> tuple[float | None, str | None]:
        """Judges the weights of a model in training after a single update of the optimizer.

        Args:
          after: the first elements of each weight.

        Returns:
          The error as a share of the limit, and the problem; None for a right update.
        """
        missing = set() if self._is_own else set(trained(self._parameters)) ^ set(after)
        if not after:
            return None, "a single update changes no weight"
        if missing:
            return None, f"a single update lacks or adds weights: {', '.join(sorted(missing))}"
        error, name = update_check.worst_error(optimizer_of(self._parameters), after)
        if error <= 1:
            return error, None
        return error, (
            f"a single update after {update_check.STEPS_BEFORE} steps changes {name} wrongly: its "
            f"error is {error:.3g} times the limit"
        )

    def verify_rest(
        self, outputs: Sequence[Path], verdict: Verification, run_with: RunWith
    ) -> Verification:
        """Judges what a run leaves open that left the truth's tokens at a near-tie.

        Args:
          outputs: of that run.
          verdict: on it, see `verify`; returned as it is where nothing is open.
          run_with: runs the model on the input and the tokens to be fed.
        """
        if not verdict.passed or not verdict.divergences:
            return verdict
        inputs, truth_tokens = self.due.inputs, self.due.truth[TOKENS]
        along_truth = run_with([*inputs, truth_tokens], "fed-with-the-truth")
        fed = verify_forced_run(along_truth, *self._due, data_type=self._data_type)
        if not fed.passed:
            return attrs.evolve(fed, reason=f"fed with the truth's tokens, {fed.reason}")
        along_own = run_with([*inputs, outputs[TOKENS]], "fed-with-its-own")
        same = verify_same_run(outputs, along_own, *self._due, data_type=self._data_type)
        if not same.passed:
            return attrs.evolve(same, reason=f"fed with its own tokens, {same.reason}")
        # Where the timed run left the truth's tokens is what a reader wants to know.
        return attrs.evolve(fed, divergences=verdict.divergences)
