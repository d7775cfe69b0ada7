"""Quantised programs: their limits, passing errors, and exclusion from other rankings."""

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.analysis.verification import error_limits as quantized
from comparative_benchmark.analysis.verification.verification import verify
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.reporting.report import standings
from comparative_benchmark.reporting.report.inputs import ReportCase
from comparative_benchmark.reporting.report.standings import contests
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare import Fate, compare_to_baseline
from comparative_benchmark.results.comparing.comparison import summarize_comparisons
from comparative_benchmark.terminal.tables import results_table

RNG = np.random.default_rng(11)
TRUTH = RNG.normal(size=(16, 64))
SCALE = float(np.sqrt(np.mean(TRUTH**2)))
INT8_CASE = "models/BERT_TINY_INT8_TFLITE_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"


@pytest.fixture
def judge(tmp_path):
    """Judges an array as if it were the only output of a quantised program."""

    def run(output, **parameters):
        paths = []
        values = (("output", output), ("truth", TRUTH), ("reference", TRUTH.astype(np.float32)))
        for name, value in values:
            paths.append([tmp_path / f"{name}_0.npy"])
            np.save(paths[-1][0], np.asarray(value, np.float64 if name == "truth" else np.float32))
        return verify(*paths, {"min_sqnr_db": 20, **parameters})

    return run


def noisy(sqnr_db):
    """Returns the truth with noise of that ratio."""
    noise = np.where(np.arange(TRUTH.size).reshape(TRUTH.shape) % 2, 1.0, -1.0)
    return TRUTH + SCALE * 10 ** (-sqnr_db / 20) * noise


def test_the_ratio_is_that_of_the_powers_of_signal_and_noise(judge):
    output = noisy(26).astype(np.float32)
    power = np.sum(TRUTH**2) / np.sum((output - TRUTH) ** 2)
    verdict = judge(output)
    assert verdict.passed
    assert verdict.sqnr_db == pytest.approx(10 * np.log10(power))
    assert verdict.sqnr_db == pytest.approx(26, abs=0.01)
    assert verdict.allowed_relative_rmse == pytest.approx(0.1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.floats(-10, 60))
def test_noise_passes_if_and_only_if_it_is_below_the_limit(judge, sqnr_db):
    verdict = judge(noisy(sqnr_db))
    if abs(sqnr_db - 20) > 0.01:
        assert verdict.passed == (sqnr_db > 20)
    if not verdict.passed:
        assert "is below 20 dB" in verdict.reason


def test_no_error_at_all_passes(tmp_path):
    for name in ("output", "truth", "reference"):
        np.save(tmp_path / f"{name}_0.npy", TRUTH)
    paths = [[tmp_path / f"{name}_0.npy"] for name in ("output", "truth", "reference")]
    verdict = verify(*paths, {"min_sqnr_db": 20})
    assert verdict.passed
    assert verdict.sqnr_db is None
    assert verdict.relative_rmse == 0


@pytest.mark.parametrize(
    "output",
    [
        np.zeros_like(TRUTH),
        np.full_like(TRUTH, TRUTH.mean()),
        TRUTH[::-1],
        -TRUTH,
        TRUTH * 0.8,
        TRUTH + 0.2,
    ],
    ids=["zero", "constant", "rows mixed up", "sign", "scale", "offset"],
)
def test_a_wrong_output_fails(judge, output):
    verdict = judge(output)
    assert not verdict.passed
    assert "SQNR" in verdict.reason


def test_one_wrong_element_fails_although_the_noise_is_small(judge):
    output = noisy(40)
    output[3, 5] += 1.0 * SCALE
    verdict = judge(output)
    assert verdict.sqnr_db > 20
    assert not verdict.passed
    assert "an element is off" in verdict.reason


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_fails(judge, value):
    output = noisy(40)
    output[0, 0] = value
    assert not judge(output).passed


def test_tolerances_must_hold_in_addition(judge):
    assert judge(noisy(26), absolute_tolerance=0.1).passed
    verdict = judge(noisy(26), absolute_tolerance=0.01)
    assert not verdict.passed
    assert "exceeds absolute tolerance" in verdict.reason


def test_limits_are_by_precision_and_a_case_can_replace_them():
    given = {"absolute_tolerance": 0.5, "min_sqnr_db": 33.0}
    for precision, least in quantized.MIN_SQNR_DB.items():
        assert quantized.parameters_for(None, precision, {}) == {"min_sqnr_db": least}
        assert quantized.parameters_for(None, precision, given) == given
    assert quantized.parameters_for(None, "fp32", {"rmse_factor": 3}) == {"rmse_factor": 3}
    assert quantized.parameters_for(None, None, {}) == {}


def test_tolerances_of_an_fp32_case_are_not_for_what_a_compiler_quantises():
    given = {"absolute_tolerance": 0.5, "rmse_factor": 2.0}
    least = quantized.MIN_SQNR_DB["int8"]
    assert quantized.parameters_for("int8", "fp32", given) == {"min_sqnr_db": least}
    assert quantized.parameters_for("int8", "fp32", {"min_sqnr_db": 3.0}) == {"min_sqnr_db": 3.0}
    # They are in a file that is int8 already.
    assert quantized.parameters_for("int8", "int8", given) == {"min_sqnr_db": least, **given}


def test_a_coarser_precision_has_the_lower_limit():
    limits = quantized.MIN_SQNR_DB
    assert limits["fp16-weights"] > limits["dynamic-range"] > limits["int8"] > 3


