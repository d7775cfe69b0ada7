"""Runtimes that agree with each other but not with the truth."""

import numpy as np
import pytest

from comparative_benchmark.analysis.verification.plausibility import agreeing

TRUTH = np.linspace(-1.0, 1.0, 200)
RIGHT = (TRUTH * 3).astype(np.float32)


@pytest.fixture
def judged(tmp_path):
    """Returns `agreeing` of arrays of runtimes, on a truth with its reference."""

    def judge(outputs, truth=TRUTH, reference=None):
        def saved(name, value):
            np.save(tmp_path / f"{name}.npy", value)
            return [tmp_path / f"{name}.npy"]

        reference = truth.astype(np.float32) if reference is None else reference
        files = {name: saved(name, value) for name, value in outputs.items()}
        return agreeing(files, saved("truth", truth), saved("reference", reference))

    return judge


def test_two_that_differ_by_rounding_agree(judged):
    other = RIGHT * np.float32(1 + 2e-7)
    assert judged({"a": RIGHT, "b": other}) == ("a", "b")
    assert judged({"a": RIGHT + 1, "b": RIGHT, "c": other}) == ("b", "c")


@pytest.mark.parametrize(
    "other", [RIGHT * 1.00001, RIGHT[:-1], RIGHT.astype(np.float64), np.full_like(RIGHT, np.nan)]
)
def test_two_that_differ_otherwise_do_not(judged, other):
    assert judged({"a": RIGHT, "b": np.asarray(other, other.dtype)}) is None


def test_a_truth_of_zeros_can_be_disputed(judged):
    zeros = np.zeros_like(TRUTH)
    small = (TRUTH * 1e-3).astype(np.float32)
    reference = zeros.astype(np.float32)
    assert judged({"a": small, "b": small}, zeros, reference) == ("a", "b")
    assert judged({"a": small, "b": small + np.float32(0.1)}, zeros, reference) is None


def test_one_alone_agrees_with_nobody(judged):
    assert judged({"a": RIGHT}) is None


def test_integers_agree_exactly(judged):
    ids = np.arange(200)
    assert judged({"a": ids, "b": ids}, ids, ids) == ("a", "b")
    assert judged({"a": ids, "b": ids + (ids == 7)}, ids, ids) is None
