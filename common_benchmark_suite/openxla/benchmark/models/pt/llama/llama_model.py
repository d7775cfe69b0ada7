"""Llama in PyTorch: transformers' `LlamaForCausalLM` on the shared checkpoint."""

from typing import Any

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import llama
from openxla.benchmark.models.architectures.causal_lm import rotary_frequencies
from openxla.benchmark.models.pt import causal_lm, float64


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 512,
    model_name: str = "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    **parameters: Any,
) -> causal_lm.CausalLM:
    """Returns Llama on the checkpoint of `model_name`.

    Further parameters: `max_new_tokens` (generates instead of scoring), `checkpoint` (`seeded` or
    `pretrained`) and `seed`.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "seq_len": seq_len,
        "model_name": model_name,
        **parameters,
    }
    model = causal_lm.create(transformers.LlamaForCausalLM, llama.ARCHITECTURE, given)
    config = llama.ARCHITECTURE.config(model_name)
    causal_lm.replace_float32_parts(
        model.model.model,
        rotary_frequencies(config),
        lambda weight: float64.RmsNorm(weight, config["rms_norm_eps"], around_one=False),
    )
    return model


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", seq_len=32, model_name="llama-tiny"
    )
