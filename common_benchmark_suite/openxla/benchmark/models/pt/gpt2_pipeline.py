"""GPT-2 as a pipeline in PyTorch: the generator of `gpt2`, with a pipeline's lengths."""

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gpt2_pipeline
from openxla.benchmark.models.pt import hugging_face

create_model = hugging_face.causal_lm_creator(
    gpt2_pipeline.ARCHITECTURE, transformers.GPT2LMHeadModel
)


if __name__ == "__main__":
    shared_model.run_once(create_model, **gpt2_pipeline.ARCHITECTURE.example)
