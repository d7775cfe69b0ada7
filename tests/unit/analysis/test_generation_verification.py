"""Generation judged step by step: right runs pass, and each fault fails with its reason."""

import re

import numpy as np
import pytest
from cbs_test_plugin.generator import BATCH, PROMPT, VOCABULARY, create_model

from comparative_benchmark.analysis.verification.generation_verification import (
    verify_forced_run,
    verify_free_run,
    verify_same_run,
)
from openxla.benchmark.artifacts import array_files

NEW = 8
DATA_TYPES = ("fp32", "fp16", "bf16")
SEEDS = (0, 1, 2)
# Faults of the model itself: wrong whoever's tokens it is fed with.
MODEL_FAULTS = ("stale-cache", "writes-one-place-further", "mask-one-too-short", "wrong-position")


def generator(data_type="fp32", fault="none", seed=0, name="toy-text"):
    return create_model(
        model_name=name, data_type=data_type, max_new_tokens=NEW, seed=seed, fault=fault
    )


def prompt(model):
    (ids,) = model.preprocess(model.generate_default_inputs())
    return ids


@pytest.fixture
def workload(tmp_path):
    """Truth of a model, the reference along it, and judges of candidates."""

    class Workload:
        def __init__(self, **options):
            self.options = {"data_type": "fp32", **options}
            right = generator(**self.options)
            self.ids = prompt(right)
            self.truth = right.in_float64(self.ids)
            self.reference = right.generate(self.ids, self.truth[0])

        def files(self, name, values):
            directory = tmp_path / name
            saved = array_files.save_all(directory, "output", values)
            return [directory / file["file"] for file in saved]

        def judge(self, verify, *outputs, parameters=None):
            return verify(
                *(self.files(f"outputs-{i}", values) for i, values in enumerate(outputs)),
                self.files("truth", self.truth),
                self.files("reference", self.reference),
                parameters or {},
                data_type=self.options["data_type"],
            )

        def run(self, fault="none", fed=None, **changes):
            model = generator(**{**self.options, **changes}, fault=fault)
            return model.generate(self.ids, fed)

        def free(self, outputs, **parameters):
            return self.judge(verify_free_run, outputs, parameters=parameters)

        def forced(self, outputs, **parameters):
            return self.judge(verify_forced_run, outputs, parameters=parameters)

    return Workload


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("data_type", DATA_TYPES)
def test_the_model_itself_passes_free_and_fed(workload, data_type, seed):
    work = workload(data_type=data_type, seed=seed)
    free, forced = work.free(work.run()), work.forced(work.run(fed=work.truth[0]))
    assert free.passed, free.reason
    assert forced.passed, forced.reason
    assert (free.tokens_fed, forced.tokens_fed) == ("own", "truth")
    assert forced.relative_rmse == pytest.approx(forced.reference_relative_rmse)
    assert 0 < forced.reference_relative_rmse < forced.allowed_relative_rmse


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("data_type", DATA_TYPES)
@pytest.mark.parametrize("fault", MODEL_FAULTS)
def test_a_wrong_cache_mask_or_position_fails_free_and_fed(workload, data_type, fault, seed):
    work = workload(data_type=data_type, seed=seed)
    for verdict in (work.free(work.run(fault)), work.forced(work.run(fault, fed=work.truth[0]))):
        assert not verdict.passed
        # The first token depends on the prompt alone, which these read rightly.
        assert re.match(r"sequence [01], step [1-7]: ", verdict.reason), verdict.reason


@pytest.mark.parametrize("data_type", DATA_TYPES)
def test_the_second_best_token_fails_with_both_tokens_and_the_margin(workload, data_type):
    work = workload(data_type=data_type)
    verdict = work.free(work.run("second-best"))
    assert not verdict.passed
    wrong = verdict.divergences[-1]
    logits = work.truth[1][wrong.sequence, wrong.step]
    assert wrong.due_token == logits.argmax()
    assert wrong.margin == logits[wrong.due_token] - logits[wrong.token] > wrong.tolerance
    for text in (
        f"sequence {wrong.sequence}, step {wrong.step}:",
        f"token {wrong.token}, but the truth prefers {wrong.due_token}",
        f"{wrong.margin:.2g}",
        f"{wrong.tolerance:.2g}",
    ):
        assert text in verdict.reason


def test_the_first_wrong_step_of_all_sequences_is_named(workload):
    work = workload()
    tokens, logits = work.run()
    for sequence, step in ((0, 6), (1, 3)):
        logits[sequence, step] = logits[sequence, step, ::-1].copy()
    assert work.free((tokens, logits)).reason.startswith("sequence 1, step 3: ")


