"""Interfaces that a model must implement to be benchmarked; of generation, too.

A model module provides `create_model(**model_parameters)`, which returns one of these.

Greedy generation has a static key-value cache, the same in every framework. A prompt of `prompt`
tokens is read at once (`prefill`), then tokens are fed one at a time (`decode`). These are separate
functions, so that the time to the first token and the time per further token can be measured
separately. The cache has `prompt + max_new_tokens` positions from the start: no shape depends on
the step, so each function is compiled once.

The next token is the one with the largest logit; ties go to the lower token. Nothing ends a
sequence early, so every run does the same work.

**Verification.** If rounding changes one choice between two nearly equal logits, all following
tokens differ, and outputs of a free run can no longer be compared. Therefore a run accepts the
tokens to feed (`forced_tokens`: teacher forcing, Williams and Zipser 1989): each step does the same
work and returns the token that it would have chosen, but continues with the given one. All runs are
verified by their logits along the tokens that the truth has chosen.
"""

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openxla.benchmark import testdata
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.architectures.base import integer

TOKENS, LOGITS = 0, 1  # indices of the outputs


class GenerationModel(abc.ABC):
    """A model that continues prompts; a base class in addition to the framework's own.

    If a framework takes weights as arguments (JAX), they come first in each method, and the methods
    are pure. If it holds them as parameters (PyTorch), `decode` may write into the given cache.
    """

    max_new_tokens: int

    @abc.abstractmethod
    def prefill(self, *arguments: Any) -> tuple[Any, Any]:
        """Reads the prompts.

        Arguments: input_ids i32[batch, prompt].

        Returns:
          Logits of the first new token, f32[batch, vocab], and the cache.
        """

    @abc.abstractmethod
    def decode(self, *arguments: Any) -> tuple[Any, Any]:
        """Reads one token.

        Arguments: token i32[batch]; its position, an integer, counted from the start of the prompt;
        the cache.

        Returns:
          Logits of the next token, f32[batch, vocab], and the cache.
        """

    @abc.abstractmethod
    def generate(self, *arguments: Any) -> tuple[Any, Any]:
        """Prefills once and decodes `max_new_tokens - 1` times.

        Arguments: input_ids i32[batch, prompt]; optionally forced_tokens i32[batch,
        max_new_tokens], the tokens to feed instead of the chosen ones.

        Returns:
          The chosen tokens, i32[batch, max_new_tokens], and their logits,
          f32[batch, max_new_tokens, vocab], or float64 for a float64 model.
        """

    def first_position(self, *inputs: Any) -> int:
        """Returns the position of the first new token, where `decode` reads it.

        By default it follows the prompt. Models that count differently override this, e.g. an
        encoder-decoder, whose new tokens follow a start token.
        """
        return int(inputs[0].shape[1])

    @staticmethod
    def verification_inputs(inputs: Sequence[Any], truth: Sequence[Any]) -> tuple[Any, ...]:
        """Returns inputs for a run whose logits can be compared with the truth's.

        Args:
          inputs: inputs of the free run that computed the truth.
          truth: its outputs.
        """
        return (*inputs, truth[TOKENS])


def max_new_tokens(parameters: Parameters) -> int | None:
    """Returns the number of tokens that a model generates; None if it only scores its input.

    Raises:
      DefinitionError: the parameter is not a positive integer.
    """
    if "max_new_tokens" not in parameters:
        return None
    return integer(parameters, "max_new_tokens")


if TYPE_CHECKING:
    import numpy.typing as npt


class InferenceModel(abc.ABC):
    """A model that maps inputs to outputs.

    The harness calls `preprocess(generate_inputs(...))` once for each input set, keeps the arrays,
    and passes the same bytes to `forward` of every implementation that shares the workload.

    The timed program is also verified on a second input, which is derived from the first (see
    `second_input`). If the result would be meaningless for a model, it can define a method
    `second_inputs(*inputs)`, which returns arrays of the same shapes and types.
    """

    @abc.abstractmethod
    def generate_default_inputs(self) -> Any:
        """Returns raw input, e.g. a text or a picture."""

    def generate_inputs(self, input_data: str) -> Any:
        """Returns the raw input of that name; see `testdata.vary` for the suite's names.

        Raises:
          DefinitionError: the model has no such input.
        """
        return testdata.vary(self.generate_default_inputs(), input_data)

    @abc.abstractmethod
    def preprocess(self, raw_input: Any) -> Any:
        """Returns the arguments of `forward`: one array, or a tuple of arrays."""

    @abc.abstractmethod
    def forward(self, *inputs: Any) -> Any:
        """Runs the model on device-resident inputs; returns one array or a tuple of arrays."""

    def postprocess(self, outputs: Any) -> Any:
        """Converts outputs to a readable form; never timed."""
        return outputs


class TrainingRun(abc.ABC):
    """Weights and optimizer state during the steps of a run.

    If a framework updates weights in place, earlier weights are lost after each step.
    """

    @abc.abstractmethod
    def start(self) -> None:
        """Resets weights and optimizer to the state before the first step."""

    @abc.abstractmethod
    def step(self, *batch: Any) -> tuple[Any, Any]:
        """Runs forward, backward and the update; returns loss and norm of the gradient."""

    @abc.abstractmethod
    def weights(self) -> "Mapping[str, npt.NDArray[Any]]":
        """Returns the current trained weights on the host, by the checkpoint's names."""


class TrainingModel(InferenceModel):
    """A model that is trained.

    Its inputs are the batches of all steps. `forward` takes all steps from the checkpoint and
    returns their result; a backend takes them one at a time, each as an iteration.
    """

    @abc.abstractmethod
    def batches(self, inputs: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Returns the arguments of each step."""
