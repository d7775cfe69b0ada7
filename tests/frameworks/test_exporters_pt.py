"""Exports of PyTorch models: made, read back, right, and the same bytes each time."""

from pathlib import Path

import pytest
from agreement_support import need
from exporters_support import generate, holds_no_path

from openxla.benchmark.artifacts import archives, array_files
from openxla.benchmark.comparative_suite import families

# TensorFlow's exporters run in the default tier.
pytestmark = [pytest.mark.frameworks, pytest.mark.nightly]

EXAMPLE = "EXAMPLE_FP32_PT_BATCH1"


@pytest.fixture(scope="module", autouse=True)
def _stack():
    for package in ("torch", "iree.compiler", "onnx", "onnxscript", "onnxruntime"):
        need(package)


@pytest.fixture(scope="module")
def example(tmp_path_factory, environment):
    return generate(EXAMPLE, tmp_path_factory.mktemp("one") / "out", environment)


def test_all_that_pytorch_can_is_there(example):
    assert example.code == 0, example.err
    assert example.made == {
        *("inputs", "outputs", "second", "truth", "workload"),
        *("irpa", "torch_mlir", "linalg_mlir", "vmfb", "onnx"),
    }
    assert "the model has no checkpoint" in example.failures["checkpoint"]
    for name in ("stablehlo_mlir", "stablehlo_bytecode", "xla_hlo_dump"):
        assert "PyTorch cannot export to XLA's formats" in example.failures[name]


def test_producers_are_named_with_versions(example):
    producers = {file.artifact_type: file.producers for file in example.manifest.files}
    assert {"torch", "iree-base-compiler", "common-benchmark-suite"} < set(producers["linalg_mlir"])
    assert {"torch", "onnx", "onnxscript"} < set(producers["onnx"])
    assert "torch" not in producers["inputs"]


def test_programs_name_no_place_of_this_machine(example):
    checkout = Path(__file__).resolve().parents[2]
    assert holds_no_path(example.directory, checkout, Path.home(), "site-packages") == []


def test_weights_are_next_to_the_programs_and_not_in_them(example):
    sizes = {file.path: file.size_bytes for file in example.manifest.files}
    for name in ("torch.mlirbc", "linalg.mlirbc", "model_llvm-cpu.vmfb"):
        assert sizes[name] < 0.5 * sizes["parameters.irpa"], (name, sizes)
    assert sizes["model.onnx"] < 0.5 * sizes["model.onnx.data"]


def test_linalg_is_linalg(example):
    from iree.compiler import ir

    with ir.Context():
        text = str(ir.Module.parse((example.directory / "linalg.mlirbc").read_bytes()))
    assert "linalg." in text
    assert "torch.aten" not in text


def test_the_seeds_archives_hold_the_seeds_names(example, tmp_path):
    files = archives.unpack(example.directory / "inputs_npy.tgz", tmp_path / "inputs")
    assert [path.name for path in files] == ["input_0.npy"]
    assert array_files.load(files[0]).shape == (1, 3, 64, 64)
    files = archives.unpack(example.directory / "outputs_npy.tgz", tmp_path / "outputs")
    assert [path.name for path in files] == ["output_0.npy"]
    assert array_files.load(files[0]).dtype == "float32"


def test_a_second_generation_gives_the_same_bytes(example, tmp_path, environment):
    again = generate(EXAMPLE, tmp_path / "out", environment, "--types", "inputs,linalg_mlir,onnx")
    one, two = example.digests(), again.digests()
    for name in ("inputs_npy.tgz", "parameters.irpa", "linalg.mlirbc", "model.onnx.data"):
        assert one[name] == two[name], name
    assert one["model.onnx"] == two["model.onnx"]


def test_what_is_recorded_is_what_is_proved(example):
    entry = families.recorded_exports(families.PROVED_FILE)[EXAMPLE]
    forms = {kind.value for kind in families.ModelArtifactType}
    assert set(entry["types"]) == example.made & forms
