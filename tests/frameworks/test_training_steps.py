"""Training steps in real workers: right in every framework, and wrong ones are found."""

import subprocess
import sys

import numpy as np
import pytest
from agreement_support import need
from cbs_test_plugin.training_suite import MODELS
from framework_process import run_script
from tests_support import selected

from comparative_benchmark.results.results_file import ResultsFile
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.training import STEPS

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]
NIGHTLY = pytest.mark.nightly

ZOO = ("BERT", "GPT2LMHEAD", "RESNET", "VIT")
OURS = r"models/{}_TINY_TRAIN_{}_{}_.+_BATCH4/.+"
# In float64, of every network by every optimizer; as truths are made.
TRUTHS = """
import sys
from pathlib import Path
from comparative_benchmark.backends.api import load_object
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.comparative_suite import training_cases
framework, reference, target, *wanted = sys.argv[1:]
for case in training_cases.all_cases():
    parameters = case.model.model_parameters
    stem = "-".join(str(parameters[key]) for key in ("model_name", "train", "data_type"))
    is_due = stem in wanted and case.batch_size == 1
    if case.model.model_impl.framework_type.value == framework and is_due:
        create = load_object(case.model.model_impl.module_path + ":create_model")
        model = create(**case.model.model_parameters)
        inputs = model.preprocess(model.generate_default_inputs())
        truth, _ = load_object(reference)(model, inputs)
        array_files.save_all(Path(target), stem, truth)
"""
REFERENCES = {
    "pytorch": "comparative_benchmark.pt_inductor.reference:compute",
    "jax": "comparative_benchmark.jax_xla.reference:compute",
    "tensorflow_v2": "comparative_benchmark.tf_xla.reference:compute",
}
# As other tests call their processes.
SHORT = {"pytorch": "pt", "jax": "jax", "tensorflow_v2": "tf"}
STEMS = [
    pytest.param(stem, marks=() if stem == "vit-tiny-sgd-bf16" else NIGHTLY)
    for stem in (
        *(
            f"{net}-tiny-{kind}"
            for net in ("bert", "gpt2", "resnet", "vit")
            for kind in ("sgd-fp32", "adamw-fp32")
        ),
        "vit-tiny-sgd-bf16",  # the truth of bf16 for texts equals fp32's
    )
]
# In the default tier: the right program, which makes the truth, and a fault.
SAMPLE = {"BERT_NONE_FP32_PT", "BERT_RATE_OFF_BY_A_TENTH_FP32_PT"}
PLANTED = sorted(model.name for model in MODELS)
assert set(PLANTED) >= SAMPLE


def _run(directory, environment, *arguments):
    """Returns the results of training, by model and backend."""
    output = directory / "results.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "comparative_benchmark", "run", "-t", "train"),
            *("-device", "host-cpu", "-w", "0", "-iter", "3", "-o", output, *arguments),
        ],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 2), done.stderr
    assert "tokens/s" in done.stdout
    return {
        (result.definition.model, result.definition.backend): result
        for result in ResultsFile(output).results()
    }


@pytest.fixture(scope="module")
def results(request, tmp_path_factory, environment):
    """The selected networks in all frameworks."""
    test = test_a_step_is_right_in_every_framework_and_has_a_rate
    names = [
        OURS.format(network, optimizer.upper(), data_type.upper())
        for network, optimizer, data_type in zip(
            *(selected(request, test, name) for name in ("network", "optimizer", "data_type"))
        )
    ]
    return _run(
        tmp_path_factory.mktemp("training"),
        environment,
        *("-name", "|".join(names), "--share-workers"),
        *("--backend", "pt_inductor:eager,jax_xla,tf_xla:xla,onnxruntime"),
    )


@pytest.fixture(scope="module")
def planted_results(request, tmp_path_factory, session_environment):
    """The selected planted faults."""
    names = selected(request, test_a_wrong_step_is_wrong_output_and_a_right_one_is_not, "name")
    return _run(
        tmp_path_factory.mktemp("planted"),
        session_environment,
        *("--suite", "cbs_test_plugin.training_suite", "-name", f"models/({'|'.join(names)})/.+"),
        *("--backend", "pt_inductor:eager,jax_xla"),
    )


