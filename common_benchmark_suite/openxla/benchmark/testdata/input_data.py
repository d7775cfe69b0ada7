"""Definitions of input data."""

from openxla.benchmark.def_types import ModelTestData

# The model defines its default input: `generate_default_inputs`.
INPUT_DATA_MODEL_DEFAULT = ModelTestData(
    name="INPUT_DATA_MODEL_DEFAULT",
    source_url="",
    source_info="Default input data of the model, from its `generate_default_inputs`.",
)

# Made from the default input by `vary`.
INPUT_DATA_SHORT = ModelTestData(
    name="INPUT_DATA_SHORT",
    source_url="",
    source_info="A short input: the first sentence, the middle of the picture, half of the sound.",
)
INPUT_DATA_LONG = ModelTestData(
    name="INPUT_DATA_LONG",
    source_url="",
    source_info="Another full input: the text from its middle on, picture and sound reversed.",
)

ALL_INPUT_DATA: tuple[ModelTestData, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, ModelTestData)
)
