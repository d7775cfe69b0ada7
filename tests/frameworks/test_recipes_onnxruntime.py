"""Recipes in ONNX Runtime: they take effect, keep their signal, and say why where they cannot."""

import pytest
from agreement_support import need
from tests_support import run_cbs

pytestmark = pytest.mark.frameworks

# The operator that products become, the largest share of the bytes that may be left, and the least
# signal that is seen here, in dB; a recipe may lose a little more.
WORKING = {
    "int8dq-tensor": ("MatMulInteger", 0.6, 30),
    "int4wo-32": ("MatMulNBits", 0.5, 15),
    "intx-8-64": ("MatMulNBits", 0.6, 40),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory, environment):
    """Results of tiny BERT in fp32, by compiler with its recipe."""
    for package in ("onnxruntime", "onnx", "torch"):
        need(package)
    run = run_cbs(
        *("--backend", ",".join(f"onnxruntime:default+{n}" for n in (*WORKING, "intx-3-32"))),
        *("-name", "models/BERT_TINY_FP32_PT_32XI32_BATCH4/.+_DEFAULT", "-w", "0", "-iter", "1"),
        directory=tmp_path_factory.mktemp("recipes"),
        environment=environment,
    )
    return {r["definition"]["compiler"]: r for r in run.document["benchmarks"]}


@pytest.mark.parametrize("name", WORKING)
def test_a_recipe_changes_all_products_with_weights(results, name):
    result, (operator, share, least_db) = results[f"default+{name}"], WORKING[name]
    assert result["status"] == "ok", result["reason"]
    assert result["definition"]["precision"] == name
    metrics = result["metrics"]["compiler_level"]
    applied = metrics["program"]["notes"]["recipe"]
    assert applied["weight_class"] == operator
    assert applied["layers"] == applied["linear"] == 12
    assert applied["bytes_after"] < share * applied["bytes_before"]
    assert least_db < metrics["verification"]["sqnr_db"] < 60
    assert metrics["second_verification"]["passed"]


def test_what_it_has_no_kernel_for_says_why(results):
    refused = results["default+intx-3-32"]
    assert refused["status"] == "unsupported"
    assert "packs weights in 4 and in 8 bits" in refused["reason"]
