"""Verification of parts of an output, of NaN and infinity, of constants, of integers near ties."""

import ml_dtypes
import numpy as np
import pytest

from comparative_benchmark.analysis.verification.verification import sum_length, verify
from openxla.benchmark.artifacts import array_files

EPSILON = 2.0**-23
NUMBERS = np.random.default_rng(7).normal(size=(64, 50))


@pytest.fixture
def judge(tmp_path):
    """Judges arrays as the only output of a run; without a reference, rounds the truth."""

    def run(output, truth, reference=None, neighbours=None, **wanted):
        truth = np.asarray(truth)
        reference = truth.astype(np.float32) if reference is None else reference
        output = np.asarray(output).astype(reference.dtype)
        paths = [
            [
                tmp_path / name / file["file"]
                for file in array_files.save_all(tmp_path / name, "o", [value])
            ]
            for name, value in (("output", output), ("truth", truth), ("reference", reference))
        ]
        if neighbours is not None:
            np.save(tmp_path / "near.npy", neighbours)
            wanted["neighbours"] = {0: tmp_path / "near.npy"}
        return verify(*paths, **wanted)

    return run


def computed(truth, seed=0, errors=1.0):
    """Returns the truth as a right program gives it: off by about a spacing in each element."""
    noise = np.random.default_rng(seed).normal(size=truth.shape)
    largest = np.finfo(np.float32).max
    return (truth * (1 + errors * EPSILON * noise)).clip(-largest, largest).astype(np.float32)


def masked(fill):
    truth = NUMBERS.copy()
    truth[:, ::7] = fill
    return truth


