"""Models that users supply (a file, a module name or a Hugging Face directory), as cases.

This package inspects a model without executing it: code is parsed, weights are hashed. Only workers
import the model, through `in_torch`, `in_jax`, `in_tensorflow` and `in_transformers`.
"""

from openxla.benchmark.user_models.cases import (
    Definitions,
    Recorded,
    command_words,
    definitions,
    found,
    found_bounded,
    named_again,
)
from openxla.benchmark.user_models.model_options import BroughtError, Found, Wanted
from openxla.benchmark.user_models.places import OwnModule, is_model, place_of

__all__ = [
    "BroughtError",
    "Definitions",
    "Found",
    "OwnModule",
    "Recorded",
    "Wanted",
    "command_words",
    "definitions",
    "found",
    "found_bounded",
    "is_model",
    "named_again",
    "place_of",
]
