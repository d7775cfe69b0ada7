"""Errors that the limits of verification accept and reject, by type."""

import ml_dtypes
import numpy as np
import pytest

from comparative_benchmark.analysis.verification.error_limits import error_limits
from comparative_benchmark.analysis.verification.verification import verify
from openxla.benchmark.artifacts import array_files

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
# Errors of op-by-op runs of tiny BERT, and how much further off the next coarser type is.
REFERENCES = {"f32": 3.4e-7, "f16": 7.6e-4, "bf16": 6.0e-3}
COARSER = {"f32": 1400.0, "f16": 5.0, "bf16": 3.1}


@pytest.fixture
def judge(tmp_path):
    """Judges an output by the errors of itself and of the reference; returns the verdict."""

    def run(dtype, truth, reference, output):
        paths = []
        for name, value in (("output", output), ("truth", truth), ("reference", reference)):
            kept = value if name == "truth" else value.astype(TYPES[dtype])
            saved = array_files.save_all(tmp_path / name, "output", [kept])
            paths.append([tmp_path / name / file["file"] for file in saved])
        return verify(*paths)

    return run


def noise(size, seed):
    found = np.random.default_rng(seed).normal(size=size)
    return found / np.sqrt(np.mean(found**2))


def limits(dtype, rmse, size, **parameters):
    return error_limits(
        dtype, rmse=rmse, largest=5 * rmse, spread=1.0, size=size, parameters=parameters
    )


@pytest.mark.parametrize("dtype", TYPES)
def test_a_limit_lies_between_the_reference_and_the_next_coarser_type(dtype):
    reference = REFERENCES[dtype]
    allowed = limits(dtype, reference, 16384).rmse
    assert allowed / (1.25 * reference) >= 1.5
    assert COARSER[dtype] * reference / allowed >= 1.5


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_a_reference_that_is_right_by_luck_leaves_room_for_the_rounding_of_the_result(dtype):
    rounding = 2.0 ** (-7 if dtype == "bf16" else -10) * 0.3
    assert rounding < limits(dtype, 0.0, 16384).rmse < 2 * rounding
    assert limits(dtype, 0.0, 16384, rmse_floor=0).rmse == 0


def test_fewer_numbers_leave_more_room():
    errors = [limits("bf16", 1e-2, size) for size in (4, 400, 40_000_000)]
    assert errors[0].rmse > 1.5 * errors[1].rmse > errors[1].rmse > errors[2].rmse
    assert errors[2].rmse == pytest.approx(1.9e-2, rel=1e-3)
    # Of four numbers, all may be off to one side by chance.
    assert errors[0].bias >= errors[0].rmse
    assert errors[2].bias == pytest.approx(0.25 * errors[2].rmse)


@pytest.mark.parametrize("dtype", TYPES)
def test_a_bias_of_all_is_found_where_the_error_of_the_whole_is_small_enough(judge, dtype):
    truth, size = noise(20_000, 0), REFERENCES[dtype] * 10
    reference, output = truth + size * noise(20_000, 1), truth + size * noise(20_000, 2)
    assert judge(dtype, truth, reference, output).passed
    off = {"f32": 1.8, "f16": 0.8, "bf16": 0.6}[dtype] * size
    verdict = judge(dtype, truth, reference, output + off)
    assert verdict.relative_rmse < verdict.allowed_relative_rmse
    assert "off by" in verdict.reason
    assert "on average" in verdict.reason


def test_few_wrong_elements_of_two_million_are_found(judge):
    truth, size = noise(2_000_000, 0), REFERENCES["bf16"]
    reference, output = truth + size * noise(truth.size, 1), truth + size * noise(truth.size, 2)
    assert judge("bf16", truth, reference, output).passed
    output[[7, 1_999_999]] += 0.3
    verdict = judge("bf16", truth, reference, output)
    assert verdict.relative_rmse < verdict.allowed_relative_rmse
    assert "an element is off by 0.3" in verdict.reason


def test_an_outlier_may_be_off_by_the_rounding_of_its_own_size(judge):
    truth, size = noise(200_000, 0), REFERENCES["bf16"] / 4
    truth[7] = 40.0
    reference, output = truth + size * noise(truth.size, 1), truth + size * noise(truth.size, 2)
    output[7] = 40.5  # two spacings of bfloat16 there
    assert judge("bf16", truth, reference, output).passed
    output[7] = 41.0
    verdict = judge("bf16", truth, reference, output)
    assert "an element is off by 1; the limit is 0.78" in verdict.reason
    output[7], output[8] = 40.0, truth[8] + 0.3
    assert (
        "an element is off by 0.3; the limit is" in judge("bf16", truth, reference, output).reason
    )


@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_a_constant_is_wrong_however_small_the_spread_next_to_the_scale(judge, offset):
    truth = offset + noise(4000, 0)
    reference = truth.astype(np.float32)
    verdict = judge("f32", truth, reference, np.full(4000, offset))
    assert not verdict.passed
    # In bfloat16, rounding is a large part of this spread, so the output cannot be judged.
    assert not judge("bf16", truth, truth, np.full(4000, offset)).passed


def test_a_rounding_that_all_elements_share_is_no_bias(judge):
    # As a softmax of few rows: one factor, rounded once, is in all elements.
    truth = 1 + 0.1 * noise(400, 0)
    reference = truth.astype(np.float32)
    assert judge("f32", truth, reference, truth * (1 + 2.0**-23)).passed
    assert not judge("f32", truth, reference, truth * (1 + 4 * 2.0**-23)).passed
    # Around zero such a factor does not exist.
    around_zero = truth - truth.mean()
    rough = around_zero * (1 + 2.0**-24 * noise(400, 1))
    assert not judge("f32", around_zero, rough, around_zero + 3e-8).passed
