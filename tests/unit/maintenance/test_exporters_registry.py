"""The types of artifacts: each can be made and read back, and each has a place in a manifest."""

import ast
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from comparative_benchmark.backends.api import backends
from comparative_benchmark.maintenance.artifacts import generation, kinds, selection
from comparative_benchmark.maintenance.artifacts.kinds import KINDS, UnknownKindError
from comparative_benchmark.maintenance.artifacts.outcomes import Subject
from openxla.benchmark.artifacts import array_files, strict_json
from openxla.benchmark.artifacts.workload_store import Due
from openxla.benchmark.comparative_suite import catalog, families
from openxla.benchmark.def_types import ModelArtifactType, ModelFrameworkType

NAMES = [kind.name for kind in KINDS]


@pytest.fixture(scope="module")
def models():
    return {case.model.name: case.model for case in catalog.all_benchmarks()}


def test_outputs_of_a_consumer_have_the_limits_of_a_run(tmp_path, monkeypatch):
    """Long sums and near-ties of integers allow more, as in `cbs run`."""
    numbers, integers = np.linspace(-1, 1, 40, dtype=np.float32), np.arange(40, dtype=np.int32)
    noise = np.where(integers % 2, 1e-5, -1e-5).astype(np.float32)
    outputs = [numbers + noise, integers.copy()]
    outputs[1][3] += 1

    def saved(stem, *values):
        files = array_files.save_all(tmp_path / stem, "output", values)
        return [tmp_path / stem / file["file"] for file in files]

    due = Due(
        inputs=saved("inputs", np.zeros(2**20, np.int8)),
        truth=saved("truth", numbers.astype(np.float64), integers.astype(np.float64)),
        reference=saved("reference", numbers, integers),
        neighbours=saved("neighbours", numbers[None], outputs[1][None].astype(np.float64)),
    )
    subject = SimpleNamespace(
        artifacts=SimpleNamespace(truth=due.truth, reference=due.reference, first=due),
        workload=SimpleNamespace(data_type="fp32"),
        case=SimpleNamespace(verify_parameters={}),
    )
    kind = SimpleNamespace(judged_by="model", precision=None)
    monkeypatch.setattr(selection, "generated_tokens", lambda _: None)
    verdict = selection.judge(kind, subject, saved("outputs", *outputs), None)
    assert verdict.passed, verdict.reason


def test_names_and_files_are_each_there_once():
    assert len(set(NAMES)) == len(NAMES)
    files = [file for kind in KINDS for file in kind.files]
    assert len(set(files)) == len(files)
    for file in files:
        assert not strict_json.why_no_object_name(file.rstrip("/"))


def test_every_form_of_a_model_has_an_exporter_or_a_reason():
    forms = {kind.model_type for kind in KINDS} - {None}
    reasons = {ModelArtifactType(name) for _, name in kinds.NO_ROUTE if kinds.is_form(name)}
    # Nothing writes the first version of SavedModel any more.
    assert set(ModelArtifactType) - forms - reasons == {ModelArtifactType.TF_SAVEDMODEL_V1}


def test_recorded_reasons_of_types_without_an_exporter_are_up_to_date():
    routeless = {name for _, name in kinds.NO_ROUTE}
    recorded = {
        reason
        for entry in families.recorded_exports(families.PROVED_FILE).values()
        for name, reason in entry["failures"].items()
        if name in routeless
    }
    assert recorded
    assert recorded <= set(kinds.NO_ROUTE.values())


@pytest.mark.parametrize("kind", KINDS, ids=NAMES)
def test_functions_backends_and_companions_exist(kind):
    for text in (kind.exporter, kind.consumer):
        module, _, function = text.partition(":")
        source = Path(importlib.util.find_spec(module).origin).read_text(encoding="utf-8")
        functions = {node.name for node in ast.parse(source).body if hasattr(node, "name")}
        assert function in functions
    assert kind.backend in backends()
    assert set(kind.companions) <= set(NAMES[: NAMES.index(kind.name)])
    for companion in kind.companions:
        assert set(kind.modules) <= set(kinds.find(companion).modules)


