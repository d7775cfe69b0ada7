"""GPT-2 as a pipeline in TensorFlow: the generator of `gpt2`, with a pipeline's lengths."""

from typing import Any

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gpt2_pipeline
from openxla.benchmark.models.tf import causal_lm
from openxla.benchmark.models.tf.gpt2.gpt2_model import Gpt2, weights
from openxla.benchmark.models.tf.keras_model import KerasModel


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    model_name: str = "gpt2",
    **parameters: Any,
) -> KerasModel:
    """Returns GPT-2 on the checkpoint of `model_name`, continuing prompts.

    Input: input_ids i32[batch, seq]; outputs: see `GenerationModel.generate`. Further parameters:
    `seq_len` (4 unless given), `max_new_tokens` (200 unless given), `checkpoint` (`seeded` or
    `pretrained`) and `seed`.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "model_name": model_name,
        **parameters,
    }
    architecture = gpt2_pipeline.ARCHITECTURE
    return causal_lm.create(architecture, architecture.complete(given), Gpt2, weights)


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", model_name="gpt2-tiny", max_new_tokens=8
    )