@pytest.mark.parametrize("fill", [-1e4, -1e9, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("fault", ["zeros", "bf16", "rows"])
def test_nothing_hides_behind_a_mask(judge, fill, fault):
    truth = masked(fill)
    assert judge(computed(truth, 1), truth, computed(truth)).passed
    wrong = {
        "zeros": np.where(truth == fill, truth, 0),
        "bf16": truth.astype(ml_dtypes.bfloat16).astype(float),
        "rows": truth[::-1],
    }[fault]
    verdict = judge(np.where(truth == fill, truth, wrong), truth, computed(truth))
    assert not verdict.passed
    assert not verdict.undecided


@pytest.mark.parametrize("fault", ["bf16", "one per cent", "other rows"])
def test_scores_do_not_hide_behind_pixel_coordinates(judge, fault):
    boxes = 400 + 200 * NUMBERS
    scores = 1 / (1 + np.exp(-4 * NUMBERS))
    wrong = {
        "bf16": scores.astype(ml_dtypes.bfloat16).astype(float),
        "one per cent": 1.01 * scores,
        "other rows": scores[::-1],
    }[fault]
    truth = np.concatenate([boxes, scores], -1)
    assert judge(computed(truth, 1), truth, computed(truth)).passed
    assert not judge(np.concatenate([boxes, wrong], -1), truth, computed(truth)).passed


def test_small_rows_do_not_hide_behind_large_ones(judge):
    truth = NUMBERS * np.logspace(4, -4, len(NUMBERS))[:, None]
    assert judge(computed(truth, 1), truth, computed(truth)).passed
    wrong = truth.copy()
    wrong[-8:] = 0
    assert "are off by" in judge(wrong, truth, computed(truth)).reason


@pytest.mark.parametrize("number", [1.0, np.inf, np.nan])
def test_small_columns_do_not_hide_behind_infinity(judge, number):
    truth = np.exp(4 * NUMBERS)
    truth[:, -1] = 1 / (1 + np.exp(-NUMBERS[:, -1]))
    truth[0, 0] = number
    assert judge(computed(truth, 1), truth, computed(truth)).passed
    wrong = truth.copy()
    wrong[:, -1] += np.where(NUMBERS[:, 0] > 0, 1e-3, -1e-3)
    assert f"index {truth.shape[1] - 1}" in judge(wrong, truth, computed(truth)).reason


@pytest.mark.parametrize(
    ("kind", "error"), [(ml_dtypes.bfloat16, 0.02), (np.float16, 2e-3), (np.float32, 2e-6)], ids=str
)
def test_rows_with_few_finite_numbers_prove_nothing(judge, kind, error):
    scores = np.random.default_rng(3).normal(size=(64, 64))
    truth = np.where(np.tri(64) > 0, scores, -np.inf)
    for seed in range(20):
        noise = np.random.default_rng(100 + seed).normal(size=(2, 64, 64))
        reference, output = (truth + error * noise).astype(kind)
        assert judge(output, truth, reference).passed
    shifted = np.where(np.tri(64) > 0, np.roll(scores, 1, 0), -np.inf)
    assert not judge(shifted, truth, reference).passed


@pytest.mark.parametrize("others", ["mask", "rectified", "one feature"])
def test_zeros_among_other_numbers_are_judged(judge, others):
    truth = np.where(NUMBERS > 0, {"mask": -1e9}.get(others, NUMBERS), 0)
    if others == "one feature":
        truth[:, 0] = 1e7
    right = np.where(truth == 0, 1e-8, computed(truth, 1))
    assert judge(right, truth, computed(truth)).passed
    wrong = judge(np.where(truth == 0, 0.02, truth), truth, computed(truth))
    assert not wrong.passed
    assert others == "rectified" or "that should be nearly zero are off by 0.02" in wrong.reason


def test_zeros_may_be_off_by_the_rounding_of_the_numbers_next_to_them(judge):
    truth = np.where(NUMBERS > 0, 1e6 * NUMBERS, 0)
    output = computed(truth, 1)
    output[np.argwhere(truth == 0)[0][0]] += 0.05
    assert judge(output, truth, computed(truth)).passed


@pytest.mark.parametrize(
    "numbers", [(1e6, 0.731), (12345.678, 0.731, 0.012, 3.3), (-4e5, 1.5, 0.0)]
)
def test_a_few_numbers_of_different_magnitude_are_judged_one_by_one(judge, numbers):
    truth = np.array(numbers)
    neighbours = truth * (1 + EPSILON * np.random.default_rng(0).uniform(-1, 1, (8, truth.size)))
    reference = truth.astype(np.float32)
    assert judge(truth * (1 + EPSILON), truth, reference, neighbours=neighbours).passed
    wrong = truth.copy()
    wrong[1] += 1e-3
    verdict = judge(wrong, truth, reference, neighbours=neighbours)
    assert not verdict.passed
    assert not verdict.undecided
    infinite = np.full(truth.shape, np.inf)
    with_infinity = judge(infinite, infinite, neighbours=np.tile(infinite, (8, 1)))
    assert "no output contains a finite number" in with_infinity.reason
    # A number that cannot be judged by itself does not make the others doubtful.
    reference[1] += 0.5
    assert judge(wrong, truth, reference, neighbours=neighbours).passed


def test_the_tail_of_a_bounded_function_may_be_flushed(judge):
    """ONNX Runtime's sigmoid is exact to a quarter of a spacing near one, and 0 below that."""
    truth = 1 / (1 + np.exp(-8 * NUMBERS))
    assert truth.min() < 1e-9
    assert judge(np.where(truth < EPSILON / 4, 0, truth), truth, computed(truth)).passed
    assert not judge(np.where(truth < 1e-3, 0, truth), truth, computed(truth)).passed


def test_numbers_below_the_smallest_normal_one_may_be_flushed(judge):
    truth = np.abs(NUMBERS) * np.logspace(0, -44, 50)
    flushed = np.where(truth < 2.0**-126, 0, computed(truth, 1))
    assert judge(flushed, truth, computed(truth)).passed


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_compared_by_position(judge, value):
    truth = masked(value)
    assert judge(computed(truth, 1), truth, computed(truth)).passed
    for other in ({np.nan, np.inf, -np.inf} - {value}) | {0.0}:
        if not (np.isnan(other) and np.isnan(value)):
            assert not judge(np.where(np.isfinite(truth), truth, other), truth).passed
    moved = truth.copy()
    moved[0, 1] = value
    assert "contains NaN or infinity" in judge(moved, truth).reason
    assert not judge(np.where(np.isfinite(truth), 0, truth), truth).passed


def test_a_number_too_large_for_the_type_is_due_to_be_infinite_or_the_largest(judge):
    truth = masked(-1e9)
    with np.errstate(over="ignore"):
        reference = truth.astype(np.float16)
    assert judge(reference, truth, reference).passed
    largest = np.where(np.isinf(reference), np.finfo(np.float16).min, reference)
    assert judge(largest, truth, reference).passed
    assert not judge(np.where(np.isinf(reference), 0, reference), truth, reference).passed


@pytest.mark.parametrize(("share", "passes"), [(0.9995, True), (0.9, False)])
def test_only_numbers_next_to_the_largest_may_overflow(judge, share, passes):
    truth = NUMBERS * 100
    truth[0, 0] = share * np.finfo(np.float16).max
    reference = truth.astype(np.float16)
    output = reference.copy()
    output[0, 0] = np.inf
    assert judge(output, truth, reference).passed == passes
    output[0, 0] = -np.inf
    assert not judge(output, truth, reference).passed


def test_where_the_reference_overflows_nothing_is_due(judge):
    reference = NUMBERS.astype(np.float32)
    reference[:20] = np.inf
    assert judge(NUMBERS, NUMBERS, reference).passed
    wrong = NUMBERS.copy()
    wrong[30] = 0
    assert not judge(wrong, NUMBERS, reference).passed
    for value, passes in ((np.nan, True), (-np.inf, True), (77.0, False)):
        other = NUMBERS.copy()
        other[:20] = value
        verdict = judge(other, NUMBERS, reference)
        assert (verdict.passed, verdict.undecided) == (passes, not passes)
        assert passes or verdict.reason.endswith("this run produced other numbers there")
    reference[:40] = np.nan
    verdict = judge(NUMBERS, NUMBERS, reference)
    assert verdict.undecided
    assert "have NaN or infinity in different elements" in verdict.reason


def test_beyond_the_largest_number_only_that_or_infinity_is_right(judge):
    truth = np.array([*range(1, 16), 65530.0])
    largest = np.float16(65504)
    reference = truth.clip(0, largest).astype(np.float16)
    for value in (largest, np.inf):
        output = np.where(truth > largest, value, truth)
        assert judge(output, truth, reference).passed
    for value in (np.nan, -np.inf, 3.0):
        output = np.where(truth > largest, value, truth)
        verdict = judge(output, truth, reference)
        assert (verdict.passed, verdict.undecided) == (False, False)
    assert judge([65504], np.array([65530.0]), np.array([65504], np.float16)).passed


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_where_only_float64_is_not_finite_the_plain_run_counts(judge, value):
    truth = NUMBERS.copy()
    truth[3, 5] = value
    reference = NUMBERS.astype(np.float32)
    for number, passes in ((NUMBERS[3, 5], True), (value, True), (77.0, False), (-np.inf, False)):
        output = NUMBERS.copy()
        output[3, 5] = number
        verdict = judge(output, truth, reference)
        assert (verdict.passed, verdict.undecided) == (passes, not passes)


@pytest.mark.parametrize("value", [1 + 2j, complex(np.nan, 1), complex(np.inf, 1)])
def test_a_complex_number_without_shape_is_judged(judge, value):
    truth, near = np.full((), value, np.complex128), np.full(8, value, np.complex128)
    reference = truth.astype(np.complex64)
    assert judge(truth, truth, reference, near).passed
    wrong = np.full((), complex(value.real, 1.5))
    assert not judge(wrong, truth, reference, near).passed


def test_nothing_but_nan_cannot_be_judged(judge):
    truth = np.full((4, 4), np.nan)
    assert judge(truth, truth).undecided


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (8, 8)])
@pytest.mark.parametrize("value", [3.7, -250.0, 1e-12])
def test_one_number_and_constants_are_compared_by_their_size(judge, shape, value):
    truth = np.full(shape, value)
    assert judge(truth * (1 + EPSILON), truth).passed
    verdict = judge(truth * 1.0001, truth)
    assert not verdict.passed
    assert not verdict.undecided
    assert not judge(0 * truth, truth).passed


