"""Models that users supply (a file, a module name or a Hugging Face directory), as cases.

This package inspects a model without executing it: code is parsed, weights are hashed. Only workers
import the model, through `in_torch`, `in_jax`, `in_tensorflow` and `in_transformers`.
"""

from openxla.benchmark.user_models.again import Recorded, command_words, named_again
from openxla.benchmark.user_models.cases import found, found_bounded
from openxla.benchmark.user_models.places import OwnModule, is_model, place_of
from openxla.benchmark.user_models.saving import Definitions, definitions
from openxla.benchmark.user_models.wanted import BroughtError, Found, Wanted

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
