"""BERT in TFLite: a file like the one at its address, on the shared checkpoint."""

from typing import TYPE_CHECKING, Any

from openxla.benchmark.models.architectures.bert import Bert
from openxla.benchmark.models.tflite.files import FileArchitecture

if TYPE_CHECKING:
    from openxla.benchmark.models.tflite.tflite_model import TfLiteModel


class TfLiteBert(FileArchitecture, Bert):
    """BERT with parameters from a file's address."""

    sources = (
        (
            r"BERT_TINY_FP32_JAX_32XI32_BATCH(?P<batch_size>[1-9]\d*)",
            {"model_name": "bert-tiny", "seq_len": 32},
        ),
        (
            r"BERT_BASE_FP32_JAX_I32_SEQLEN(?P<seq_len>[1-9]\d*)",
            {"model_name": "bert-base-uncased", "batch_size": 1},
        ),
    )
    standard = {"model_uri": "converted:BERT_TINY_FP32_JAX_32XI32_BATCH1/model_fp32.tflite"}
    example = standard


ARCHITECTURE = TfLiteBert()


def create_model(**parameters: Any) -> "TfLiteModel":
    """Returns the model with these parameters."""
    # Imported late, because `cbs list` uses the architecture and should not import numpy.
    from openxla.benchmark.models.tflite import tflite_model

    source = "openxla.benchmark.models.tf.bert"
    return tflite_model.creator(ARCHITECTURE, source_module=source)(**parameters)


if __name__ == "__main__":
    from openxla.benchmark.models import shared_model

    shared_model.run_once(create_model, **ARCHITECTURE.example)
