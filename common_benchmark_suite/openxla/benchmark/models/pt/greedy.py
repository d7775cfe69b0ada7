"""Greedy generation in PyTorch: the loop, and the cache that its steps write into."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from openxla.benchmark.models.model_interfaces import GenerationModel

Function = TypeVar("Function", bound=Callable[..., Any])
# Keys and values of each layer, [batch, heads, length, head_size].
KeysValues = list[tuple[torch.Tensor, torch.Tensor]]


class StaticCache:
    """Replaces transformers' cache while tokens are read.

    It writes their keys and values into their positions, and returns the entire cache.
    """

    def __init__(self, layers: KeysValues, position: torch.Tensor) -> None:
        self.layers = layers
        self.position = position

    def get_seq_length(self, *_: Any) -> Any:
        """Returns 0, because positions are passed explicitly."""
        return 0

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns keys and values of a layer, including the new ones."""
        all_keys, all_values = self.layers[layer]
        all_keys.index_copy_(2, self.position, keys)
        all_values.index_copy_(2, self.position, values)
        return all_keys, all_values


def not_unrolled(function: Function) -> Function:
    """Marks a loop that calls the same parts of a model repeatedly.

    `torch.compile` would unroll hundreds of steps into one program. The marked frame is skipped
    instead, and the functions called in it are compiled once. An exporter needs everything in one
    program, and rejects skipped functions, so it gets the unmarked loop.
    """
    skipped = torch.compiler.disable(function, recursive=False)

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        chosen = function if torch.compiler.is_exporting() else skipped
        return chosen(*arguments, **options)

    return cast("Function", run)


class GreedyModel(GenerationModel):
    """A model that generates; a base class in addition to torch's.

    Attributes:
      prompt_inputs: number of inputs of `prefill`.
    """

    prompt_inputs: int

    @not_unrolled
    def generate(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """See `GenerationModel.generate`."""
        prompt, given = inputs[: self.prompt_inputs], inputs[self.prompt_inputs :]
        logits, cache = self.prefill(*prompt)
        first, steps = self.first_position(*prompt), self.max_new_tokens - 1
        positions = torch.arange(first, first + steps, device=prompt[0].device)
        tokens, all_logits = [choose(logits)], [logits]
        # Same memory layout as chosen tokens, so that the compiled `decode` is not recompiled.
        fed = given[0].T.contiguous() if given else None
        for index in range(steps):
            token = tokens[-1] if fed is None else fed[index]
            logits, cache = self.decode(token, positions[index : index + 1], cache)
            tokens.append(choose(logits))
            all_logits.append(logits)
        return torch.stack(tokens, dim=1), torch.stack(all_logits, dim=1)

    def read(
        self, tokens: torch.Tensor, positions: torch.Tensor, cache: KeysValues
    ) -> tuple[torch.Tensor, KeysValues]:
        """Reads several consecutive tokens; models that can read them at once override this.

        Args:
          tokens: i32[batch, count].
          positions: positions of the tokens, i64[count].
          cache: modified in place.

        Returns:
          The logits of the token after each, f32[batch, count, vocab], and the cache.
        """
        steps = []
        for index in range(len(positions)):
            logits, cache = self.decode(tokens[:, index], positions[index : index + 1], cache)
            steps.append(logits)
        return torch.stack(steps, dim=1), cache


def choose(logits: torch.Tensor) -> torch.Tensor:
    """[..., vocab] -> i32[...]: the token with the largest logit."""
    return logits.argmax(dim=-1).to(torch.int32)
