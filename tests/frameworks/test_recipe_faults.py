"""Quantised programs that are wrong: smaller than the noise of some model, not of this one."""

import json

import pytest
from agreement_support import need
from cbs_test_plugin.adversarial_suite import MODELS
from framework_process import run_script

pytestmark = pytest.mark.frameworks

# Faults that no limit can separate from rounding to few bits.
BELOW_THE_NOISE = {
    ("mask-shifted", "int4wo-32"),
    ("mask-dropped", "int4wo-32"),
    ("mask-shifted", "float8dq-row"),
}
SCRIPT = """
import json, sys, tempfile
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from cbs_test_plugin.adversaries_pt import create_model
from comparative_benchmark.analysis.verification.verification import verify
from comparative_benchmark.analysis.verification.error_limits import MIN_SQNR
from comparative_benchmark.pt_inductor import reference
from comparative_benchmark.backends.recipes import parse
from comparative_benchmark.engine.trial import RecipeNoise
from comparative_benchmark.engine.worker.preparing import make_inputs
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.workload_store import Due

PARAMETERS = json.loads(sys.argv[1])
folder = Path(tempfile.mkdtemp())

def save(name, values):
    array_files.save_all(folder / name, "output", values)
    return array_files.numbered(folder / name, "output")

right = create_model(fault="none", **PARAMETERS)
inputs = make_inputs(right, "INPUT_DATA_MODEL_DEFAULT", [])
truth, same_type = reference.compute(right, inputs)
due = Due(inputs=[], truth=save("truth", truth), reference=save("reference", same_type))
ended = {}
for name in json.loads(sys.argv[2]):
    rounding = parse(name).rounding_in("pt_inductor")
    run = lambda _: save(name, reference.quantised(right, inputs, rounding))
    noise = RecipeNoise.of(SimpleNamespace(directory=folder, first=due, second=None), rounding, run)
    for fault in ("none", "mask-dropped", "mask-shifted", "head-dropped", "layer-skipped"):
        model = create_model(fault=fault, **PARAMETERS)
        # A compiler that only claims to quantise has no noise.
        claims = reference.in_own_type(model, inputs)
        for kind, outputs in (
            ("quantised", reference.quantised(model, inputs, rounding)),
            ("claimed", claims),
        ):
            verdict = verify(
                save(f"{name}-{fault}-{kind}", outputs), due.truth, due.reference,
                {MIN_SQNR: parse(name).min_sqnr_db}, least_db=noise.least_db(second=False),
            )
            ended[f"{kind} {fault} {name}"] = verdict.passed
Path(sys.argv[3]).write_text(json.dumps(ended))
"""
RECIPES = ("int8wo", "int8dq", "int8dq-tensor", "float8wo", "float8dq-row", "int4wo-32")


def test_adversarial_programs_in_few_bits_are_wrong(tmp_path, session_environment, capsys):
    need("torch")
    [model] = [model for model in MODELS if model.name == "BERT_NONE_FP32_PT"]
    parameters = {k: v for k, v in model.model_parameters.items() if k != "fault"}
    target = tmp_path / "ended.json"
    arguments = [json.dumps(parameters), json.dumps(RECIPES), str(target)]
    run_script(SCRIPT, arguments, session_environment, framework="torch")
    ended = {tuple(key.split()): passed for key, passed in json.loads(target.read_text()).items()}
    right = [passed for (_, fault, _), passed in ended.items() if fault == "none"]
    assert right
    assert all(right)
    planted = {
        key: passed
        for key, passed in ended.items()
        if key[1] != "none" and key[1:] not in BELOW_THE_NOISE
    }
    with capsys.disabled():
        print(
            f"\nin few bits: {len(planted)} planted, {sum(not p for p in planted.values())} caught"
        )
    assert not [key for key, passed in planted.items() if passed]
    # The list contains no fault that is now caught.
    passing = {key[1:] for key, passed in ended.items() if passed and key[1] != "none"}
    assert passing == BELOW_THE_NOISE
