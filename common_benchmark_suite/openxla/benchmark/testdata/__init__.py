"""Raw inputs of the benchmark cases: definitions, variants, and the small real files behind them.

`data/README.md` has the origin of the files.
"""

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openxla.benchmark.def_types import DefinitionError, ModelTestData

if TYPE_CHECKING:  # `cbs list` only reads digests and should not import numpy
    import numpy as np
    import numpy.typing as npt

_DATA = Path(__file__).parent / "data"

DEFAULT_TEXT = _DATA / "default.txt"
DEFAULT_IMAGE = _DATA / "cat.png"
TOKENIZER = _DATA / "tokenizer.json"

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

_DEFAULT, _SHORT, _LONG = (
    data.name for data in (INPUT_DATA_MODEL_DEFAULT, INPUT_DATA_SHORT, INPUT_DATA_LONG)
)


@functools.cache
def file_digest(path: Path) -> str:
    """Returns the sha256 of a file, in hexadecimal digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_text(path: Path = DEFAULT_TEXT) -> str:
    """Returns a text file with line breaks replaced by spaces."""
    return " ".join(path.read_text(encoding="utf-8").split())


def load_image(path: Path = DEFAULT_IMAGE) -> "npt.NDArray[np.uint8]":
    """Returns a picture as uint8[height, width, 3] in RGB."""
    import numpy as np
    from PIL import Image

    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def vary(raw: Any, input_data: str) -> Any:
    """Returns the raw input of that name, derived from the default one.

    | raw input | `INPUT_DATA_SHORT` | `INPUT_DATA_LONG` |
    |---|---|---|
    | text | its first sentence | all of it, from its middle on |
    | picture, uint8[height, width, 3] | its middle, half as wide and high | upside down |
    | sound, float[samples] | its first half, then silence | backwards |
    | seed of noise | the next | the one after that |

    The model decides how to fill the rest of a token window after a short text: with masked
    padding, or by repeating the text.

    Args:
      raw: result of the model's `generate_default_inputs`; each part of a tuple is varied.
      input_data: name of the input data.

    Raises:
      DefinitionError: the input data are unknown, or undefined for such a raw input.
    """
    if input_data == _DEFAULT:
        return raw
    if input_data not in (_SHORT, _LONG):
        raise DefinitionError(
            f"unknown input data {input_data!r}; choices are {_DEFAULT}, {_SHORT}, {_LONG}"
        )
    return _vary(raw, is_short=input_data == _SHORT)


def _vary(raw: Any, *, is_short: bool) -> Any:
    if isinstance(raw, tuple | list):
        return tuple(_vary(part, is_short=is_short) for part in raw)
    if isinstance(raw, str):
        return raw.partition(". ")[0].rstrip(".") + "." if is_short else _from_middle(raw)
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw + (1 if is_short else 2)
    shape: tuple[int, ...] = getattr(raw, "shape", ())
    kind: str = getattr(getattr(raw, "dtype", None), "kind", "")
    if len(shape) == 3 and kind == "u":
        height, width = shape[0] // 4, shape[1] // 4
        return raw[height:-height, width:-width] if is_short else raw[::-1].copy()
    if len(shape) == 1 and kind == "f":
        if not is_short:
            return raw[::-1].copy()
        half = raw.copy()
        half[shape[0] // 2 :] = 0
        return half
    raise DefinitionError(
        f"raw inputs of type {type(raw).__name__} have no short or long variant; add a method "
        "`generate_inputs(input_data)` to the model"
    )


def _from_middle(text: str) -> str:
    words = text.split()
    half = len(words) // 2
    return " ".join(words[half:] + words[:half])
