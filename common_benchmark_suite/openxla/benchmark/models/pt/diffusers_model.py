"""Loading diffusers' networks from a checkpoint directory."""

import json
from pathlib import Path
from typing import Any

import torch

from openxla.benchmark.models.checkpoints import WEIGHTS_FILE
from openxla.benchmark.models.pt.tensors import TORCH_DTYPES, as_tensor
from openxla.benchmark.models.safetensors_file import SafetensorsFile


def build(model_class: Any, checkpoint: Path) -> Any:
    """Returns a diffusers network of the checkpoint's configuration, without weights."""
    config = json.loads((checkpoint / "config.json").read_text())
    # Shapes only: random weights that are overwritten at once would cost time and memory.
    with torch.device("meta"):
        return model_class.from_config(config)


def load_weights(model: torch.nn.Module, checkpoint: Path, data_type: str) -> None:
    """Gives a network the checkpoint's weights, cast to `data_type`.

    Not `from_pretrained`, which wants the weights under another file name, and all of them, also
    those of parts that the benchmark has taken away.

    Raises:
      RuntimeError: the checkpoint lacks weights, has more, or has some of another shape.
    """
    dtype = TORCH_DTYPES[data_type]
    tensors = SafetensorsFile(checkpoint / WEIGHTS_FILE)
    state = {name: as_tensor(tensor).to(dtype) for name, tensor in tensors.items()}
    model.load_state_dict(state, strict=True, assign=True)
