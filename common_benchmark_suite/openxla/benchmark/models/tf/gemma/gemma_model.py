"""Gemma in TensorFlow: the rotary decoder on the shared checkpoint."""

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gemma
from openxla.benchmark.models.tf import causal_lm, rotary_decoder

create_model = causal_lm.creator(gemma.ARCHITECTURE, rotary_decoder.RotaryDecoder)


if __name__ == "__main__":
    shared_model.run_once(create_model, **gemma.ARCHITECTURE.example)
