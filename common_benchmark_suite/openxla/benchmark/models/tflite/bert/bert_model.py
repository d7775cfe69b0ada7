"""BERT in TFLite: a file like the one at its address, on the shared checkpoint."""

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.tflite import tflite_model
from openxla.benchmark.models.tflite.bert.architecture import ARCHITECTURE

create_model = tflite_model.creator(
    ARCHITECTURE, source_module="openxla.benchmark.models.tf.bert.bert_model"
)


if __name__ == "__main__":
    shared_model.run_once(create_model, **ARCHITECTURE.example)
