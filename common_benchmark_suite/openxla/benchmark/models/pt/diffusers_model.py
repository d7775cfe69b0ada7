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
    """A network of diffusers; subclasses say which, and define `forward`.

    Not by `from_pretrained`, which wants the weights under another file name, and all of them, also
    those of parts that the benchmark has taken away.

    Attributes:
      architecture: whose checkpoint it loads, and whose parameters it takes.
      model_class: diffusers' class of it.
      unused: parts that take no part: they would cost load time and memory.
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
    # Shapes only: random weights that are overwritten at once would cost time and memory.
    with torch.device("meta"):
        return model_class.from_config(config)
