"""Llama in TensorFlow: the rotary decoder on the shared checkpoint."""

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import llama
from openxla.benchmark.models.tf import causal_lm

create_model = causal_lm.creator(llama.ARCHITECTURE, causal_lm.RotaryDecoder)


if __name__ == "__main__":
    shared_model.run_once(create_model, **llama.ARCHITECTURE.example)
