"""GPT-2 in PyTorch: transformers' `GPT2LMHeadModel` on the shared checkpoint."""

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gpt2
from openxla.benchmark.models.pt import hugging_face

create_model = hugging_face.causal_lm_creator(gpt2.ARCHITECTURE, transformers.GPT2LMHeadModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **gpt2.ARCHITECTURE.example)
