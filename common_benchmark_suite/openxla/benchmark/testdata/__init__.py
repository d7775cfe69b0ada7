"""Raw inputs of the benchmark cases: definitions, and the small real files behind them."""

from openxla.benchmark.testdata.files import (
    DEFAULT_IMAGE,
    DEFAULT_TEXT,
    TOKENIZER,
    file_digest,
    load_image,
    load_text,
)
from openxla.benchmark.testdata.input_data import (
    ALL_INPUT_DATA,
    INPUT_DATA_LONG,
    INPUT_DATA_MODEL_DEFAULT,
    INPUT_DATA_SHORT,
)
from openxla.benchmark.testdata.input_sets import vary

__all__ = [
    "ALL_INPUT_DATA",
    "DEFAULT_IMAGE",
    "DEFAULT_TEXT",
    "INPUT_DATA_LONG",
    "INPUT_DATA_MODEL_DEFAULT",
    "INPUT_DATA_SHORT",
    "TOKENIZER",
    "file_digest",
    "load_image",
    "load_text",
    "vary",
]
