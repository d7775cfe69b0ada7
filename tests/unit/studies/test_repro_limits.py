"""A reproducer's `check.py` judges as the suite does, on both sides of every limit."""

import json

import ml_dtypes
import numpy as np
import pytest
from cbs_test_plugin.generator import create_model
from repro_support import load_check

from comparative_benchmark.analysis.verification.generation_verification import verify_free_run
from comparative_benchmark.analysis.verification.verification import sum_length, verify
from openxla.benchmark.artifacts import array_files

SHAPE = (4, 33)
TYPES = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@pytest.fixture
def both(tmp_path):
    """Judges outputs by the suite and by a reproducer; returns whether each lets them pass."""

    def judge(outputs, truth, reference, inputs=(), neighbours=(), **parameters):
        check, saved = load_check(
            tmp_path, truth, reference, parameters, inputs=inputs, neighbours=neighbours
        )
        files = array_files.save_all(tmp_path / "outputs", "output", outputs)
        paths = [tmp_path / "outputs" / file["file"] for file in files]
        suite = verify(
            paths,
            saved["truth"],
            saved["reference"],
            parameters,
            neighbours=dict(enumerate(saved["neighbours"])),
            longest_sum=sum_length(*([a.shape for a in arrays] for arrays in (inputs, truth))),
        )
        return suite.passed, not check.judge(outputs)

    return judge


def workload(dtype, seed=0, error=3e-3):
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=SHAPE)
    return truth, (truth + error * rng.normal(size=SHAPE)).astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("factor", [0.5, 0.97, 1.03, 3.0])
def test_the_error_of_the_whole_output_has_the_suites_limit(both, dtype, factor):
    # In float64 the noise can be placed close to the limit; the type then rounds it.
    truth, reference = workload(TYPES[dtype], error=1e-2 if dtype == "f32" else 2e-2)
    rng = np.random.default_rng(1)
    noise = rng.choice([-1.0, 1.0], SHAPE)
    scale = np.sqrt(np.mean(truth**2))
    relative = np.sqrt(np.mean((reference.astype(np.float64) - truth) ** 2)) / scale
    allowed = {"f32": 6, "f16": 2.5, "bf16": 1.9}[dtype] * (1 + 2 / np.sqrt(truth.size))
    allowed *= relative * scale
    output = (truth + factor * allowed * noise).astype(TYPES[dtype])
    assert both([output], [truth], [reference]) == (factor < 1, factor < 1)


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_a_single_element_has_the_suites_limit(both, factor):
    truth, reference = workload(np.float32)
    largest = np.abs(reference.astype(np.float64) - truth).max()
    rmse = np.sqrt(np.mean((reference.astype(np.float64) - truth) ** 2))
    limit = 1.25 * 6 * (1 + 2 / np.sqrt(truth.size)) * max(largest, 8 * rmse)
    output = truth.astype(np.float32)
    output[2, 3] = truth[2, 3] + factor * limit
    assert both([output], [truth], [reference]) == (factor < 1, factor < 1)


@pytest.mark.parametrize(("spacings", "passes"), [(2, True), (3, False)])
def test_an_element_far_outside_the_spread_has_the_suites_limit(both, spacings, passes):
    reference = np.random.default_rng(0).normal(size=(100, 100)).astype(np.float32)
    reference[0, 0] = 2.0**20
    output = reference.copy()
    output[0, 0] *= np.float32(1 + spacings * 2.0**-23)
    assert both([output], [reference.astype(np.float64)], [reference]) == (passes, passes)


@pytest.mark.parametrize("passes", [True, False])
def test_a_long_sum_has_the_suites_limit(both, passes):
    reference = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
    truth = reference.astype(np.float64)
    noise = np.random.default_rng(1).choice([-1.0, 1.0], SHAPE)
    output = (truth + 100 * 2.0**-23 * noise).astype(np.float32)
    inputs = [np.zeros(2**20 if passes else 2, np.int8)]
    assert both([output], [truth], [reference], inputs=inputs) == (passes, passes)


