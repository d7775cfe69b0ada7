"""Files in the repository from which inputs are made; `data/README.md` has their origin."""

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `cbs list` only reads digests and should not import numpy
    import numpy as np
    import numpy.typing as npt

_DATA = Path(__file__).parent / "data"

DEFAULT_TEXT = _DATA / "default.txt"
DEFAULT_IMAGE = _DATA / "cat.png"
TOKENIZER = _DATA / "tokenizer.json"


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
