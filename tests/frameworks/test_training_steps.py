"""Training steps in real workers: right in every framework, and wrong ones are found."""

import subprocess
import sys

import pytest
from cbs_test_plugin.training_suite import MODELS

from comparative_benchmark.results.store import ResultsFile
from openxla.benchmark.training import STEPS

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

ZOO = ("BERT", "GPT2LMHEAD", "RESNET", "VIT")
PLANTED = sorted(model.name for model in MODELS)


@pytest.fixture(scope="module")
def results(tmp_path_factory, environment):
    """One run of the zoo's AdamW steps and of all planted faults, by model and backend."""
    directory = tmp_path_factory.mktemp("training")
    output = directory / "results.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "comparative_benchmark", "run", "-t", "train"),
            *("--suite", "cbs_test_plugin.training_suite"),
            *("-name", r"models/(\w+_TINY_TRAIN_ADAMW_.+_BATCH4|BERT_[A-Z_]+_(PT|JAX))/.+"),
            *("--backend", "pt_inductor:eager,jax_xla,tf_xla:xla,onnxruntime"),
            *("-device", "host-cpu", "-w", "0", "-iter", "1", "-o", output),
        ],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr  # the planted ones
    assert "tokens/s" in done.stdout
    found = ResultsFile(output).results()
    return {(r.definition.model, r.definition.backend): r for r in found}


@pytest.mark.parametrize("network", ZOO)
def test_a_step_is_right_in_every_framework_and_has_a_rate(results, network):
    trained = {
        backend: result
        for (model, backend), result in results.items()
        if model.startswith(f"{network}_TINY")
    }
    refused = trained.pop("onnxruntime")
    assert refused.status.value == "unsupported"
    assert "updates no weights" in refused.reason
    assert set(trained) == {"pt_inductor", "jax_xla", "tf_xla"}
    for result in trained.values():
        assert result.status.value == "ok", result.reason
        assert result.measured.second_verification.passed
        training = result.measured.training
        assert (training.optimizer, training.verified_steps) == ("adamw", STEPS)
        expected = 4e3 / result.measured.median_ms
        assert training.samples_per_s == pytest.approx(expected)
        assert (training.tokens_per_s is None) == (network in ("RESNET", "VIT"))
    assert len({result.definition.workload.digest for result in trained.values()}) == 1


@pytest.mark.parametrize("name", PLANTED)
def test_a_wrong_step_is_wrong_output_and_a_right_one_is_not(results, name):
    backend = "pt_inductor" if name.endswith("_PT") else "jax_xla"
    result = results[name, backend]
    due = "ok" if "_NONE_" in name else "wrong_output"
    assert result.status.value == due, result.reason
