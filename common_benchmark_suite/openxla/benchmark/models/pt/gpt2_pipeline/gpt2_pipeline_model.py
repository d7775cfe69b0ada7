"""GPT-2 as a pipeline in PyTorch: the generator of `gpt2`, with a pipeline's lengths."""

from typing import Any

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gpt2_pipeline
from openxla.benchmark.models.pt import causal_lm


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    model_name: str = "gpt2",
    **parameters: Any,
) -> causal_lm.CausalLM:
    """Returns GPT-2 on the checkpoint of `model_name`, continuing prompts.

    Further parameters: `seq_len` (4 unless given), `max_new_tokens` (200 unless given),
    `checkpoint` (`seeded` or `pretrained`) and `seed`.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "model_name": model_name,
        **parameters,
    }
    architecture = gpt2_pipeline.ARCHITECTURE
    return causal_lm.create(
        transformers.GPT2LMHeadModel, architecture, architecture.complete(given)
    )


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", model_name="gpt2-tiny", max_new_tokens=8
    )
