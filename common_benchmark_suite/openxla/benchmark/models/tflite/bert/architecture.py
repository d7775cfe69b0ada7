"""BERT in a TFLite file."""

from openxla.benchmark.models.architectures.bert import Bert
from openxla.benchmark.models.tflite.files import FileArchitecture


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
