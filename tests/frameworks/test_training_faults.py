"""Planted faults of training in one process for each framework, judged as a trial is.

`test_training_steps` holds for BERT that a wrong step in a worker is `wrong_output`. Here are the
other networks, SGD, and networks in bf16: what the workers compute, without the workers.
"""

import json

import pytest
from cbs_test_plugin.adversaries_steps import ONLY_IN_TORCH, ONLY_MIXED, STEPS
from framework_process import run_script
from tests_support import selected

from comparative_benchmark.analysis.verification.verification import verify
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.comparative_suite.training_cases import VERIFY_PARAMETERS

pytestmark = [pytest.mark.frameworks, pytest.mark.slow]

# By framework: network, optimizer and type.
RUNS = {
    "pt": [
        ("bert-tiny", "adamw", "bf16"),
        ("resnet-tiny", "adamw", "bf16"),
        ("vit-tiny", "sgd", "fp32"),
        ("vit-tiny", "sgd", "bf16"),
    ],
    "jax": [("resnet-tiny", "adamw", "bf16"), ("vit-tiny", "sgd", "fp32")],
}
SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
from cbs_test_plugin import adversaries_steps
from openxla.benchmark.artifacts import array_files

def in_torch(model, inputs):
    import torch
    torch.set_grad_enabled(False)
    return [np.asarray(value) for value in model.forward(*inputs)]

def in_jax(model, inputs):
    import jax
    from openxla.benchmark.training.in_jax import Run
    run = Run(model, jax.jit(model.step), model.state(model.params), model.params)
    return run.outputs([run.step(*batch) for batch in model.batches(inputs)])

framework, target, *runs = sys.argv[1:]
compute = in_torch if framework == "pt" else in_jax
for text in runs:
    stem, parameters, faults = json.loads(text)
    for fault in faults:
        model = adversaries_steps.create_model(fault, framework, **parameters)
        inputs = model.preprocess(model.generate_default_inputs())
        if fault == "none" and framework == "pt":
            from comparative_benchmark.pt_inductor import reference
            truth, same_type = reference.compute(model, inputs)
            array_files.save_all(Path(target), f"{stem}-truth", truth)
            array_files.save_all(Path(target), f"{stem}-reference", same_type)
        array_files.save_all(Path(target), f"{stem}-{framework}-{fault}", compute(model, inputs))
"""


def faults_of(framework, optimizer, data_type):
    only_here = ONLY_IN_TORCH if framework == "pt" else ()
    mixed = ONLY_MIXED if data_type == "bf16" else ()
    return ("none", *STEPS[optimizer], *only_here, *mixed)


# Steps of other frameworks are in the default tier of `test_training_steps`.
DEFAULT = {("pt", "vit-tiny", "sgd", "bf16")}
CASES = [
    pytest.param(
        framework, *run, fault, marks=() if (framework, *run) in DEFAULT else pytest.mark.nightly
    )
    for framework, runs in RUNS.items()
    for run in runs
    for fault in faults_of(framework, *run[1:])
]


@pytest.fixture(scope="module")
def outputs(request, tmp_path_factory, environment):
    """Folder with truth and reference of the selected runs, by PyTorch, and all outputs."""
    folder = tmp_path_factory.mktemp("training-faults")
    test = test_a_fault_is_wrong_and_what_is_right_is_not
    fields = ("framework", "network", "optimizer", "data_type")
    chosen = set(zip(*(selected(request, test, field) for field in fields)))
    for framework, all_runs in RUNS.items():
        # PyTorch makes the truth for all.
        runs = [
            run
            for run in all_runs
            if {(framework, *run), ("jax" if framework == "pt" else framework, *run)} & chosen
        ]
        texts = []
        for network, optimizer, data_type in runs:
            parameters = {"model_name": network, "train": optimizer, "data_type": data_type}
            parameters |= {"batch_size": 4, "seq_len": 32}
            faults = faults_of(framework, optimizer, data_type)
            texts.append(json.dumps([f"{network}-{optimizer}-{data_type}", parameters, faults]))
        run_script(SCRIPT, [framework, str(folder), *texts], environment, framework=framework)
    return folder


@pytest.mark.parametrize(("framework", "network", "optimizer", "data_type", "fault"), CASES)
def test_a_fault_is_wrong_and_what_is_right_is_not(
    outputs, framework, network, optimizer, data_type, fault
):
    stem = f"{network}-{optimizer}-{data_type}"
    found, truth, reference = (
        array_files.numbered(outputs, f"{stem}-{of}")
        for of in (f"{framework}-{fault}", "truth", "reference")
    )
    verdict = verify(found, truth, reference, VERIFY_PARAMETERS[data_type])
    assert verdict.passed == (fault == "none"), verdict.reason
