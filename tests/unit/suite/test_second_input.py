"""The second input: other values of the same shapes, that are still inputs of the model."""

import ml_dtypes
import numpy as np
import pytest

from openxla.benchmark.models.second_input import (
    FURTHER_RULES,
    NoSecondInputError,
    changed,
    further_inputs,
    second_inputs,
)


def test_tokens_are_reversed_and_stay_tokens():
    ids = np.array([[5, 9, 2], [7, 7, 1]], np.int32)
    second = changed(ids)
    assert second.tolist() == [[2, 9, 5], [1, 7, 7]]
    assert second.dtype == ids.dtype


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.bool_])
def test_a_mask_hides_one_more_place_of_each_row_and_never_the_last_one(dtype):
    mask = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]], dtype)
    assert changed(mask).astype(int).tolist() == [
        [1, 1, 0, 0],
        [1, 0, 0, 0],
        [1, 1, 1, 0],
        [0, 0, 0, 0],
    ]
    assert mask.sum() == 8


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, ml_dtypes.bfloat16])
def test_numbers_are_reversed_or_halved(dtype):
    picture = np.arange(6).reshape(1, 2, 3).astype(dtype)
    assert changed(picture).astype(float).tolist() == [[[2, 1, 0], [5, 4, 3]]]
    for constant in (np.full((2, 3), 3.0).astype(dtype), np.array([3.0]).astype(dtype)):
        second = changed(constant)
        assert second.dtype == dtype
        assert (second.astype(float) == 1.5).all()


def test_what_is_the_same_backwards_is_lowered():
    assert changed(np.array([999], np.int64)).tolist() == [998]
    assert changed(np.array(7, np.int32)).tolist() == 6
    assert changed(np.array([[0, 4, 0]], np.int32)).tolist() == [[0, 3, 0]]
    assert changed(np.array([3], np.uint8)).dtype == np.uint8


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.float32])
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_an_empty_array_does_not_prevent_the_second_input(dtype, shape):
    second = second_inputs(object(), [np.zeros(shape, dtype), np.arange(3)])
    assert (second[0].shape, second[0].dtype) == (shape, dtype)
    assert second[1].tolist() == [2, 1, 0]


def test_a_model_may_offer_its_own():
    class Model:
        def second_inputs(self, offsets, values):
            return offsets, values + 1

    offsets, values = np.array([0, 2, 5]), np.ones(5, np.float32)
    first, second = second_inputs(Model(), [offsets, values])
    assert first.tolist() == [0, 2, 5]
    assert second.tolist() == [2.0] * 5
    Model.second_inputs = lambda self, offsets, values: (offsets, values[:4])
    with pytest.raises(NoSecondInputError, match="must not change shapes or types"):
        second_inputs(Model(), [offsets, values])


def test_nothing_to_be_changed_is_said():
    with pytest.raises(NoSecondInputError, match="the second input equals the first"):
        second_inputs(object(), [np.zeros((2, 3), np.float32), np.zeros(4, np.int32)])
    with pytest.raises(NoSecondInputError):
        second_inputs(object(), [])


@pytest.mark.parametrize("attempt", range(len(FURTHER_RULES)))
def test_further_inputs_keep_shapes_types_and_ranges(attempt):
    ids = np.arange(12, dtype=np.int64).reshape(3, 4)
    mask = np.array([[True, False], [True, True]])
    pixels = np.linspace(-1, 1, 6).astype(ml_dtypes.bfloat16).reshape(2, 3)
    given = [ids, mask, pixels]
    found = further_inputs(given, attempt)
    assert [(v.shape, v.dtype) for v in found] == [(v.shape, v.dtype) for v in given]
    for first, second in zip(given, found, strict=True):
        assert set(second.flat) <= set(first.flat) or first is pixels
        assert first.min() <= second.min() <= second.max() <= first.max()
    assert not np.array_equal(pixels, found[2])
    again = further_inputs(given, attempt)
    assert all(map(np.array_equal, found, again))


def test_further_inputs_change_what_is_symmetric():
    values = np.random.default_rng(0).uniform(size=(4, 50)).astype(np.float32)
    permuted, scaled, drawn = (further_inputs([values], n)[0] for n in range(3))
    assert np.abs(permuted.mean(-1) - values.mean(-1)).max() > 0.01
    assert scaled.mean() > values.mean() + 0.1
    assert len(set(drawn.flat)) < values.size
    zeros = np.zeros((2, 3), np.float32)
    assert np.ptp(further_inputs([zeros], 1)[0]) > 0
    with pytest.raises(NoSecondInputError, match="would equal the first"):
        further_inputs([np.zeros(3, np.int32)], 1)
