"""Wrong outputs of a network, in each type: each must fail with its fault as the reason."""

import re

import attrs
import ml_dtypes
import numpy as np
import pytest

from comparative_benchmark.analysis.verification.verification import verify
from openxla.benchmark.artifacts import array_files

TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@attrs.frozen
class Run:
    """Truth and reference of one network, and the noise that its type brings."""

    truth: np.ndarray
    reference: np.ndarray

    @property
    def scale(self):
        return float(np.sqrt(np.mean(self.truth**2)))

    @property
    def noise(self):
        return float(np.sqrt(np.mean((self.reference.astype(np.float64) - self.truth) ** 2)))

    @property
    def largest_error(self):
        return float(np.abs(self.reference.astype(np.float64) - self.truth).max())


def network(dtype, shape, layers=6):
    """Dense layers with residuals, op by op in a type; weights and inputs rounded to it."""
    rows, width = shape
    rng = np.random.default_rng(11)

    def run(kind):
        def rounded(values):
            return values.astype(dtype).astype(np.float64).astype(kind)

        # Sums in float32 at least, as the frameworks do for 16-bit types; one rounding an op.
        wide = np.float64 if kind is np.float64 else np.float32
        x = rounded(inputs)
        for weight in weights:
            product = (x.astype(wide) @ rounded(weight).astype(wide)).astype(kind)
            x = (x + np.tanh(product.astype(wide)).astype(kind)).astype(kind)
            x = (x / np.sqrt(np.mean(x.astype(wide) ** 2, -1, keepdims=True)).astype(kind)).astype(
                kind
            )
        return x

    inputs = rng.normal(size=(rows, width))
    weights = [rng.normal(size=(width, width)) / np.sqrt(width) for _ in range(layers)]
    return Run(run(np.float64), run(dtype))


NETWORKS = {
    (name, shape): network(dtype, shape)
    for name, dtype in TYPES.items()
    for shape in ((48, 64), (64, 64))
}


@pytest.fixture(params=TYPES)
def kind(request):
    return request.param


@pytest.fixture
def judge(tmp_path):
    """Judges lists of outputs."""

    def run(outputs, truth, reference, **parameters):
        paths = []
        for name, values in (("output", outputs), ("truth", truth), ("reference", reference)):
            directory = tmp_path / name
            files = array_files.save_all(directory, "output", values)
            paths.append([directory / file["file"] for file in files])
        return verify(*paths, parameters)

    return run


def wide(values):
    return values.astype(np.float64)


def back(values, run):
    return values.astype(run.reference.dtype)


def with_error(run, size):
    error = np.zeros(run.truth.size)
    error[777] = size
    return back(wide(run.reference) + error.reshape(run.truth.shape), run)


FAULTS = {
    # In bfloat16 a tenth of the scale is three times the largest error of mere rounding.
    "one element off by 10 % of the scale": (
        lambda run: with_error(run, max(0.1 * run.scale, 8 * run.largest_error)),
        "an element is off by|relative error",
    ),
    "one element off by the scale": (
        lambda run: with_error(run, run.scale),
        "an element is off by|relative error",
    ),
    "noise of 20 times the reference's": (
        lambda run: back(
            run.truth + 20 * run.noise * np.random.default_rng(5).normal(size=run.truth.shape), run
        ),
        "relative error",
    ),
    "rows permuted": (lambda run: run.reference[::-1], "relative error"),
    "two rows swapped": (
        lambda run: run.reference[[1, 0, *range(2, len(run.reference))]],
        "relative error",
    ),
    "shifted by one row": (lambda run: np.roll(run.reference, 1, axis=0), "relative error"),
    "columns permuted": (lambda run: run.reference[:, ::-1], "relative error"),
    "negated": (lambda run: -run.reference, "relative error"),
    "doubled": (lambda run: run.reference + run.reference, "relative error"),
    "last row missing": (lambda run: run.reference[:-1], r"shape \(47, 64\), expected \(48, 64\)"),
    "transposed": (lambda run: run.reference.T, r"shape \(64, 48\), expected \(48, 64\)"),
    "flattened": (lambda run: run.reference.reshape(-1), r"shape \(3072,\), expected"),
    "one axis more": (lambda run: run.reference[None], r"shape \(1, 48, 64\), expected"),
    "half of it never written": (
        lambda run: np.where(np.arange(48)[:, None] < 24, run.reference, back(np.zeros(1), run)),
        "relative error",
    ),
    "zeros": (lambda run: np.zeros_like(run.reference), "relative error"),
    "constant": (
        lambda run: np.full_like(run.reference, run.truth.mean().astype(run.reference.dtype)),
        "relative error",
    ),
    "NaN in one place": (
        lambda run: np.where(np.arange(64) == 3, back(np.array(np.nan), run), run.reference),
        "NaN or infinity",
    ),
    "infinity in one place": (
        lambda run: np.where(np.arange(64) == 3, back(np.array(-np.inf), run), run.reference),
        "NaN or infinity",
    ),
}


