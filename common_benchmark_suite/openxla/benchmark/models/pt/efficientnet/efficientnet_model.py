"""EfficientNet in PyTorch: transformers' implementation on the shared checkpoint."""

from typing import Any

import transformers

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import efficientnet
from openxla.benchmark.models.pt import hugging_face
from openxla.benchmark.models.pt.tensors import as_tensor


class EfficientNetModel(hugging_face.HuggingFaceModel):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, 1000]."""

    architecture = efficientnet.ARCHITECTURE
    model_class = transformers.EfficientNetForImageClassification

    def forward(self, pixel_values: Any) -> Any:
        """Returns the logits."""
        return self.model(pixel_values=as_tensor(pixel_values)).logits


create_model = shared_model.creator(efficientnet.ARCHITECTURE, EfficientNetModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **efficientnet.ARCHITECTURE.example)
