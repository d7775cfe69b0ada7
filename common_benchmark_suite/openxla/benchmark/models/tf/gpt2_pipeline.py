"""GPT-2 as a pipeline in TensorFlow: the generator of `gpt2`, with a pipeline's lengths."""

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gpt2_pipeline
from openxla.benchmark.models.tf import causal_lm
from openxla.benchmark.models.tf.gpt2 import Gpt2

create_model = causal_lm.creator(gpt2_pipeline.ARCHITECTURE, Gpt2)


if __name__ == "__main__":
    shared_model.run_once(create_model, **gpt2_pipeline.ARCHITECTURE.example)
