"""ViT in PyTorch: transformers' `ViTForImageClassification` on the shared checkpoint."""

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import vit
from openxla.benchmark.models.pt import hugging_face


class ViTModel(hugging_face.ImageClassifierModel):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, 1000]."""

    architecture = vit.ARCHITECTURE
    model_class = transformers.ViTForImageClassification


create_model = shared_model.creator(vit.ARCHITECTURE, ViTModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **vit.ARCHITECTURE.example)
