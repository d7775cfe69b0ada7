"""EfficientNet in PyTorch: transformers' implementation on the shared checkpoint."""

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import efficientnet
from openxla.benchmark.models.pt import hugging_face


class EfficientNetModel(hugging_face.ImageClassifierModel):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, 1000]."""

    architecture = efficientnet.ARCHITECTURE
    model_class = transformers.EfficientNetForImageClassification


create_model = shared_model.creator(efficientnet.ARCHITECTURE, EfficientNetModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **efficientnet.ARCHITECTURE.example)
