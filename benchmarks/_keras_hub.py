"""The public Keras implementations of our models.

KerasHub has most of them, and Keras Applications has EfficientNet. They run on JAX or TensorFlow.
If KerasHub can read our checkpoint, it does. Otherwise, variables are set by their names.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import _keras_pictures
import _keras_text
from _keras_port import KerasProgram

from openxla.benchmark.models.shared_model import ArchitectureModel

# Models without a Keras implementation -> the reason.
ABSENT: Mapping[str, str] = {
    "sd_unet": "KerasHub has no U-Net: its Stable Diffusion 3 denoises with a transformer, and "
    "the U-Net of KerasCV was not merged into it"
}
# Differences from our models, other than the order of sums.
REMARKS: Mapping[str, str] = {
    "bert": "computes GELU with the tanh approximation, which is cheaper",
    "efficientnet": "divides pixels by 255 first, and normalises them in a layer",
    "resnet": "channels-last input",
    "sd_clip": "uses 1e-6 instead of 1e-5 as the epsilon of the last norm",
    "t5": "adds a mask of ones, and computes the distance buckets in the program",
}

_PROGRAMS: Mapping[str, Callable[[ArchitectureModel, Sequence[Any]], KerasProgram]] = {
    "bert": _keras_text.bert,
    "resnet": _keras_pictures.resnet,
    "t5": _keras_text.t5,
    "gpt2": _keras_text.causal_lm("GPT2"),
    "vit": _keras_pictures.vit,
    "efficientnet": _keras_pictures.efficientnet,
    "gemma": _keras_text.causal_lm("Gemma"),
    "llama": _keras_text.causal_lm("Llama3"),
    "sd_clip": _keras_text.sd_clip,
    "sd_vae": _keras_pictures.sd_vae,
    "whisper": _keras_text.whisper,
}


def use(backend: str) -> bool:
    """Chooses the backend of Keras before its import; returns whether KerasHub is installed."""
    os.environ["KERAS_BACKEND"] = backend
    return importlib.util.find_spec("keras_hub") is not None


def program(name: str, model: ArchitectureModel, inputs: Sequence[Any]) -> KerasProgram | None:
    """Returns the public implementation of one of our models, or None.

    Args:
      name: architecture.
      model: our model, for its configuration and checkpoint.
      inputs: inputs of our model, as numpy arrays.
    """
    build = _PROGRAMS.get(name)
    return None if build is None else build(model, inputs)
