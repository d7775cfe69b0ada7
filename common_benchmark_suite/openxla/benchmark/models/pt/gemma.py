"""Gemma in PyTorch: transformers' `GemmaForCausalLM` on the shared checkpoint."""

import math
from collections.abc import Mapping
from typing import Any

import torch
import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gemma
from openxla.benchmark.models.pt import hugging_face


def _follow_float64(decoder: Any, config: Mapping[str, Any]) -> None:
    hugging_face.replace_float32_parts(decoder, config, around_one=True)
    # transformers rounds the scale to the type it loads in; here it is cast when used.
    scale = torch.tensor(math.sqrt(config["hidden_size"]), dtype=torch.float64)
    decoder.embed_tokens.embed_scale = scale


create_model = hugging_face.causal_lm_creator(
    gemma.ARCHITECTURE, transformers.GemmaForCausalLM, adapt=_follow_float64
)


if __name__ == "__main__":
    shared_model.run_once(create_model, **gemma.ARCHITECTURE.example)
