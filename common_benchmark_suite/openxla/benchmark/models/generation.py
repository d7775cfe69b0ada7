"""Greedy generation with a static key-value cache, the same in every framework.

A prompt of `prompt` tokens is read at once (`prefill`), then tokens are fed one at a time
(`decode`). These are separate functions, so that the time to the first token and the time per
further token can be measured separately. The cache has `prompt + max_new_tokens` positions from the
start: no shape depends on the step, so each function is compiled once.

The next token is the one with the largest logit; ties go to the lower token. There is no
end-of-sequence token, so every run does the same work.

**Verification.** If rounding changes one choice between two nearly equal logits, all following
tokens differ, and outputs of a free run can no longer be compared. Therefore a run accepts the
tokens to feed (`forced_tokens`: teacher forcing, Williams and Zipser 1989): each step does the same
work and returns the token that it would have chosen, but continues with the given one. All runs are
verified by their logits along the tokens that the truth has chosen.
"""

import abc
from collections.abc import Sequence
from typing import Any

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
          The chosen tokens, i32[batch, max_new_tokens], and their logits, f32[batch,
              max_new_tokens,
          vocab], or float64 for a float64 model.
        """

    def first_position(self, *inputs: Any) -> int:
        """Returns the position of the first new token, where `decode` reads it.

        By default it follows the prompt. Models that count differently override this, e.g. an
        encoder-decoder, whose new tokens follow a start token.
        """
        return int(inputs[0].shape[1])

    @staticmethod
    def verification_inputs(inputs: Sequence[Any], truth: Sequence[Any]) -> tuple[Any, ...]:
        """Returns inputs for a run whose logits can be compared with those of the truth.

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
