"""The public Keras implementations of our models.

KerasHub has most of them, and Keras Applications has EfficientNet; they run on either of Keras'
backends, JAX or TensorFlow. Where KerasHub reads our checkpoint, it does; elsewhere its variables
are set by their names.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import _keras_pictures
import _keras_text
from _keras_port import KerasProgram

from openxla.benchmark.models.shared_model import ArchitectureModel

# Why a model is in no table of Keras'.
ABSENT: Mapping[str, str] = {
    "sd_unet": "KerasHub has no U-Net: its Stable Diffusion 3 denoises with a transformer, and "
    "the U-Net of KerasCV was not merged into it",
}
# What differs from ours, other than the order of sums.
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
    """Chooses Keras' backend, before Keras is imported; tells whether KerasHub is installed."""
    os.environ["KERAS_BACKEND"] = backend
    return importlib.util.find_spec("keras_hub") is not None


def program(name: str, model: ArchitectureModel, inputs: Sequence[Any]) -> KerasProgram | None:
    """Returns the public implementation of one of our models; None if there is none.

    Args:
      name: of the architecture.
      model: ours, for its configuration and checkpoint.
      inputs: ours, as numpy arrays.
    """
    build = _PROGRAMS.get(name)
    return None if build is None else build(model, inputs)
