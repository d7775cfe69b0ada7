"""transformers' models on the shared checkpoint."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import torch
import transformers

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.pt.tensors import TORCH_DTYPES, as_tensor


def load(
    model_class: Any,
    checkpoint: Path,
    data_type: str,
    *,
    spared: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    """Returns a transformers model with the checkpoint's weights, cast to `data_type`.

    Unused weights (a pooler, a head) are ignored silently, because models with different parts
    share checkpoints. Missing weights raise, because random ones would go unnoticed.

    Args:
      model_class: class of transformers.
      checkpoint: its directory.
      data_type: type of the weights in memory.
      spared: prefixes of weights that may be missing because they are unused.
      options: options of `from_pretrained`.

    Raises:
      ValueError: the checkpoint lacks weights.
    """
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model, report = model_class.from_pretrained(
        checkpoint,
        dtype=TORCH_DTYPES[data_type],
        local_files_only=True,
        output_loading_info=True,
        **options,
    )
    missing = [name for name in report["missing_keys"] if not name.startswith(spared)]
    mismatched = [item for item in report["mismatched_keys"] if not item[0].startswith(spared)]
    if missing or mismatched:
        raise ValueError(f"{checkpoint.name} lacks weights: {report}")
    return model


class HuggingFaceModel(torch.nn.Module, shared_model.ArchitectureModel):
    """A transformers model; subclasses set its class, and define `forward`.

    Attributes:
      architecture: architecture of the checkpoint and parameters.
      model_class: transformers' class of the model.
      options: options of `from_pretrained`.
      model: transformers' model.
    """

    architecture: Architecture
    model_class: ClassVar[Any]
    options: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.load(self.architecture, self.model_class, parameters)

    def load(self, architecture: Architecture, model_class: Any, parameters: Parameters) -> None:
        """Loads transformers' model; called by constructors."""
        self.set_architecture(architecture, parameters)
        data_type = str(parameters["data_type"])
        self.model = load(model_class, self.checkpoint, data_type, **self.options)
        self.eval().requires_grad_(False)


class ImageClassifierModel(HuggingFaceModel):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, labels]."""

    def forward(self, pixel_values: Any) -> Any:
        """Returns the logits."""
        return self.model(pixel_values=as_tensor(pixel_values)).logits