@pytest.mark.parametrize(
    ("network", "optimizer", "data_type"),
    [
        ("BERT", "adamw", "fp32"),
        *(pytest.param(net, "adamw", "fp32", marks=NIGHTLY) for net in ZOO[1:]),
        pytest.param("VIT", "sgd", "bf16", marks=NIGHTLY),
    ],
)
def test_a_step_is_right_in_every_framework_and_has_a_rate(results, network, optimizer, data_type):
    trained = {
        backend: result
        for (model, backend), result in results.items()
        if model.startswith(f"{network}_TINY_TRAIN_{optimizer.upper()}_{data_type.upper()}")
    }
    refused = trained.pop("onnxruntime")
    assert refused.status.value == "unsupported"
    assert "do not update weights" in refused.reason
    assert set(trained) == {"pt_inductor", "jax_xla", "tf_xla"}
    for result in trained.values():
        assert result.status.value == "ok", result.reason
        assert result.measured.second_verification.passed
        training = result.measured.training
        assert (training.optimizer, training.verified_steps) == (optimizer, STEPS)
        expected = 4e3 / result.measured.median_ms
        assert training.samples_per_s == pytest.approx(expected)
        assert 0 < training.update_error < 0.5, training.without_update_check
        assert 0 < training.optimizer_share < 1, training.parts_not_measurable
        assert (training.tokens_per_s is None) == (network in ("RESNET", "VIT"))
    assert len({result.definition.workload.digest for result in trained.values()}) == 1


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in SAMPLE else NIGHTLY) for name in PLANTED]
)
def test_a_wrong_step_is_wrong_output_and_a_right_one_is_not(planted_results, name):
    backend = "pt_inductor" if name.endswith("_PT") else "jax_xla"
    result = planted_results[name, backend]
    due = "ok" if "_NONE_" in name else "wrong_output"
    assert result.status.value == due, result.reason
    if name.startswith("RESNET") and "_NONE_" not in name:
        assert result.phase == "verify_update"


@pytest.fixture(scope="module")
def truths(request, tmp_path_factory, environment):
    """Folders with the float64 results of the selected steps, by framework."""
    stems = selected(request, test_the_frameworks_take_the_same_steps_in_float64, "stem")
    found = {}
    for framework, reference in REFERENCES.items():
        found[framework] = tmp_path_factory.mktemp(f"training-{framework}")
        arguments = [framework, reference, str(found[framework]), *stems]
        run_script(TRUTHS, arguments, environment, framework=SHORT[framework])
    return found


@pytest.mark.parametrize("stem", STEMS)
def test_the_frameworks_take_the_same_steps_in_float64(truths, stem):
    steps, digest, along = array_files.load_all(truths["pytorch"], stem)
    assert np.ptp(steps[:, 0]) > 1e-3  # something is learnt, or unlearnt
    for framework in ("jax", "tensorflow_v2"):
        others, rows, projections = array_files.load_all(truths[framework], stem)
        np.testing.assert_allclose(others, steps, rtol=1e-12)
        np.testing.assert_allclose(rows, digest, atol=1e-9)
        np.testing.assert_allclose(projections, along, atol=1e-9)


FORMULAS = """
import numpy as np
import torch
from openxla.benchmark.training import OPTIMIZERS
from openxla.benchmark.training.in_torch import _SLOTS, make_optimizer
from openxla.benchmark.training.models import STEPS_BEFORE, draw_update, expected_update

for optimizer in OPTIMIZERS.values():
    drawn = draw_update("weight", "a", (50,)).astype(np.float64)
    weight = torch.nn.Parameter(torch.from_numpy(drawn))
    made = make_optimizer(optimizer, [weight])
    weight.grad = torch.zeros_like(weight)
    made.step()
    with torch.no_grad():
        weight.copy_(torch.from_numpy(draw_update("weight", "a", (50,))))
        weight.grad.copy_(torch.from_numpy(draw_update("gradient", "a", (50,))))
        for slot, value in made.state[weight].items():
            if slot == "step":
                value.fill_(STEPS_BEFORE)
            else:
                value.copy_(torch.from_numpy(draw_update(_SLOTS[slot], "a", (50,))))
    made.step()
    _, due = expected_update(optimizer, "a", 50)
    np.testing.assert_allclose(weight.detach().numpy(), due, rtol=1e-12)
"""


def test_the_truth_of_an_update_by_itself_is_that_of_torch(environment):
    need("torch")
    run_script(FORMULAS, [], environment, framework=SHORT["pytorch"])
