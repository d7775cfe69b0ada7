"""Converts real text, pictures and sound to arrays with numpy: the same bytes for every framework.

Sound for speech models is a synthetic signal and its log-mel spectrogram.
"""

import itertools
import math
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt

from openxla.benchmark.models import checkpoints
from openxla.benchmark.models.architectures import TensorInit

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

# Sound.
SAMPLE_RATE = 16_000
HOP_LENGTH = 160  # samples from one frame to the next: 10 ms
_WINDOW = 400  # samples of a frame: 25 ms
_LOWEST_POWER = 1e-10
_DYNAMIC_RANGE = 8.0  # dynamic range kept below the maximum, in decades

# Slaney's mel scale: linear up to 1 kHz, logarithmic above.
_HZ_PER_MEL, _BREAK_HZ = 200.0 / 3, 1000.0
_MELS_PER_E = 27.0 / np.log(6.4)


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


def synthetic_signal(samples: int, *, seed: int) -> npt.NDArray[np.float32]:
    """Returns a chirp with noise, float32[samples] at 16 kHz.

    Three rising tones, modulated about four times a second like syllables, over noise from the
    counter-based generator of the checkpoints: every frame and every band carries signal.
    """
    time = np.arange(samples, dtype=np.float64) / SAMPLE_RATE
    duration = samples / SAMPLE_RATE
    signal = np.zeros(samples)
    for harmonic, amplitude in ((1, 0.4), (3, 0.2), (7, 0.1)):
        # The frequency goes from 100 Hz to 900 Hz, times the harmonic; its integral is the phase.
        phase = 2 * np.pi * harmonic * (100 * time + 400 * time**2 / duration)
        signal += amplitude * np.sin(phase)
    signal *= 0.5 - 0.5 * np.cos(2 * np.pi * 4.1 * time)
    noise = TensorInit(name="audio", shape=(samples,), stddev=0.02)
    signal += checkpoints.generate(noise, seed=seed).astype(np.float64)
    return signal.astype(np.float32)


def signal_batch(signal: npt.NDArray[np.float32], *, batch_size: int) -> npt.NDArray[np.float32]:
    """Returns float32[batch, samples]; row r starts r * 0.7 seconds later, wrapping around."""
    shift = 7 * SAMPLE_RATE // 10
    return np.stack([np.roll(signal, -shift * row) for row in range(batch_size)])


def log_mel(signals: npt.NDArray[np.float32], *, bands: int) -> npt.NDArray[np.float32]:
    """Returns Whisper's features (Radford et al. 2022, arXiv:2212.04356, section 2.2).

    Power spectra of Hann windows around every 160th sample, summed into mel bands, as decimal
    logarithms that are cut off 8 decades below the loudest of the signal, and scaled.

    Args:
      signals: float32[batch, samples] at 16 kHz; the number of samples is a multiple of 160.
      bands: number of mel bands.

    Returns:
      float32[batch, bands, samples / 160]. Rounded to multiples of 2^-14: sines and Fourier
      transforms differ in their last digits among processors, the features should not.
    """
    filters = mel_filters(bands)
    features = np.empty((len(signals), bands, signals.shape[1] // HOP_LENGTH), np.float32)
    for row, signal in enumerate(signals):
        padded = np.pad(signal.astype(np.float64), _WINDOW // 2, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::HOP_LENGTH]
        # Without the last frame, which Whisper drops.
        spectra = np.fft.rfft(frames[:-1] * _hann_window(), axis=-1)
        power = filters @ np.square(np.abs(spectra)).T
        decades = np.log10(np.maximum(power, _LOWEST_POWER))
        decades = np.maximum(decades, decades.max() - _DYNAMIC_RANGE)
        features[row] = np.round((decades + 4) / 4 * 2**14) / 2**14
    return features


def mel_filters(bands: int) -> npt.NDArray[np.float64]:
    """Returns weights of frequencies by mel band, float64[bands, 201].

    Triangles of equal area, evenly spaced on Slaney's mel scale from 0 to 8 kHz (Slaney 1998,
    "Auditory Toolbox"), as librosa and Whisper have them.
    """
    frequencies = np.linspace(0, SAMPLE_RATE / 2, _WINDOW // 2 + 1)
    corners = _mel_to_hz(np.linspace(0, _hz_to_mel(SAMPLE_RATE / 2), bands + 2))
    lower, centre, upper = (corners[i : i + bands, None] for i in range(3))
    rising = (frequencies - lower) / (centre - lower)
    falling = (upper - frequencies) / (upper - centre)
    filters: npt.NDArray[np.float64] = np.maximum(0, np.minimum(rising, falling))
    return filters * (2 / (upper - lower))


def _hann_window() -> npt.NDArray[np.float64]:
    # A periodic window, as for Fourier transforms, not a symmetric one.
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)


def _hz_to_mel(frequency: float) -> float:
    """Mel of a frequency that is at least 1 kHz."""
    return float(_BREAK_HZ / _HZ_PER_MEL + _MELS_PER_E * np.log(frequency / _BREAK_HZ))


def _mel_to_hz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    above: npt.NDArray[np.float64] = np.maximum(mels - _BREAK_HZ / _HZ_PER_MEL, 0)
    linear: npt.NDArray[np.float64] = np.minimum(mels * _HZ_PER_MEL, _BREAK_HZ)
    linear *= np.exp(above / _MELS_PER_E)
    return linear