def test_twins_leave_the_truth_at_near_ties_and_pass(workload):
    work = workload(name="toy-text-twins")
    outputs = work.run()
    verdict = work.free(outputs)
    assert verdict.passed, verdict.reason
    assert verdict.divergences
    for found in verdict.divergences:
        assert outputs[0][found.sequence, found.step] == found.token
        assert work.truth[0][found.sequence, found.step] == found.due_token
        assert found.token // 2 == found.due_token // 2
        assert 0 <= found.margin <= found.tolerance < 1e-4
    # Behind a near-tie it is another text, which a limit on all logits would call wrong.
    assert np.abs(outputs[1] - work.truth[1]).max() > 1
    forced = work.forced(work.run(fed=work.truth[0]))
    assert forced.passed, forced.reason


def test_what_follows_a_near_tie_is_judged_by_feeding_the_runs_own_tokens(workload):
    work = workload(name="toy-text-twins")
    own = work.run()
    fed = work.run(fed=own[0])
    assert work.judge(verify_same_run, own, fed).passed
    broken = work.run("late-garbage")
    assert work.free(broken).passed  # the truth does not show it
    verdict = work.judge(verify_same_run, broken, work.run("late-garbage", fed=broken[0]))
    assert not verdict.passed
    assert re.match(r"sequence [01], step 7: ", verdict.reason)


def test_a_run_with_nan_or_unknown_tokens_is_wrong_and_the_truth_is_not_blamed(workload):
    work = workload(name="toy-text-twins")
    own = work.run()
    tokens, logits = work.run(fed=own[0])
    verdict = work.judge(verify_same_run, (own[0], np.full_like(own[1], np.nan)), (tokens, logits))
    assert not verdict.passed
    assert not verdict.undecided
    unknown = tokens.copy()
    unknown[0, 0] = logits.shape[-1]
    verdict = work.judge(verify_same_run, own, (unknown, logits))
    assert "is outside the vocabulary" in verdict.reason


def test_a_model_that_does_not_go_on_with_what_it_is_fed_fails(workload):
    work = workload(name="toy-text-twins")
    verdict = work.forced(work.run("ignores-what-it-is-fed", fed=work.truth[0]))
    assert not verdict.passed
    assert re.match(r"sequence [01], step [1-7]: ", verdict.reason)


def test_wrong_logits_at_a_near_tie_are_no_excuse(workload):
    work = workload(name="toy-text-twins")
    tokens, logits = work.run()
    found = work.free((tokens, logits)).divergences[0]
    logits[found.sequence, found.step] *= 1.1
    verdict = work.free((tokens, logits))
    assert not verdict.passed
    assert (
        f"sequence {found.sequence}, step {found.step}: the logits' relative error"
        in verdict.reason
    )


def test_a_third_token_next_to_a_near_tie_is_wrong(workload):
    """The two best are close; the token taken is neither."""
    work = workload(name="toy-text-twins")
    tokens, logits = work.run()
    found = work.free((tokens, logits)).divergences[0]
    tokens[found.sequence, found.step] = np.argsort(-logits[found.sequence, found.step])[4]
    verdict = work.free((tokens, logits))
    assert not verdict.passed
    assert "are near-ties" in verdict.reason


def test_steps_before_a_divergence_must_have_right_logits(workload):
    work = workload()
    tokens, logits = work.run()
    logits[1, 0, 5] += 1
    verdict = work.free((tokens, logits))
    assert not verdict.passed
    assert verdict.reason.startswith("sequence 1, step 0: ")
    assert verdict.max_abs_error == pytest.approx(1, rel=1e-3)


def test_limits_are_those_of_the_models_own_type(workload):
    """Logits are float32 whatever the model computes in."""
    work = workload(data_type="bf16")
    assert work.reference[1].dtype == np.float32
    allowed = work.free(work.run()).allowed_relative_rmse
    error = work.free(work.run()).reference_relative_rmse
    assert allowed == pytest.approx(1.9 * (1 + 2 / np.sqrt(work.truth[1].size)) * error)


