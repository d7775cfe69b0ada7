"""Text and pictures to arrays: exact shapes, distinct rows, the same bytes every time."""

import hashlib

import numpy as np
import pytest

from openxla.benchmark import testdata
from openxla.benchmark.models import architectures, checkpoints, preprocessing
from openxla.benchmark.models.preprocessing import element_type_of, numpy_dtype

BERT, RESNET = architectures.get("bert"), architectures.get("resnet")
BERT_PARAMETERS = {"model_name": "bert-tiny", "data_type": "fp32", "batch_size": 4, "seq_len": 32}
RESNET_PARAMETERS = {"model_name": "resnet-tiny", "data_type": "fp32", "batch_size": 4}

GOLDEN = {
    "input_ids": "468a84df0784a9f4ef210df880f3f462612175e54ff4ee7ab2e26ac81657a4e4",
    "attention_mask": "34122618b207ab8a1d1f94324cbf7a12064944a5b1268932b5ed635bce595f1b",
    "pixels": "2cddd565c0c8f6fc62b3990b7b786b026c677478d4ba6e108123a9ec875f1199",
}


def default_inputs(architecture, parameters):
    checkpoint = checkpoints.resolve(architecture, parameters)
    return architecture.preprocess(architecture.default_inputs(parameters), parameters, checkpoint)


def sha256(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


def tokens(batch_size, seq_len, text=None):
    return preprocessing.token_batch(
        text or testdata.load_text(), testdata.TOKENIZER, batch_size=batch_size, seq_len=seq_len
    )


def test_inputs_of_bert_tiny_are_the_golden_bytes_on_every_run():
    for _ in range(2):
        ids, mask = default_inputs(BERT, BERT_PARAMETERS)
        assert sha256(ids) == GOLDEN["input_ids"]
        assert sha256(mask) == GOLDEN["attention_mask"]


def test_inputs_of_resnet_tiny_are_the_golden_bytes_on_every_run():
    for _ in range(2):
        (pixels,) = default_inputs(RESNET, RESNET_PARAMETERS)
        assert sha256(pixels) == GOLDEN["pixels"]


@pytest.mark.parametrize("data_type", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize(
    ("architecture", "parameters"), [(BERT, BERT_PARAMETERS), (RESNET, RESNET_PARAMETERS)]
)
def test_inputs_have_the_declared_shapes_and_types(architecture, parameters, data_type):
    parameters = {**parameters, "data_type": data_type}
    specs = architecture.input_specs(parameters)
    arrays = default_inputs(architecture, parameters)
    assert len(arrays) == len(specs)
    for array, spec in zip(arrays, specs, strict=True):
        assert array.shape == spec.shape
        assert array.dtype == numpy_dtype(spec.dtype)
        assert array.flags.c_contiguous


def test_sixteen_bit_pixels_are_the_rounded_ones():
    (exact,) = default_inputs(RESNET, RESNET_PARAMETERS)
    (rounded,) = default_inputs(RESNET, {**RESNET_PARAMETERS, "data_type": "bf16"})
    assert np.array_equal(rounded, exact.astype(numpy_dtype("bf16")))


def test_the_same_row_comes_whatever_the_batch_size():
    ids, _ = tokens(8, 32)
    assert np.array_equal(ids[:2], tokens(2, 32)[0])


@pytest.mark.slow
@pytest.mark.parametrize(("batch_size", "seq_len"), [(4, 32), (64, 8), (1280, 64)])
def test_no_two_rows_of_a_text_batch_are_equal(batch_size, seq_len):
    """The greatest batch of the suite has 1280 rows; the text is long enough for the smaller."""
    ids, _ = tokens(batch_size, seq_len)
    distinct = len(np.unique(ids, axis=0))
    assert distinct == min(batch_size, len(testdata.load_text().split()))


def test_no_two_rows_of_a_picture_batch_are_equal():
    (pixels,) = default_inputs(RESNET, {**RESNET_PARAMETERS, "batch_size": 32})
    assert len(np.unique(pixels.reshape(32, -1), axis=0)) == 32


@pytest.mark.parametrize("seq_len", [8, 384, 512])
def test_the_text_fills_every_length_that_the_suite_asks_for(seq_len):
    ids, mask = tokens(2, seq_len)
    assert ids.shape == mask.shape == (2, seq_len)
    assert mask.all()
    assert ids.min() >= 0


def test_a_short_text_is_padded_and_masked():
    ids, mask = tokens(1, 16, text="a photo of a cat")
    used = int(mask.sum())
    assert 0 < used < 16
    assert (mask[0, :used] == 1).all()
    assert (mask[0, used:] == 0).all()
    assert (ids[0, used:] == 0).all()


@pytest.mark.parametrize(("batch_size", "seq_len"), [(1, 2), (1, 32), (4, 32), (64, 8), (16, 384)])
def test_padded_rows_end_early_each_at_another_place(batch_size, seq_len):
    before, full = tokens(batch_size, seq_len)
    ids, mask = preprocessing.padded_rows(before, full, pad=7)
    assert before.shape == ids.shape == mask.shape
    assert full.all()
    lengths = mask.sum(axis=1)
    room = min(seq_len - 1, 1)
    assert lengths.max() <= seq_len - room
    assert lengths.min() >= max(1, seq_len - 1 - seq_len // 2)
    assert len(set(lengths)) == min(batch_size, max(1, seq_len // 2))
    for row, length in enumerate(lengths):
        assert (mask[row, :length] == 1).all()
        assert not mask[row, length:].any()
        assert (ids[row, length:] == 7).all()
        assert np.array_equal(ids[row, : length - 1], before[row, : length - 1])
        assert ids[row, length - 1] == before[row, -1]


def test_a_short_text_is_not_made_longer():
    short, mask = tokens(1, 16, text="a photo of a cat")
    ids, same = preprocessing.padded_rows(short, mask, pad=0)
    assert np.array_equal(ids, short)
    assert np.array_equal(same, mask)


def test_token_ids_fit_the_smallest_vocabulary():
    ids, _ = tokens(8, 64)
    assert ids.max() < min(config["vocab_size"] for config in BERT.configs.values())


def test_pixels_are_normalised_channels_first():
    image = np.zeros((4, 4, 3), np.uint8)
    image[..., 0] = 255
    batch = preprocessing.image_batch(
        image, batch_size=1, size=4, mean=(0.5, 0.25, 0.0), stddev=(0.5, 0.5, 0.5)
    )
    assert batch.shape == (1, 3, 4, 4)
    assert batch.dtype == np.float32
    assert np.allclose(batch[0].reshape(3, -1).T, [1.0, -0.5, 0.0])


def test_rows_of_a_picture_batch_are_shifted_to_the_right():
    image = np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3)
    batch = preprocessing.image_batch(image, batch_size=2, size=8, mean=(0, 0, 0), stddev=(1, 1, 1))
    assert np.array_equal(batch[1], np.roll(batch[0], 3, axis=2))


def test_element_types_and_numpy_types_are_a_bijection():
    names = ["f64", "f32", "f16", "bf16", "i8", "i32", "i64", "i1", "u8"]
    assert [element_type_of(numpy_dtype(name)) for name in names] == names
    assert element_type_of(np.complex64) == "complex64"


def test_a_text_without_words_is_refused():
    with pytest.raises(ValueError, match="no word"):
        preprocessing.token_batch(" ", testdata.TOKENIZER, batch_size=1, seq_len=4)