def test_the_reference_passes(kind, judge):
    for shape in ((48, 64), (64, 64)):
        run = NETWORKS[kind, shape]
        verdict = judge([run.reference], [run.truth], [run.reference])
        assert verdict.passed, verdict
        assert verdict.relative_rmse == verdict.reference_relative_rmse > 0


def test_the_truth_rounded_to_the_type_passes(kind, judge):
    run = NETWORKS[kind, (48, 64)]
    assert judge([back(run.truth, run)], [run.truth], [run.reference]).passed


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_output_fails_with_its_fault(kind, fault, judge):
    run = NETWORKS[kind, (48, 64)]
    make, reason = FAULTS[fault]
    output = np.ascontiguousarray(make(run))
    assert output.dtype == run.reference.dtype
    verdict = judge([output], [run.truth], [run.reference])
    assert not verdict.passed, verdict
    assert re.search(reason, verdict.reason), verdict.reason
    assert "output 0" in verdict.reason


def test_a_square_output_transposed_fails(kind, judge):
    run = NETWORKS[kind, (64, 64)]
    verdict = judge([np.ascontiguousarray(run.reference.T)], [run.truth], [run.reference])
    assert not verdict.passed
    assert "relative error" in verdict.reason


@pytest.mark.parametrize("given_type", ["f64", *TYPES, "i32"])
def test_a_wrong_type_fails_and_is_named(kind, given_type, judge):
    run = NETWORKS[kind, (48, 64)]
    dtype = {"f64": np.float64, "i32": np.int32, **TYPES}[given_type]
    verdict = judge([run.truth.astype(dtype)], [run.truth], [run.reference])
    assert verdict.passed is (given_type == kind)
    if not verdict.passed:
        assert f"type {given_type}, expected {kind}" in verdict.reason


def test_missing_and_extra_outputs_fail_with_their_count(kind, judge):
    run = NETWORKS[kind, (48, 64)]
    due = ([run.truth, run.truth], [run.reference, run.reference])
    for count in (0, 1, 3):
        verdict = judge([run.reference] * count, *due)
        assert not verdict.passed
        assert verdict.reason == f"number of outputs: expected 2, got {count}"
    assert judge([run.reference] * 2, *due).passed


def test_swapped_outputs_fail(kind, judge):
    first, second = NETWORKS[kind, (48, 64)], NETWORKS[kind, (64, 64)]
    other = attrs.evolve(first, truth=first.truth[::-1], reference=first.reference[::-1])
    for one, two in ((first, second), (first, other)):
        due = ([one.truth, two.truth], [one.reference, two.reference])
        assert judge([one.reference, two.reference], *due).passed
        verdict = judge([two.reference, one.reference], *due)
        assert not verdict.passed
        assert "output 0" in verdict.reason


def test_the_output_that_is_wrong_is_named(kind, judge):
    run = NETWORKS[kind, (48, 64)]
    verdict = judge([run.reference, -run.reference], [run.truth] * 2, [run.reference] * 2)
    assert not verdict.passed
    assert verdict.reason.startswith("output 1:")


@pytest.mark.parametrize("value", [0.0, 1.0, 3.0])
def test_a_constant_truth_is_compared_by_its_size(kind, judge, value):
    truth = np.full((8, 8), value)
    output = truth.astype(TYPES[kind])
    assert judge([output], [truth], [output]).passed
    assert not judge([(truth + 0.1).astype(TYPES[kind])], [truth], [output]).passed


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_element_that_truth_and_reference_disagree_on_is_left_out(kind, judge, value):
    run = NETWORKS[kind, (48, 64)]
    broken, overflown = run.truth.copy(), run.reference.copy()
    broken[0, 0] = overflown[0, 0] = value
    for truth, reference in ((broken, run.reference), (run.truth, overflown)):
        assert judge([run.reference], [truth], [reference]).passed
        assert not judge([-run.reference], [truth], [reference]).passed


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_truth_or_reference_that_is_not_finite_judges_nothing(kind, judge, value):
    run = NETWORKS[kind, (48, 64)]
    broken = run.truth.copy()
    broken[1:] = value
    for truth, reference in ((broken, run.reference), (run.truth, back(broken, run))):
        assert judge([run.reference], [truth], [reference]).undecided


def test_an_empty_output_judges_nothing(kind, judge):
    empty = np.zeros((0, 4))
    verdict = judge([empty.astype(TYPES[kind])], [empty], [empty.astype(TYPES[kind])])
    assert verdict.undecided
