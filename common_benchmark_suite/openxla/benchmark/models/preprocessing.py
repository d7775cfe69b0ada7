"""Converts real text and pictures to arrays with numpy: the same bytes for every framework."""

import itertools
import math
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt

_ELEMENT_TYPES: dict[str, npt.DTypeLike] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "i8": np.int8,
    "i32": np.int32,
    "i64": np.int64,
    "i1": np.bool_,
    "u8": np.uint8,
}
_NAMES = {np.dtype(value): name for name, value in _ELEMENT_TYPES.items()}


def numpy_dtype(element_type: str) -> np.dtype[np.generic]:
    """Returns the numpy type of an element type such as `bf16`."""
    return np.dtype(_ELEMENT_TYPES[element_type])


def element_type_of(dtype: npt.DTypeLike) -> str:
    """Returns the element type of a numpy type; numpy's own name if the suite has none."""
    return _NAMES.get(np.dtype(dtype), np.dtype(dtype).name)


def token_batch(
    text: str, tokenizer_file: Path, *, batch_size: int, seq_len: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Tokenizes a text into `batch_size` windows of `seq_len` tokens.

    Row r starts about 7 * r words after row 0, wrapping around, so that no two rows are equal (for
    up to as many rows as the text has words). Otherwise a compiler that confuses rows would go
    unnoticed.

    Returns:
      input_ids and attention_mask, both int32[batch, seq].

    Raises:
      ValueError: the text has no words.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    tokenizer.enable_truncation(seq_len)
    tokenizer.enable_padding(length=seq_len)
    words = text.split()
    if not words:
        raise ValueError("the text has no words, so all rows would be equal")
    stride = _stride(7, len(words))
    shifts = [(stride * row) % len(words) for row in range(batch_size)]
    encoded = tokenizer.encode_batch([" ".join(words[s:] + words[:s]) for s in shifts])
    ids = np.array([row.ids for row in encoded], np.int32)
    mask = np.array([row.attention_mask for row in encoded], np.int32)
    return ids, mask


def padded_rows(
    ids: npt.NDArray[np.int32], mask: npt.NDArray[np.int32], *, pad: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Shortens each row and pads it, so that the mask has an effect.

    Each row has at least one position of padding, and at most half of the row plus one; consecutive
    rows differ. Otherwise a model that drops, inverts or shifts its mask would be right on texts
    that fill their rows. The last token of a row, which ends it, remains the last one.

    Args:
      ids: int32[batch, seq], see `token_batch`.
      mask: int32[batch, seq], 1 for tokens.
      pad: the padding token.

    Returns:
      New ids and mask.
    """
    ids, mask = ids.copy(), mask.copy()
    length = ids.shape[1]
    half = max(1, length // 2)
    stride = _stride(5, half)
    for row in range(len(ids)):
        used = int(mask[row].sum())
        real = max(1, min(used, length - 1 - (length // 8 + stride * row) % half))
        ids[row, real - 1] = ids[row, used - 1]
        ids[row, real:], mask[row, real:] = pad, 0
    return ids, mask


def _stride(at_least: int, count: int) -> int:
    """Returns a step coprime with `count`, so that it visits all positions before repeating."""
    return next(n for n in itertools.count(at_least) if math.gcd(n, count) == 1)


def image_batch(
    image: npt.NDArray[np.uint8],
    *,
    batch_size: int,
    size: int,
    mean: tuple[float, float, float],
    stddev: tuple[float, float, float],
) -> npt.NDArray[np.float32]:
    """Makes a batch of normalised pictures from one picture.

    Row r is shifted r * 3 pixels to the right, wrapping around, so that no two rows are equal until
    the shift has wrapped.

    Returns:
      float32[batch, 3, size, size].
    """
    from PIL import Image

    resized = Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)
    pixels: npt.NDArray[np.float32] = np.asarray(resized, np.float32) / np.float32(255)
    pixels -= np.array(mean, np.float32)
    pixels /= np.array(stddev, np.float32)
    return shifted_rows(np.ascontiguousarray(pixels.transpose(2, 0, 1)), batch_size)


def shifted_rows(pixels: npt.NDArray[np.float32], batch_size: int) -> npt.NDArray[np.float32]:
    """Makes a batch of float32[channels, height, width]; row r is shifted 3 r right, wrapping."""
    batch = np.empty((batch_size, *pixels.shape), np.float32)
    for row in range(batch_size):
        batch[row] = np.roll(pixels, 3 * row, axis=2)
    return batch
