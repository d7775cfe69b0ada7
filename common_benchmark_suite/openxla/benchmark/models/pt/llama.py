"""Llama in PyTorch: transformers' `LlamaForCausalLM` on the shared checkpoint."""

import functools

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import llama
from openxla.benchmark.models.pt import hugging_face

create_model = hugging_face.causal_lm_creator(
    llama.ARCHITECTURE,
    transformers.LlamaForCausalLM,
    adapt=functools.partial(hugging_face.replace_float32_parts, around_one=False),
)


if __name__ == "__main__":
    shared_model.run_once(create_model, **llama.ARCHITECTURE.example)
