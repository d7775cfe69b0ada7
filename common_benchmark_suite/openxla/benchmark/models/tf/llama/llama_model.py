"""Llama in TensorFlow: the rotary decoder on the shared checkpoint."""

from typing import Any

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import llama
from openxla.benchmark.models.tf import causal_lm, rotary_decoder
from openxla.benchmark.models.tf.keras_model import KerasModel


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 512,
    model_name: str = "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    **parameters: Any,
) -> KerasModel:
    """Returns Llama on the checkpoint of `model_name`.

    Input: input_ids i32[batch, seq]; output: logits [batch, seq, vocab]. Further parameters:
    `max_new_tokens` (generates instead, see `GenerationModel`), `checkpoint` (`seeded` or
    `pretrained`) and `seed`.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "seq_len": seq_len,
        "model_name": model_name,
        **parameters,
    }
    return causal_lm.create(
        llama.ARCHITECTURE, given, rotary_decoder.RotaryDecoder, rotary_decoder.weights
    )


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", seq_len=32, model_name="llama-tiny"
    )
