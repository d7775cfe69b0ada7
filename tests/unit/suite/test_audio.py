"""Features of speech: against a plain Fourier sum, on known tones, and the same every time."""

import numpy as np
import pytest

from openxla.benchmark.models import architectures, checkpoints, preprocessing
from openxla.benchmark.models.preprocessing import numpy_dtype

WHISPER = architectures.get("whisper")
PARAMETERS = {"model_name": "whisper-tiny-test", "batch_size": 3, "seq_len": 16}


def tone(frequency, samples=16_000):
    time = np.arange(samples) / preprocessing.SAMPLE_RATE
    return np.sin(2 * np.pi * frequency * time)[None].astype("f4")


def test_a_frame_is_what_a_plain_fourier_sum_gives():
    signal = preprocessing.synthetic_signal(1600, seed=0)
    features = preprocessing.log_mel(signal[None], bands=80)[0]
    windows = []
    for frame in range(10):
        padded = np.pad(signal.astype(np.float64), 200, mode="reflect")
        cut = padded[160 * frame : 160 * frame + 400]
        windows.append(cut * np.sin(np.pi * np.arange(400) / 400) ** 2)
    waves = np.exp(-2j * np.pi * np.outer(np.arange(201), np.arange(400)) / 400)
    power = np.abs(waves @ np.array(windows).T) ** 2
    decades = np.log10(np.maximum(preprocessing.mel_filters(80) @ power, 1e-10))
    expected = (np.maximum(decades, decades.max() - 8) + 4) / 4
    assert features.shape == (80, 10)
    assert np.abs(features - expected).max() <= 2.0**-15 + 1e-9


@pytest.mark.parametrize("frequency", [300, 1000, 2500, 6000])
def test_a_tone_is_loudest_in_the_band_around_it(frequency):
    features = preprocessing.log_mel(tone(frequency), bands=80)[0]
    filters = preprocessing.mel_filters(80)
    centres = np.argmax(filters, axis=1) * 40.0
    loudest = features[:, 50].argmax()
    assert abs(centres[loudest] - frequency) <= max(60, 0.06 * frequency)


def test_silence_and_the_loudest_are_eight_decades_apart_at_most():
    features = preprocessing.log_mel(tone(1000) * np.float32(100), bands=80)
    assert features.max() - features.min() == pytest.approx(2.0)


def test_every_band_has_the_same_area_and_its_own_place():
    filters = preprocessing.mel_filters(80)
    assert filters.shape == (80, 201)
    assert (filters >= 0).all()
    assert (filters.sum(axis=1) > 0).all()
    # Narrow bands contain few frequencies, so only wide bands show their area of one.
    assert np.allclose(filters[40:].sum(axis=1) * 40, 1, rtol=0.1)


def test_the_signal_is_the_same_every_time_and_another_for_another_seed():
    first, second = (preprocessing.synthetic_signal(16_000, seed=0) for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, preprocessing.synthetic_signal(16_000, seed=1))
    assert first.dtype == np.float32
    assert np.abs(first).max() < 1


@pytest.mark.parametrize("data_type", ["fp32", "fp16", "bf16"])
def test_inputs_of_whisper_have_the_declared_shapes_and_distinct_rows(data_type):
    parameters = {**PARAMETERS, "data_type": data_type}
    checkpoint = checkpoints.resolve(WHISPER, parameters)
    inputs = WHISPER.preprocess(WHISPER.default_inputs(parameters), parameters, checkpoint)
    for array, spec in zip(inputs, WHISPER.input_specs(parameters), strict=True):
        assert array.shape == spec.shape
        assert array.dtype == numpy_dtype(spec.dtype)
        assert array.flags.c_contiguous
        assert len(np.unique(array.reshape(3, -1).astype(np.float32), axis=0)) == 3
