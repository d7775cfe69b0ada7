"""Llama in PyTorch: transformers' `LlamaForCausalLM` on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import llama
from openxla.benchmark.models.pt import causal_lm


def _follow_float64(decoder: Any, config: Mapping[str, Any]) -> None:
    causal_lm.replace_float32_parts(decoder, config, around_one=False)


create_model = causal_lm.creator(
    llama.ARCHITECTURE, transformers.LlamaForCausalLM, adapt=_follow_float64
)


if __name__ == "__main__":
    shared_model.run_once(create_model, **llama.ARCHITECTURE.example)