def test_zeros_are_due_to_be_zero(judge):
    truth = np.zeros((4, 4))
    assert judge(truth, truth).passed
    assert judge(truth + 1e-8, truth).passed
    assert not judge(truth + 1e-3, truth).passed
    # The difference of equal large numbers.
    far, less_far = np.full((4, 4), 64.0, np.float32), np.full((4, 4), 0.05, np.float32)
    assert judge(far, truth, far).undecided
    assert judge(4 * less_far, truth, less_far).undecided


def test_a_single_number_may_be_off_by_as_much_as_rounding_moves_it(judge):
    """Large terms cancel: another order of sums gives other last digits, and many of them."""
    truth, output = np.array([1e-3]), np.array([1.0002e-3])
    assert not judge(output, truth).passed
    neighbours = truth + 1e-7 * np.random.default_rng(0).normal(size=(8, 1))
    assert judge(output, truth, neighbours=neighbours).passed
    assert not judge(2 * truth, truth, neighbours=neighbours).passed


@pytest.mark.parametrize("shape", [(), (4, 4)])
def test_a_number_whose_reference_is_far_off_proves_nothing(judge, shape):
    """Equal terms cancel: the truth is a rounding error, and so is every right output."""
    truth, reference = np.full(shape, 1e-17), np.full(shape, 1e-10, np.float32)
    for output in (reference, 5 * reference, 0 * truth):
        verdict = judge(output, truth, reference)
        assert verdict.undecided
        assert "1e+07 times the value" in verdict.reason
    nearly = np.full(shape, 1.03e-17)
    assert judge(nearly, truth, nearly.astype(np.float32)).passed
    doubtful = judge(1.15 * truth, truth, nearly.astype(np.float32))
    assert doubtful.undecided
    assert "is inconclusive" in doubtful.reason


