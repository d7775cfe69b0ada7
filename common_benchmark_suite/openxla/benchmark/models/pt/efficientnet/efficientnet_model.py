"""EfficientNet in PyTorch: transformers' implementation on the shared checkpoint."""

from typing import Any

import torch
import transformers

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import efficientnet
from openxla.benchmark.models.pt import hugging_face
from openxla.benchmark.models.pt.tensors import as_tensor


class EfficientNetModel(torch.nn.Module, shared_model.ArchitectureModel):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, 1000]."""

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_architecture(efficientnet.ARCHITECTURE, parameters)
        self.model = hugging_face.load(
            transformers.EfficientNetForImageClassification,
            self.checkpoint,
            str(parameters["data_type"]),
        )
        self.eval().requires_grad_(False)

    def forward(self, pixel_values: Any) -> Any:
        """Returns the logits."""
        return self.model(pixel_values=as_tensor(pixel_values)).logits


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    model_name: str = "google/efficientnet-b7",
    **parameters: Any,
) -> EfficientNetModel:
    """Returns EfficientNet on the checkpoint of `model_name`.

    Further parameter: `seed` of the checkpoint.
    """
    return EfficientNetModel(
        {"batch_size": batch_size, "data_type": data_type, "model_name": model_name, **parameters}
    )


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", model_name="efficientnet-tiny"
    )