def test_parameters_replace_or_add_limits(workload):
    work = workload()
    tokens, logits = work.run()
    scale = np.sqrt(np.mean(work.truth[1] ** 2))
    noisy = (tokens, (logits + 1e-4 * scale * (-1) ** np.arange(VOCABULARY)).astype(np.float32))
    assert not work.free(noisy).passed
    assert work.free(noisy, rmse_floor=2e-4).passed
    for tolerance in ("absolute_tolerance", "relative_tolerance"):
        verdict = work.free(noisy, rmse_floor=2e-4, **{tolerance: 1e-7})
        assert not verdict.passed
        assert "exceeds absolute tolerance" in verdict.reason
    assert work.free(noisy, rmse_floor=2e-4, absolute_tolerance=1.0).passed


def test_a_quantised_text_is_judged_by_its_noise(workload):
    work = workload()
    tokens, logits = work.run()
    scale = np.sqrt(np.mean(work.truth[1] ** 2))

    def with_noise(relative):
        signs = (-1) ** np.arange(VOCABULARY)
        return tokens, (logits + relative * scale * signs).astype(np.float32)

    verdict = work.free(with_noise(1e-3), min_sqnr_db=50.0)
    assert verdict.passed, verdict.reason
    assert verdict.allowed_relative_rmse == pytest.approx(10**-2.5)
    for relative, part in (
        (4e-3, "logits: relative error"),
        (1e-2, "step 0: the logits' relative error"),
    ):
        verdict = work.free(with_noise(relative), min_sqnr_db=50.0)
        assert not verdict.passed
        assert part in verdict.reason
    wrong = work.free(work.run("second-best"), min_sqnr_db=50.0)
    assert not wrong.passed
    assert "are near-ties" in wrong.reason
    assert not work.free(with_noise(1e-3), min_sqnr_db=50.0, absolute_tolerance=1e-9).passed


FORMS = {
    "no logits": (lambda tokens, logits: [tokens], "expected 2 outputs (tokens and logits), got 1"),
    "a step less": (lambda tokens, logits: [tokens[:, 1:], logits[:, 1:]], "tokens has shape"),
    "int64 tokens": (lambda tokens, logits: [tokens.astype(np.int64), logits], "type i64"),
    "float64 logits": (lambda tokens, logits: [tokens, logits.astype(np.float64)], "type f64"),
    "NaN at the end": (
        lambda tokens, logits: [tokens, np.where(np.arange(NEW)[:, None] == 7, np.nan, logits)],
        "NaN or infinity",
    ),
    "a token beyond the vocabulary": (
        lambda tokens, logits: [tokens + np.int32(VOCABULARY), logits],
        f"is outside the vocabulary of {VOCABULARY}",
    ),
    "a negative token": (lambda tokens, logits: [tokens - np.int32(99), logits], "token -"),
    "zeros": (lambda tokens, logits: [tokens, np.zeros_like(logits)], "relative error"),
    "sequences swapped": (lambda tokens, logits: [tokens[::-1], logits[::-1]], "sequence 0"),
}


@pytest.mark.parametrize("form", FORMS)
def test_outputs_of_another_form_fail(workload, form):
    change, reason = FORMS[form]
    work = workload()
    tokens, logits = work.run()
    outputs = [np.ascontiguousarray(value) for value in change(tokens, logits)]
    outputs[1:] = [v.astype(np.float32) if form == "NaN at the end" else v for v in outputs[1:]]
    verdict = work.free(outputs)
    assert not verdict.passed
    assert reason in verdict.reason


def test_a_truth_or_reference_that_judges_nothing_is_reported(workload):
    work = workload()
    outputs, truth = work.run(), work.truth
    work.truth = (truth[0], np.zeros_like(truth[1]))
    assert "constant" in work.free(outputs).reason
    work.truth = truth
    work.reference = (work.reference[0], (1.5 * truth[1]).astype(np.float32))
    assert "plain run in the model's data type is off" in work.free(outputs).reason


def test_a_text_of_one_token_over_and_over_can_be_right(workload):
    """Tokens need not vary: it is the logits that carry the signal."""
    work = workload()
    tokens, logits = (value.copy() for value in work.truth)
    tokens[:] = 3
    logits[..., 3] = logits.max() + 1
    work.truth = (tokens, logits)
    work.reference = (tokens, logits.astype(np.float32))
    assert work.free(work.reference).passed


def test_the_toy_is_one_that_faults_could_hide_in():
    """Its batch has different rows, and its text varies."""
    model = generator()
    ids = prompt(model)
    tokens, _ = model.generate(ids)
    assert ids.shape == (BATCH, PROMPT)
    assert tokens.shape == (BATCH, NEW)
    assert len(np.unique(tokens)) > 4
    assert not np.array_equal(tokens[0], tokens[1])