@pytest.mark.parametrize("passes", [True, False])
@pytest.mark.parametrize("kind", [np.float32, np.complex64, np.int32])
def test_outputs_with_neighbours_have_the_suites_limit(both, kind, passes):
    reference = np.arange(1, 11).reshape(2, 5).astype(kind)
    truth = reference.astype(np.complex128 if kind is np.complex64 else np.float64)
    is_integer = kind is np.int32
    off = np.eye(2, 5) if is_integer else np.random.default_rng(1).choice([-0.01, 0.01], (2, 5))
    near = truth + (off if is_integer else off / 5)
    neighbours = [np.stack([near, near])] if passes else []
    output = (truth + off).astype(kind)
    assert both([output], [truth], [reference], neighbours=neighbours) == (passes, passes)


@pytest.mark.parametrize("factor", [0.97, 1.03])
def test_a_quantised_output_has_the_suites_limit(both, factor):
    truth, reference = workload(np.float32)
    noise = np.random.default_rng(1).choice([-1.0, 1.0], SHAPE)
    allowed = 10 ** (-15 / 20) * np.sqrt(np.mean(truth**2))
    output = (truth + factor * allowed * noise).astype(np.float32)
    due = (factor < 1, factor < 1)
    assert both([output], [truth], [reference], min_sqnr_db=15.0) == due


@pytest.mark.parametrize(("absolute", "passes"), [(1.03, True), (0.97, False)])
def test_tolerances_of_a_case_hold_in_addition(both, absolute, passes):
    truth, reference = workload(np.float32)
    output = reference.copy()
    largest = np.abs(output.astype(np.float64) - truth).max()
    parameters = {"absolute_tolerance": absolute * largest, "relative_tolerance": 0.0}
    assert both([output], [truth], [reference], **parameters) == (passes, passes)


def broken(truth, reference):
    nan, integers = reference.copy(), np.arange(12, dtype=np.int32)
    nan[0, 0] = np.nan
    nan_truth = np.where(np.isnan(nan), np.nan, truth)
    one_off = integers.copy()
    one_off[3] += 1
    constant = np.ones(SHAPE, np.float32)
    masked = np.abs(np.tile(reference, (8, 1)))
    masked[:, ::7] = -1e9
    columns = np.tile(reference, (8, 1))
    columns[:, 5:] *= 1e5
    wrong_column = columns.copy()
    wrong_column[:, 3] = 0
    empty = np.zeros((0, 3), np.float32)
    halves, large = reference.astype(np.float16), truth.copy()
    large[0, 0], halves[0, 0] = 7e4, np.inf
    large[1, 1], halves[1, 1] = -1e308, -65504
    finite = halves.copy()
    finite[0, 0] = 0
    return {
        "overflow": ([halves], [large], [halves]),
        "no-overflow": ([finite], [large], [halves]),
        "right": ([reference], [truth], [reference]),
        "empty": ([reference, empty], [truth, empty.astype(np.float64)], [reference, empty]),
        "shape": ([reference.T], [truth], [reference]),
        "type": ([reference.astype(np.float16)], [truth], [reference]),
        "nan": ([nan], [truth], [reference]),
        "count": ([reference, reference], [truth], [reference]),
        "constant": ([constant], [constant.astype(np.float64)], [constant]),
        "reference-off": ([reference], [truth], [2 * reference]),
        "second-output": ([reference, 2 * reference], [truth] * 2, [reference] * 2),
        "nan-due": ([nan], [nan.astype(np.float64)], [nan]),
        "nan-near-truth": ([nan], [nan_truth], [nan]),
        "masked-zeros": ([masked * (masked < 0)], [masked.astype(np.float64)], [masked]),
        "small-column": ([wrong_column], [columns.astype(np.float64)], [columns]),
        "integers": ([integers], [integers.astype(np.float64)], [integers]),
        "integer-off": ([one_off], [integers.astype(np.float64)], [integers]),
        "complex": (
            [reference.astype(np.complex64)],
            [truth.astype(np.complex128)],
            [reference.astype(np.complex64)],
        ),
        "complex-off": (
            [reference.astype(np.complex64) * np.complex64(1j)],
            [truth.astype(np.complex128)],
            [reference.astype(np.complex64)],
        ),
    }