@pytest.mark.parametrize(
    ("competitor", "precision"),
    [("tflite:native", "fp32"), ("tflite:int8", "int8"), ("tflite:fp16", "fp16-weights")],
)
def test_a_result_says_what_it_was_computed_in(make_trial, finished, competitor, precision):
    trial = make_trial(competitor=competitor)
    definition = to_result(trial, finished(), run_id="r").definition
    assert definition.data_type == "fp32"
    assert definition.precision == precision
    assert ("min_sqnr_db" in trial.verify_parameters) == (precision != "fp32")


def test_a_quantised_case_is_judged_by_its_precision(make_trial):
    trial = make_trial(INT8_CASE, "tflite:native")
    assert trial.precision == "int8"
    assert trial.verify_parameters == {"min_sqnr_db": quantized.MIN_SQNR_DB["int8"]}


def test_a_quantised_competitor_is_not_ranked_next_to_fp32(make_trial, finished):
    verdict = finished().processes[0].verification
    noisy_verdict = attrs.evolve(verdict, sqnr_db=31.4)
    plain = to_result(make_trial(), finished(), run_id="r")
    int8 = to_result(
        make_trial(competitor="tflite:int8"),
        finished(verification=noisy_verdict, final_verification=noisy_verdict),
        run_id="r",
    )
    native = to_result(make_trial(competitor="tflite:native"), finished(), run_id="r")
    cases = [Case(result=result) for result in (plain, int8, native)]
    found = compare_to_baseline(cases, "jax_xla:xla")
    by_name = {item.competitor: item for item in found}
    assert by_name["tflite:native"].fate is Fate.COMPARED
    apart = by_name["tflite:int8"]
    assert apart.fate is Fate.INCOMPARABLE
    assert apart.verdict is Verdict.INCOMPARABLE
    assert apart.ratio is None
    assert apart.reason == "different data types: fp32 and int8"
    table = results_table(cases, baseline="jax_xla:xla").table
    cells = {column.header: list(column.cells) for column in table.columns}
    assert str(cells["verdict"][1]) == "incomparable"
    assert cells["rel. error"][1] == "31 dB"
    assert cells["verdict"][2] != "incomparable"


def test_a_stack_is_compared_with_itself_in_fewer_bits_and_ranked_with_nobody(make_trial, finished):
    verdict = attrs.evolve(finished().processes[0].verification, sqnr_db=31.4)
    ended = finished(verification=verdict, final_verification=verdict)
    native = to_result(make_trial(competitor="tflite:native"), finished(), run_id="r")
    int8 = to_result(make_trial(competitor="tflite:int8"), ended, run_id="r")
    plain = to_result(make_trial(), finished(), run_id="r")
    cases = [Case(result=result) for result in (native, int8, plain)]
    own, other = compare_to_baseline(cases, "tflite:native")
    assert (own.competitor, own.arithmetic) == ("tflite:int8", "int8 vs fp32")
    assert own.fate is Fate.COMPARED
    assert own.ratio.estimate == pytest.approx(1.0)
    assert (other.competitor, other.arithmetic) == ("jax_xla:xla", "")
    assert summarize_comparisons([own, other]).passed == 1
    reported = [ReportCase(result=case.result) for case in cases]
    (contest,) = contests(standings.judge(reported, "tflite:native", processes=1))
    assert [standing.competitor for standing in contest.ranked] == ["jax_xla:xla"]
    # Reversed it is not a recipe's gain: coarser first.
    assert compare_to_baseline(cases[:2], "tflite:int8")[0].fate is Fate.INCOMPARABLE


def test_what_quantisation_leaves_alone_may_be_off_as_in_any_program(judge):
    """A plain run of such an output is exact, and its limit would be, too."""
    output = TRUTH.astype(np.float32) * (1 + np.where(TRUTH > 0, 1, -1) * 2.0**-23)
    assert judge(output, min_sqnr_db=300.0).passed
    assert not judge(noisy(60), min_sqnr_db=300.0).passed


def test_few_large_elements_may_hold_most_of_the_error(tmp_path):
    truth = np.full(1000, 1e-4)
    truth[:3] = 0.6, 0.2, 0.1
    error = np.zeros(1000)
    error[:3] = 0.010, -0.007, -0.003
    # The plain run has the same error; the limit is 3 dB below.
    least = 20 * np.log10(np.sqrt(np.mean(truth**2)) / np.sqrt(np.mean(error**2))) - 3
    paths = {}
    for name, value in (("output", truth + error), ("truth", truth), ("reference", truth)):
        paths[name] = [tmp_path / f"{name}.npy"]
        np.save(paths[name][0], value.astype(np.float64 if name == "truth" else np.float32))
    verdict = verify(*paths.values(), {"min_sqnr_db": least})
    assert verdict.passed, verdict.reason
    np.save(paths["output"][0], (truth + np.eye(1000)[500] * 0.1).astype(np.float32))
    assert not verify(*paths.values(), {"min_sqnr_db": least}).passed


def test_integers_that_quantisation_may_change_are_inconclusive(tmp_path):
    paths = []
    for name, value in (("output", [1, 2, 9]), ("truth", [1, 2, 3]), ("reference", [1, 2, 3])):
        paths.append([tmp_path / f"{name}.npy"])
        np.save(paths[-1][0], np.array(value, np.float64 if name == "truth" else np.int64))
    assert not verify(*paths, {}).undecided
    verdict = verify(*paths, {"min_sqnr_db": 20.0})
    assert verdict.undecided
    assert not verdict.passed
