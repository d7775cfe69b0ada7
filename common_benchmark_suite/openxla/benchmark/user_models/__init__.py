"""Models that users supply (a file, a module, a directory or an exported program), as cases.

This package inspects a model without executing it: code is parsed, weights are hashed. Only workers
import the model, through the modules whose names start with `in_`.
"""

from openxla.benchmark.user_models.cases import (
    Definitions,
    Recorded,
    command_words,
    definitions,
    find_cases,
    find_cases_bounded,
    recorded_model,
)
from openxla.benchmark.user_models.model_options import ModelCases, ModelOptions, UserModelError
from openxla.benchmark.user_models.places import OwnModule, is_model, place_of

__all__ = [
    "Definitions",
    "ModelCases",
    "ModelOptions",
    "OwnModule",
    "Recorded",
    "UserModelError",
    "command_words",
    "definitions",
    "find_cases",
    "find_cases_bounded",
    "is_model",
    "place_of",
    "recorded_model",
]

# Names in definitions that earlier versions saved.
Wanted, found = ModelOptions, find_cases
