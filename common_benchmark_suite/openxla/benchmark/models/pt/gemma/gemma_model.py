"""Gemma in PyTorch: transformers' `GemmaForCausalLM` on the shared checkpoint."""

import math
from typing import Any

import torch
import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gemma
from openxla.benchmark.models.architectures.causal_lm import rotary_frequencies
from openxla.benchmark.models.pt import causal_lm, float64


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 1024,
    model_name: str = "google/gemma-2b-it",
    **parameters: Any,
) -> causal_lm.CausalLM:
    """Returns Gemma on the seeded checkpoint of `model_name`.

    Further parameters: `max_new_tokens` (generates instead of scoring) and `seed`.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "seq_len": seq_len,
        "model_name": model_name,
        **parameters,
    }
    model = causal_lm.create(transformers.GemmaForCausalLM, gemma.ARCHITECTURE, given)
    config = gemma.ARCHITECTURE.config(model_name)
    decoder = model.model.model
    causal_lm.replace_float32_parts(
        decoder,
        rotary_frequencies(config),
        lambda weight: float64.RmsNorm(weight, config["rms_norm_eps"], around_one=True),
    )
    # transformers rounds the scale to the type that it loads in; it is cast where it is used.
    scale = torch.tensor(math.sqrt(config["hidden_size"]), dtype=torch.float64)
    decoder.embed_tokens.embed_scale = scale
    return model


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", seq_len=32, model_name="gemma-tiny"
    )
