"""Limits of quantised programs: what a plain run with the same rounding has, less a margin."""

import numpy as np
import pytest

from comparative_benchmark.analysis.verification.error_limits import MIN_SQNR, sqnr_db
from comparative_benchmark.analysis.verification.verification import relative_rmse, verify
from comparative_benchmark.backends.recipes.definition import Grid, Rounding
from comparative_benchmark.engine.trial import MARGIN_DB, RecipeNoise
from openxla.benchmark.artifacts.workload_store import Due

ROUNDING = Rounding(weights=Grid("int8"))


class Artifacts:
    def __init__(self, directory, first, second=None):
        self.directory, self.first, self.second = directory, first, second


@pytest.fixture
def artifacts(tmp_path):
    def due(seed):
        folder = tmp_path / str(seed)
        folder.mkdir()
        values = np.random.default_rng(seed).standard_normal((4, 100))
        for name, kind in (("truth", np.float64), ("reference", np.float32)):
            np.save(folder / f"{name}.npy", values.astype(kind))
        paths = {name: [folder / f"{name}.npy"] for name in ("truth", "reference")}
        return Due(inputs=[folder / "input_0.npy"], **paths)

    return Artifacts(tmp_path, due(1), due(2))


def off_by(due, relative, path):
    truth = np.load(due.truth[0])
    noise = np.random.default_rng(3).standard_normal(truth.shape)
    noise *= relative * np.sqrt(np.mean(truth**2) / np.mean(noise**2))
    np.save(path, (truth + noise).astype(np.float32))
    return [path]


def test_the_noise_is_measured_once_and_kept(artifacts, tmp_path):
    calls = []

    def run(inputs):
        calls.append(inputs)
        due = artifacts.first if inputs == artifacts.first.inputs else artifacts.second
        return off_by(due, 0.01 * len(calls), tmp_path / f"{len(calls)}.npy")

    found = RecipeNoise.of(artifacts, ROUNDING, run)
    assert calls == [artifacts.first.inputs, artifacts.second.inputs]
    assert found.first == pytest.approx((40.0,), abs=1e-3)
    assert found.second == pytest.approx((20 * np.log10(50),), abs=1e-3)
    assert found.least_db(second=False) == [found.first[0] - MARGIN_DB]
    assert found.weakest == found.first[0]
    assert found.least_of_all_db == found.second[0] - MARGIN_DB
    assert RecipeNoise.of(artifacts, ROUNDING, run) == found
    assert len(calls) == 2
    [kept] = (tmp_path / "quantised").iterdir()
    kept.write_text("{")
    assert RecipeNoise.of(artifacts, ROUNDING, run) != found
    assert len(calls) == 4


def test_another_rounding_is_measured_by_itself(artifacts, tmp_path):
    def run(_):
        return off_by(artifacts.first, 0.01, tmp_path / "output.npy")

    RecipeNoise.of(artifacts, ROUNDING, run)
    calibrated = RecipeNoise.of(
        artifacts, Rounding(weights=Grid("int8"), outputs=Grid("uint8", "tensor")), run
    )
    assert calibrated.margin_db > MARGIN_DB
    assert len(list((tmp_path / "quantised").iterdir())) == 2


def test_a_model_that_cannot_be_run_so_has_no_noise_and_leaves_nothing(artifacts, tmp_path):
    assert RecipeNoise.of(artifacts, ROUNDING, lambda _: None) is None
    assert not (tmp_path / "quantised").exists()


def test_an_output_of_integers_has_no_ratio(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    assert relative_rmse(tmp_path / "a.npy", tmp_path / "a.npy") is None
    np.save(tmp_path / "zeros.npy", np.zeros(3))
    assert relative_rmse(tmp_path / "zeros.npy", tmp_path / "zeros.npy") is None


@pytest.mark.parametrize(("off", "passes"), [(0.012, True), (0.016, False)])
def test_the_limit_is_the_margin_below_the_noise(artifacts, tmp_path, off, passes):
    due = artifacts.first
    outputs = off_by(due, off, tmp_path / "output.npy")
    least = [sqnr_db(0.01) - MARGIN_DB]
    parameters = {MIN_SQNR: 20.0}
    verdict = verify(outputs, due.truth, due.reference, parameters, least_db=least)
    assert verdict.passed == passes
    assert verify(outputs, due.truth, due.reference, parameters).passed
    if not passes:
        assert verdict.reason == "output 0: SQNR 35.9 dB is below 37 dB"


def test_what_has_lost_the_model_fails_whatever_the_recipe_loses(artifacts, tmp_path):
    outputs = off_by(artifacts.first, 0.2, tmp_path / "output.npy")
    due = artifacts.first
    parameters = {MIN_SQNR: 20.0}
    assert not verify(outputs, due.truth, due.reference, parameters, least_db=[11.0]).passed


def test_programs_that_keep_their_type_have_no_such_limit(artifacts):
    due = artifacts.first
    assert verify(due.reference, due.truth, due.reference, {}, least_db=[999.0]).passed
