"""GPT-2 in PyTorch: transformers' `GPT2LMHeadModel` on the shared checkpoint."""

from typing import Any

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gpt2
from openxla.benchmark.models.pt import causal_lm


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 512,
    model_name: str = "gpt2",
    **parameters: Any,
) -> causal_lm.CausalLM:
    """Returns GPT-2 on the checkpoint of `model_name`.

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
    return causal_lm.create(transformers.GPT2LMHeadModel, gpt2.ARCHITECTURE, given)


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", seq_len=32, model_name="gpt2-tiny"
    )
