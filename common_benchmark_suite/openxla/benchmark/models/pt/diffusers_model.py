"""diffusers' networks on the shared checkpoint."""

import json
from pathlib import Path
from typing import Any, ClassVar

import torch

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import checkpoints, shared_model
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.pt.tensors import load_weights


class DiffusersModel(torch.nn.Module, shared_model.ArchitectureModel):
    """A diffusers network; subclasses set its class, and define `forward`.

    It does not use `from_pretrained`, which requires another file name, and weights even for parts
    that the benchmark has removed.

    Attributes:
      architecture: architecture of the checkpoint and parameters.
      model_class: diffusers' class of the network.
      unused: parts that are removed to save load time and memory.
      model: diffusers' network.
    """

    architecture: Architecture
    model_class: ClassVar[Any]
    unused: ClassVar[tuple[str, ...]] = ()

    def __init__(self, parameters: Parameters) -> None:
        super().__init__()
        self.set_architecture(self.architecture, parameters)
        self.model = build(self.model_class, self.checkpoint)
        for part in self.unused:
            delattr(self.model, part)
        tensors = checkpoints.load_tensors(self.architecture, self.checkpoint)
        load_weights(self.model, tensors, str(parameters["data_type"]))
        self.eval().requires_grad_(False)


def build(model_class: Any, checkpoint: Path) -> Any:
    """Returns a diffusers network of the checkpoint's configuration, without weights."""
    config = json.loads((checkpoint / "config.json").read_text())
    # Shapes only, because random weights would be overwritten at once.
    with torch.device("meta"):
        return model_class.from_config(config)
