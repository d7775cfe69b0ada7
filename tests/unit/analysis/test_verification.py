"""Verification: limits, tolerances and their units."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comparative_benchmark.analysis.verification.verification import verify

RNG = np.random.default_rng(7)
TRUTH = RNG.normal(size=(16, 64))
SCALE = float(np.sqrt(np.mean(TRUTH**2)))
REFERENCE = TRUTH.astype(np.float32)


@pytest.fixture
def judge(tmp_path):
    """Judges arrays as if they were the only output of a run."""

    def run(output, truth=TRUTH, reference=REFERENCE, **parameters):
        paths = []
        for name, value in (("output", output), ("truth", truth), ("reference", reference)):
            paths.append([tmp_path / f"{name}_0.npy"])
            np.save(paths[-1][0], value)
        return verify(*paths, parameters)

    return run


def off_by(relative_rmse):
    """Returns the truth plus noise of exactly that relative root mean square."""
    noise = np.where(np.arange(TRUTH.size).reshape(TRUTH.shape) % 2, 1.0, -1.0)
    return (TRUTH + relative_rmse * SCALE * noise).astype(np.float32)


def test_the_figures_are_those_of_the_outputs(judge):
    verdict = judge(off_by(1e-2))
    assert verdict.relative_rmse == pytest.approx(1e-2, rel=1e-3)
    assert verdict.max_abs_error == pytest.approx(1e-2 * SCALE, rel=1e-3)
    error = np.sqrt(np.mean((REFERENCE - TRUTH) ** 2)) / SCALE
    assert verdict.reference_relative_rmse == pytest.approx(error)
    spread = TRUTH.std() / SCALE
    floor = 8 * 2.0**-23 * spread
    assert verdict.allowed_relative_rmse == pytest.approx(max(6 * (1 + 2 / 32) * error, floor))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.floats(-9, 1))
def test_noise_passes_if_and_only_if_it_is_below_the_limit(judge, exponent):
    size = 10.0**exponent
    limit = judge(REFERENCE).allowed_relative_rmse
    verdict = judge(off_by(size))
    # Rounding to float32 adds less than 1e-7 to the error.
    if size < limit - 1e-7:
        assert verdict.passed
        assert verdict.reason is None
    elif size > limit + 1e-7:
        assert not verdict.passed
        assert "relative error" in verdict.reason
    assert verdict.passed == (verdict.relative_rmse <= verdict.allowed_relative_rmse)


def test_the_largest_error_is_of_all_outputs_and_not_of_the_worst_in_relation(tmp_path):
    rough, fine = TRUTH * 1e-3, TRUTH * 1e3
    arrays = {
        "output": [(rough * (1 + 5e-7)).astype(np.float32), fine.astype(np.float32)],
        "truth": [rough, fine],
        "reference": [(rough * (1 + 5e-7)).astype(np.float32), fine.astype(np.float32)],
    }
    paths = []
    for name, values in arrays.items():
        paths.append([tmp_path / f"{name}_{index}.npy" for index in range(2)])
        for path, value in zip(paths[-1], values, strict=True):
            np.save(path, value)
    verdict = verify(*paths)
    assert verdict.passed
    assert verdict.max_abs_error == np.abs(arrays["output"][1] - fine).max()


def test_the_verdict_does_not_depend_on_the_scale_of_the_output(judge):
    for factor in (1e-20, 1.0, 1e20):
        for size, passed in ((1e-7, True), (1e-4, False)):
            verdict = judge(
                (off_by(size).astype(np.float64) * factor).astype(np.float32),
                TRUTH * factor,
                (TRUTH * factor).astype(np.float32),
            )
            assert verdict.passed is passed


def test_rmse_factor_and_floor_move_the_limit(judge):
    output = off_by(1e-4)
    assert not judge(output).passed
    assert judge(output, rmse_floor=2e-4).passed
    assert not judge(output, rmse_floor=0.5e-4).passed
    reference = off_by(1e-5)
    assert not judge(output, reference=reference).passed
    assert judge(output, reference=reference, rmse_factor=11).passed
    assert not judge(output, reference=reference, rmse_factor=9).passed


def test_rmse_factor_zero_and_floor_zero_allow_nothing_but_the_truth(judge):
    truth = REFERENCE.astype(np.float64)
    assert judge(REFERENCE, truth, rmse_factor=0, rmse_floor=0).passed
    output = REFERENCE.copy()
    output[0, 0] = np.nextafter(output[0, 0], np.float32(np.inf))
    assert not judge(output, truth, rmse_factor=0, rmse_floor=0).passed


def test_absolute_tolerance_must_hold_in_addition(judge):
    output = off_by(1e-4)
    loose = {"rmse_floor": 1.0}
    assert judge(output, **loose, absolute_tolerance=2e-4).passed
    verdict = judge(output, **loose, absolute_tolerance=0.5e-4)
    assert not verdict.passed
    assert "absolute tolerance 5e-05" in verdict.reason
    assert not judge(output, absolute_tolerance=1.0).passed


def test_relative_tolerance_must_hold_in_addition(judge):
    output = (TRUTH * (1 + 1e-4)).astype(np.float32)
    loose = {"rmse_floor": 1.0}
    assert judge(output, **loose, relative_tolerance=2e-4).passed
    verdict = judge(output, **loose, relative_tolerance=0.5e-4)
    assert not verdict.passed
    assert "relative tolerance 5e-05" in verdict.reason


def test_both_tolerances_add_up_as_in_allclose(judge):
    output = (TRUTH + 1e-4 * np.abs(TRUTH) + 1e-4).astype(np.float32)
    loose = {"rmse_floor": 1.0, "relative_tolerance": 1.1e-4}
    assert judge(output, **loose, absolute_tolerance=1.1e-4).passed
    assert not judge(output, **loose, absolute_tolerance=0.5e-4).passed


def test_a_single_wrong_element_stands_out_of_a_large_output(judge):
    truth = np.random.default_rng(3).normal(size=(2048, 1024))
    output = truth.astype(np.float32)
    output[5, 7] += 3e-4
    verdict = judge(output, truth, truth.astype(np.float32))
    assert verdict.relative_rmse <= verdict.allowed_relative_rmse
    assert not verdict.passed
    assert "an element is off by" in verdict.reason


def test_a_wrong_element_in_the_last_chunk_is_seen(judge):
    truth = np.random.default_rng(3).normal(size=(3 * (1 << 20) + 5,))
    output = truth.astype(np.float32)
    output[-1] += 1
    verdict = judge(output, truth, truth.astype(np.float32))
    assert not verdict.passed
    assert verdict.max_abs_error == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.bool_])
def test_integer_outputs_must_be_equal(judge, dtype):
    exact = RNG.integers(0, 2 if dtype is np.bool_ else 100, size=(8, 32)).astype(dtype)
    truth = exact.astype(np.float64)
    assert judge(exact, truth, exact).passed
    wrong = exact.copy()
    wrong[3, 5] = not wrong[3, 5] if dtype is np.bool_ else wrong[3, 5] + 1
    assert not judge(wrong, truth, exact).passed


def test_integer_outputs_must_equal_the_reference_even_where_that_left_the_truth(judge):
    """A float64 argmax may differ from ours in a tie; other answers are still wrong."""
    truth = RNG.integers(0, 100, size=(8, 32)).astype(np.float64)
    reference = truth.astype(np.int32)
    reference[0, 0] += 50
    output = truth.astype(np.int32)
    output[4, 4] += 1
    assert not judge(output, truth, reference).passed


def test_large_integers_are_not_rounded_before_they_are_compared(judge):
    exact = RNG.integers(2**60, 2**62, size=(8, 32))
    wrong = exact.copy()
    wrong[3, 5] += 1
    assert judge(exact, exact, exact).passed
    assert not judge(wrong, exact, exact).passed


def test_the_imaginary_part_counts(judge):
    truth = TRUTH + 1j * RNG.normal(size=TRUTH.shape)
    reference = truth.astype(np.complex64)
    assert judge(reference, truth, reference).passed
    assert not judge(reference.conj(), truth, reference).passed


def test_a_wrong_output_so_large_that_its_square_overflows_gives_finite_figures_or_none(judge):
    output = TRUTH.copy()
    output[0, 0] = 1e200
    verdict = judge(output, TRUTH, TRUTH)
    assert not verdict.passed
    for figure in (verdict.relative_rmse, verdict.max_abs_error):
        assert figure is None or np.isfinite(figure)


def test_a_reference_that_is_itself_far_off_can_not_excuse_zeros(judge):
    reference = (TRUTH + RNG.normal(size=TRUTH.shape)).astype(np.float32)
    assert not judge(np.zeros_like(REFERENCE), reference=reference).passed