def test_the_seeds_file_names_are_kept():
    files = {kind.name: kind.files[0] for kind in KINDS}
    assert files["inputs"] == "inputs_npy.tgz"
    assert files["outputs"] == "outputs_npy.tgz"
    assert files["stablehlo_mlir"] == "stablehlo.mlir"
    assert files["linalg_mlir"] == "linalg.mlirbc"
    assert files["xla_hlo_dump"] == "xla_hlo_before_optimizations.txt"
    for name in ("fp32", "fp32_stablehlo", "fp16", "dynamic_range_quant", "int8"):
        assert files[f"tflite_{name}"] == f"model_{name}.tflite"


def names(found):
    return [kind.name for kind in found]


def test_a_model_gets_what_its_framework_can(models):
    found, refused = kinds.of_model(models["BERT_TINY_FP32_JAX_32XI32_BATCH1"])
    assert {"stablehlo_mlir", "tf_savedmodel_v2", "tflite_int8", "vmfb"} < set(names(found))
    assert not {"onnx", "torch_mlir"} & set(names(found))
    assert list(refused) == ["tosa_mlir"]
    assert "but does not contain it" in refused["tosa_mlir"]
    found, refused = kinds.of_model(models["BERT_TINY_FP32_PT_32XI32_BATCH1"])
    assert {"linalg_mlir", "torch_mlir", "onnx", "irpa", "vmfb"} < set(names(found))
    assert "torch-mlir" in refused["stablehlo_mlir"]


def test_a_program_for_gpus_is_made_for_those_who_ask(models):
    model = models["BERT_TINY_FP32_JAX_32XI32_BATCH1"]
    assert "vmfb_cuda" not in names(kinds.of_model(model)[0])
    assert names(kinds.of_model(model, ["vmfb_cuda"])[0]) == ["irpa", "vmfb_cuda"]
    assert {kind.name for kind in KINDS if not kind.usual} == {"vmfb_cuda"}
    assert kinds.find("vmfb_cuda").accelerator == "gpu"


def test_a_case_that_is_a_file_gets_that_file(models):
    found, _ = kinds.of_model(models["BERT_TINY_INT8_TFLITE_32XI32_BATCH1"])
    assert [name for name in names(found) if name.startswith("tflite")] == ["tflite_int8"]


def test_what_is_asked_for_brings_what_it_needs_in_order(models):
    model = models["BERT_TINY_FP32_JAX_32XI32_BATCH1"]
    found, refused = kinds.of_model(model, ["vmfb", "stablehlo_mlir", "onnx", "tosa_mlir"])
    assert names(found) == ["xla_weights", "stablehlo_mlir", "irpa", "vmfb"]
    assert "from jax to onnx" in refused["onnx"]
    assert "TFLite-to-TOSA converter" in refused["tosa_mlir"]
    with pytest.raises(UnknownKindError, match="unknown artifact type 'onxx'; choices are inputs"):
        kinds.of_model(model, ["onxx"])


def test_what_is_not_installed_is_refused_with_the_command(models, monkeypatch):
    model = models["BERT_TINY_FP32_PT_32XI32_BATCH1"]
    case = next(case for case in catalog.all_benchmarks() if case.model.name == model.name)
    monkeypatch.setattr(generation, "is_installed", lambda name: name != "onnxscript")
    plan = generation.plan(
        Subject(case=case, workload=None, artifacts=None, reference=None), ["onnx", "irpa"]
    )
    assert names(plan.kinds) == ["irpa"]
    assert plan.refused["onnx"].startswith("onnxscript not installed; run ./comparative_bench")
    assert len(plan) == 2


def test_no_framework_is_forgotten():
    covered = {framework for kind in KINDS for framework in kind.modules}
    assert covered == {
        ModelFrameworkType.JAX,
        ModelFrameworkType.TF_V2,
        ModelFrameworkType.PYTORCH,
        ModelFrameworkType.TFLITE,
    }