PASSES = {"right", "integers", "complex", "constant", "nan-due", "nan-near-truth", "empty"}
PASSES |= {"overflow"}


@pytest.mark.parametrize("kind", broken(*workload(np.float32)))
def test_what_the_suite_refuses_a_reproducer_refuses(both, kind):
    passes = kind in PASSES
    assert both(*broken(*workload(np.float32))[kind]) == (passes, passes)


def generator(data_type, name):
    return create_model(
        model_name=name, data_type=data_type, max_new_tokens=8, seed=0, fault="none"
    )


@pytest.fixture
def judge_text(tmp_path):
    """Judges generated outputs by the suite and by a reproducer."""

    def judge(change, data_type="fp32", name="toy-text", **parameters):
        model = generator(data_type, name)
        (ids,) = model.preprocess(model.generate_default_inputs())
        truth = model.in_float64(ids)
        reference = model.generate(ids, truth[0])
        check, saved = load_check(
            tmp_path, truth, reference, parameters, generates=True, data_type=data_type
        )
        outputs = [np.array(value) for value in model.generate(ids)]
        change(outputs, truth)
        files = array_files.save_all(tmp_path / "outputs", "output", outputs)
        paths = [tmp_path / "outputs" / file["file"] for file in files]
        suite = verify_free_run(
            paths, saved["truth"], saved["reference"], parameters, data_type=data_type
        )
        limits = json.loads((tmp_path / "expected.json").read_text())["generation"]
        return suite, check.judge(outputs), limits

    return judge


def nothing(outputs, truth):
    pass


def off_at_a_step(outputs, truth):
    outputs[1][1, 3] += 2


def one_logit_off(outputs, truth):
    outputs[1][0, 2, 5] += 0.05


def other_token(outputs, truth):
    outputs[0][1, 2] = (outputs[0][1, 2] + 1) % outputs[1].shape[-1]


@pytest.mark.parametrize("data_type", ["fp32", "bf16"])
@pytest.mark.parametrize("change", [nothing, off_at_a_step, one_logit_off, other_token])
def test_generated_text_is_judged_as_by_the_suite(judge_text, change, data_type):
    suite, problems, _ = judge_text(change, data_type)
    assert suite.passed == (not problems)
    if change is nothing:
        assert suite.passed
    if change in (off_at_a_step, other_token):
        assert not suite.passed


@pytest.mark.parametrize("shift", [1e-1, 1e-2, 1e-3, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7])
@pytest.mark.parametrize("data_type", ["fp32", "bf16"])
def test_a_mean_error_of_all_logits_is_judged_as_by_the_suite(judge_text, shift, data_type):
    def biased(outputs, truth):
        outputs[1] = (truth[1] + shift).astype(outputs[1].dtype)

    suite, problems, _ = judge_text(biased, data_type)
    assert suite.passed == (not problems)


@pytest.mark.parametrize("token", [-1, 10**6])
def test_a_token_outside_the_vocabulary_is_wrong(judge_text, token):
    def unknown(outputs, truth):
        outputs[0][1, 2] = token

    suite, problems, _ = judge_text(unknown)
    assert not suite.passed
    assert "is not in the vocabulary" in problems[0]


def test_a_near_tie_may_go_either_way(judge_text):
    """Rows of this model's head are twins, between which rounding decides."""
    suite, problems, _ = judge_text(nothing, name="toy-text-twins")
    assert suite.divergences
    assert suite.passed
    assert not problems


def test_the_limits_of_generated_text_are_the_suites(judge_text):
    suite, _, limits = judge_text(nothing)
    (tokens,) = {len(row) for row in limits["step_rmse"]}
    assert tokens == 8
    assert limits["rmse"] > 0
    assert min(map(min, limits["step_rmse"])) >= limits["rmse"] * 0.999
    assert suite.allowed_relative_rmse is not None


def test_tolerances_of_generated_text_hold_in_addition(judge_text):
    suite, problems, _ = judge_text(nothing, absolute_tolerance=0.0, relative_tolerance=0.0)
    assert not suite.passed
    assert problems
