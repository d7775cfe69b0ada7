"""ResNet in PyTorch: transformers' `ResNetForImageClassification` on the shared checkpoint."""

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import resnet
from openxla.benchmark.models.pt import hugging_face


class ResNetModel(hugging_face.ImageClassifierModel):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, 1000]."""

    architecture = resnet.ARCHITECTURE
    model_class = transformers.ResNetForImageClassification


create_model = shared_model.creator(resnet.ARCHITECTURE, ResNetModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **resnet.ARCHITECTURE.example)
