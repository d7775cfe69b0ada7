"""BERT in TFLite: a file like the one that its address names, on the shared checkpoint."""

from typing import Any

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.tflite.bert.architecture import ARCHITECTURE
from openxla.benchmark.models.tflite.tflite_model import TfLiteModel

_SOURCE = "openxla.benchmark.models.tf.bert.bert_model"


def create_model(
    model_uri: str = "converted:BERT_TINY_FP32_JAX_32XI32_BATCH1/model_fp32.tflite",
    **parameters: Any,
) -> TfLiteModel:
    """Returns the BERT of a TFLite file.

    Inputs: input_ids and attention_mask, i32[batch, seq]; output: [batch, seq, hidden]. Further
    parameters: `checkpoint` (`seeded` or `pretrained`) and `seed`; see `TfLiteModel`.
    """
    return TfLiteModel(ARCHITECTURE, {"model_uri": model_uri, **parameters}, _SOURCE)


if __name__ == "__main__":
    shared_model.run_once(
        create_model, model_uri="converted:BERT_TINY_FP32_JAX_32XI32_BATCH1/model_fp32.tflite"
    )