def test_an_empty_output_needs_the_right_shape(tmp_path):
    paths = {}
    for name in ("output", "truth", "reference"):
        values = [np.zeros((4, 0), np.float32), NUMBERS.astype(np.float32)]
        files = array_files.save_all(tmp_path / name, "o", values)
        paths[name] = [tmp_path / name / file["file"] for file in files]
    assert verify(*paths.values()).passed
    assert verify(*([path[0]] for path in paths.values())).undecided


def test_a_long_sum_may_be_off_by_more_than_its_reference(judge):
    """PyTorch's cumulative sum adds in double; others add 100,000 numbers in float32."""
    numbers = np.random.default_rng(0).uniform(size=(4, 100_000))
    truth = numbers.astype(np.float32).astype(float).cumsum(-1)
    output = numbers.astype(np.float32).cumsum(-1, dtype=np.float32)
    assert not judge(output, truth).passed
    assert judge(output, truth, longest_sum=100_000).passed
    assert not judge(truth * 1.0002, truth, longest_sum=100_000).passed


def test_the_length_of_sums_comes_from_the_inputs():
    assert sum_length([(64, 200_000)], [(64,)]) == 200_000
    assert sum_length([(1, 3, 224, 224)], [(1, 1000)]) == 224
    assert sum_length([(2, 100, 100, 100)], [(2,)]) == 1_000_000
    assert sum_length([()], [()]) == 1
    assert sum_length([], [(3, 4)]) == 1


