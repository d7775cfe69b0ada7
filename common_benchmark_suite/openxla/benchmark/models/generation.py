"""Greedy generation with a static cache of keys and values, the same in every framework.

A prompt of `prompt` tokens is read at once (`prefill`), then one token after the other is fed
(`decode`); both are functions of their own, so that the time to the first token and the time for
each further one can be measured apart. The cache has `prompt + max_new_tokens` places from the
start: no shape depends on the step, so each function is compiled once.

The next token is the one with the largest logit; there is no end-of-sequence token, so that every
run does the same work. A tie goes to the lower token.

**Verification.** One choice between two nearly equal logits that goes the other way, as rounding
may have it, changes all that follows; outputs of a free run can then not be compared. So a run can
be told which tokens to feed (`forced_tokens`: teacher forcing, Williams and Zipser 1989): each step
does the same work, returns the token that it would have chosen, but goes on with the given one.
Where truth has chosen, all others are judged by their logits along its tokens.
"""

import abc
from collections.abc import Sequence
from typing import Any

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models.architectures.base import integer

TOKENS, LOGITS = 0, 1  # places of the outputs


class GenerationModel(abc.ABC):
    """A model that continues prompts; base class beside the framework's own.

    Where a framework takes weights as arguments (JAX), they come first in each of the methods, and
    the methods are pure. Where it holds them as parameters (PyTorch), `decode` may write into the
    cache that it is given.
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
          Logits of the token after it, f32[batch, vocab], and the cache.
        """

    @abc.abstractmethod
    def generate(self, *arguments: Any) -> tuple[Any, Any]:
        """Prefills once and decodes `max_new_tokens - 1` times.

        Arguments: input_ids i32[batch, prompt]; optionally forced_tokens
        i32[batch, max_new_tokens], the tokens to feed instead of those chosen.

        Returns:
          The chosen tokens, i32[batch, max_new_tokens], and the logits that they were chosen by,
          f32[batch, max_new_tokens, vocab]; of a float64 model, the logits are float64.
        """

    def first_position(self, *inputs: Any) -> int:
        """Returns the position of the first new token, where `decode` reads it.

        Behind the prompt; a model that counts from elsewhere (an encoder-decoder, whose new tokens
        follow a start token) says so.
        """
        return int(inputs[0].shape[1])

    @staticmethod
    def verification_inputs(inputs: Sequence[Any], truth: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the inputs of a run whose logits can be judged by those of the truth.

        Args:
          inputs: the inputs of the free run that gave the truth.
          truth: its outputs.
        """
        return (*inputs, truth[TOKENS])


def max_new_tokens(parameters: Parameters) -> int | None:
    """Returns how many tokens a model generates; None for a model that only scores its input.

    Raises:
      DefinitionError: the parameter is not a positive integer.
    """
    if "max_new_tokens" not in parameters:
        return None
    return integer(parameters, "max_new_tokens")
