"""Exports of JAX models to XLA's forms: made, read back, right, and the same bytes each time."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from agreement_support import need
from exporters_support import generate, holds_no_path

from openxla.benchmark.artifacts import archives, array_files

pytestmark = pytest.mark.frameworks

MODEL = "BERT_TINY_BF16_JAX_32XI32_BATCH1"
XLA = ("--types", "checkpoint,stablehlo_mlir,stablehlo_bytecode,xla_hlo_dump")


@pytest.fixture(scope="module", autouse=True)
def _stack():
    for package in ("jax", "jaxlib", "flax"):
        need(package)


@pytest.fixture(scope="module")
def bert(tmp_path_factory, environment):
    return generate(MODEL, tmp_path_factory.mktemp("one") / "out", environment, *XLA)


def test_xlas_forms_are_right_with_the_weights_next_to_them(bert):
    assert bert.code == 0, bert.err
    assert bert.made == {
        *("checkpoint", "xla_weights", "stablehlo_mlir", "stablehlo_bytecode", "xla_hlo_dump")
    }
    assert bert.failures == {}
    checkout = Path(__file__).resolve().parents[2]
    assert holds_no_path(bert.directory, checkout, Path.home(), "site-packages") == []


def test_text_is_text_and_bytecode_is_a_portable_artifact(bert):
    text = (bert.directory / "stablehlo.mlir").read_text()
    assert text.startswith("module @")
    assert "stablehlo.dot_general" in text
    assert "loc(" not in text
    # A 16-bit model keeps its type.
    assert "xbf16>" in text
    assert (bert.directory / "stablehlo.mlirbc").read_bytes().startswith(b"ML\xefR")
    hlo = (bert.directory / "xla_hlo_before_optimizations.txt").read_text()
    assert hlo.startswith("HloModule")
    assert "metadata=" not in hlo


def test_weights_come_in_the_order_of_the_parameters(bert, tmp_path):
    places = json.loads((bert.directory / "xla_arguments.json").read_text())["inputs"]
    archives.unpack(bert.directory / "weights_npy.tgz", tmp_path / "weights")
    weights = array_files.load_all(tmp_path / "weights", "weight")
    assert places == [*[None] * len(weights), *range(len(places) - len(weights))]
    assert {weight.dtype for weight in weights} == {np.dtype(ml_dtypes.bfloat16)}
    assert all(np.isfinite(weight).all() for weight in weights)
    assert sum(weight.size for weight in weights) > 10_000


@pytest.mark.nightly
def test_archives_and_programs_are_the_same_bytes_in_a_second_generation(
    bert, tmp_path, environment
):
    again = generate(MODEL, tmp_path / "out", environment, "--types", "stablehlo_bytecode")
    one, two = bert.digests(), again.digests()
    for name in ("weights_npy.tgz", "xla_arguments.json", "stablehlo.mlirbc"):
        assert one[name] == two[name], name


@pytest.mark.nightly
def test_a_saved_model_names_no_file_of_this_machine(tmp_path, environment):
    need("tensorflow")
    model = MODEL.replace("BF16", "FP32")
    made = generate(model, tmp_path / "out", environment, "--types", "tf_savedmodel_v2")
    assert made.failures == {}, made.err
    archives.unpack(made.directory / "tf-model.tgz", tmp_path / "unpacked")
    program = (tmp_path / "unpacked" / "saved_model.pb").read_bytes()
    assert b"XlaCallModule" in program
    assert b".py" not in program