def test_what_is_allowed_never_exceeds_a_tenth_of_the_spread(judge):
    noise = np.random.default_rng(3).normal(size=NUMBERS.shape)
    reference = (NUMBERS + 0.05 * noise).astype(np.float32)
    assert judge(NUMBERS + 0.05 * noise[::-1], NUMBERS, reference).passed
    doubtful = judge(NUMBERS + 0.2 * noise[::-1], NUMBERS, reference)
    assert doubtful.undecided
    assert "is inconclusive" in doubtful.reason
    wrong = judge(0 * NUMBERS, NUMBERS, reference)
    assert not wrong.passed
    assert not wrong.undecided


def test_constant_integers_are_equal_or_wrong(judge):
    exact = np.full((4, 4), 3)
    assert judge(exact, exact, exact).judged == "integers"
    assert not judge(exact + 1, exact, exact).passed


def test_floats_next_to_integers_are_what_was_judged(tmp_path):
    values = [np.arange(4), NUMBERS.astype(np.float32)]
    paths = {}
    for name in ("output", "truth", "reference"):
        files = array_files.save_all(tmp_path / name, "o", values)
        paths[name] = [tmp_path / name / file["file"] for file in files]
    assert verify(*paths.values()).judged is None


def rounded_pictures(seed, spacings):
    """Returns pixels from numbers that are off by a number of spacings of float32."""
    numbers = np.random.default_rng(0).uniform(size=400_000) * 255
    noise = np.random.default_rng(seed).normal(size=numbers.shape)
    return np.round(numbers * (1 + spacings * EPSILON * noise)).astype(np.uint8)


def test_equal_elements_may_be_sorted_in_any_order(judge):
    """Eight neighbours do not show all orders of many equal elements."""
    numbers = np.random.default_rng(0).integers(5, size=(16, 40))

    def order(seed, values=numbers):
        shuffled = np.random.default_rng(seed).permutation(40)
        return shuffled[np.argsort(values[:, shuffled], axis=-1, kind="stable")]

    exact, near = order(0), np.stack([order(seed) for seed in range(1, 9)])
    verdict = judge(order(20), exact, exact, neighbours=near)
    assert verdict.undecided
    assert "at near-ties" in verdict.reason
    few = np.concatenate([numbers[:1], np.random.default_rng(1).permuted(near[0, 1:], axis=-1)])
    exact, near = order(0, few), np.stack([order(seed, few) for seed in range(1, 9)])
    wrong = judge(order(0, -few), exact, exact, neighbours=near)
    assert not wrong.passed
    assert not wrong.undecided


def test_pixels_may_flip_at_ties_alone(judge):
    exact = rounded_pictures(0, 0)
    near = np.stack([rounded_pictures(seed, 4) for seed in range(1, 9)])
    flips = 0
    for seed in range(20, 40):
        output = rounded_pictures(seed, 1)
        flips += int((output != exact).sum())
        assert judge(output, exact, exact, neighbours=near).passed
    assert flips > 20
    wrong = exact.copy()
    wrong[1000:1010] += 1
    assert "differ: 10 of 400000" in judge(wrong, exact, exact, neighbours=near).reason
    coarser = np.round(exact.astype(float) * 1.01).clip(0, 255).astype(np.uint8)
    assert not judge(coarser, exact, exact, neighbours=near).passed


@pytest.mark.parametrize(("share", "passes"), [(0.0, True), (0.5, True), (1.5, False)])
def test_a_16_bit_result_may_be_cut_but_not_be_too_small(judge, share, passes):
    """OpenVINO cuts a part of each row of a softmax on CPUs without AVX-512."""
    truth = np.exp(NUMBERS) / np.exp(NUMBERS).sum(axis=1, keepdims=True)
    rounded = truth.astype(ml_dtypes.bfloat16)
    spacing = 2.0 ** (np.floor(np.log2(truth)) - 7)
    is_cut = np.arange(truth.shape[1]) % 2 == 0
    cut = np.floor(truth / spacing) * spacing - max(share - 0.5, 0) * spacing
    output = np.where(is_cut & (share > 0), cut, rounded.astype(float))
    verdict = judge(output, truth, rounded)
    assert verdict.passed is passes, verdict.reason
