"""Definitions of input data."""

from openxla.benchmark.def_types import ModelTestData

# The model itself says what its default input is: `generate_default_inputs`.
INPUT_DATA_MODEL_DEFAULT = ModelTestData(
    name="INPUT_DATA_MODEL_DEFAULT",
    source_url="",
    source_info="Default input data of the model, from its `generate_default_inputs`.",
)

ALL_INPUT_DATA: tuple[ModelTestData, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, ModelTestData)
)
