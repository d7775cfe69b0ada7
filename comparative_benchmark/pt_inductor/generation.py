"""Prefill and decode of a PyTorch model as separate calls."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from comparative_benchmark.backends.api import GenerationParts
from comparative_benchmark.backends.frameworks.torch_modules import to_numpy
from comparative_benchmark.backends.model_protocols import FunctionParts, Step


def parts(
    model: Any,
    inputs: Sequence[torch.Tensor],
    *,
    compile_part: Callable[[Any], Any],
    wait: Callable[[Any], None],
) -> GenerationParts:
    """Calls `prefill` and `decode` of the measured model, on the same weights.

    `compile_part` is what the backend does to a function. If it compiles by tracing calls, these
    two have been compiled already, as parts of the model. `decode` writes into its cache.
    """
    compiled_prefill, compiled_decode = map(compile_part, (model.prefill, model.decode))
    first, steps = model.first_position(*inputs), model.max_new_tokens - 1
    positions = torch.arange(first, first + steps, device=inputs[0].device)
    return FunctionParts(
        lambda: _chosen(*compiled_prefill(*inputs)),
        lambda *arguments: _chosen(*compiled_decode(*arguments)),
        [positions[index : index + 1] for index in range(steps)],
        wait=wait,
        to_host=to_numpy,
    )


def _chosen(logits: torch.Tensor, cache: Any) -> Step:
    return logits.argmax(dim=-1).to(torch.int32), logits, cache
