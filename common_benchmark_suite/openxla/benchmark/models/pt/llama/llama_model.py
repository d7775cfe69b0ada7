"""Llama in PyTorch: transformers' `LlamaForCausalLM` on the shared checkpoint."""

import functools

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import llama
from openxla.benchmark.models.pt import causal_lm

create_model = causal_lm.creator(
    llama.ARCHITECTURE,
    transformers.LlamaForCausalLM,
    adapt=functools.partial(causal_lm.replace_float32_parts, around_one=False),
)


if __name__ == "__main__":
    shared_model.run_once(create_model, **llama.ARCHITECTURE.example)
