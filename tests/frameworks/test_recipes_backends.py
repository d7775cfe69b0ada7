"""Recipes of other backends take effect and keep their signal; refusals give the reason."""

from pathlib import Path

import pytest
from agreement_support import need
from framework_process import run_script
from tests_support import documented_plugin, python_path, run_cbs, selected

pytestmark = pytest.mark.frameworks

# By competitor: the operator or type that products with weights become, the largest share of the
# bytes that may be left, and the lowest signal here, in dB; a recipe may lose more.
WORKING = {
    "onnxruntime:default+int8dq-tensor": ("MatMulInteger", 0.6, 30),
    "onnxruntime:default+int4wo-32": ("MatMulNBits", 0.5, 15),
    "onnxruntime:default+intx-8-64": ("MatMulNBits", 0.6, 40),
    "openvino:latency+int8wo": ("i8", 0.5, 40),
    "openvino:latency+int4wo-64": ("i4", 0.4, 15),
    "openvino:latency+intx-4-32": ("i4", 0.4, 15),
    "jax_xla:xla+int8wo": ("int8", 0.5, 40),
    "jax_xla:xla+int8dq": ("int8", 0.5, 34),
    "jax_xla:xla+float8wo": ("float8_e4m3fn", 0.5, 25),
    "jax_xla:xla+float8dq-row": ("float8_e4m3fn", 0.5, 22),
    "jax_xla:xla+mxfp8": ("float8_e4m3fn", 0.5, 20),
    "jax_xla:xla+nvfp4": ("float4_e2m1fn", 0.55, 14),
    "jax_xla:xla+int4wo-32": ("int4", 0.5, 17),
    "jax_xla:xla+intx-3-32": ("int4", 0.5, 9),
}
REFUSED = {
    "onnxruntime:default+intx-3-32": "packs only 4-bit and 8-bit weights",
    "openvino:latency+intx-3-32": "one scale per group only for 4-bit weights",
    "openvino:latency+intx-4-48": "group size value 48",
    "jax_xla:xla+intx-1-32": "integers need at least 2 bits",
    "jax_xla:xla+intx-4-48": "cannot be tiled",
}
# One recipe of each backend in the default tier.
SAMPLE = ("onnxruntime:default+int8dq-tensor", "openvino:latency+int8wo", "jax_xla:xla+int8wo")
LINEAR = 12
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(request, tmp_path_factory, recipes_environment):
    """Results of tiny BERT in fp32 with the recipes of the selected tests, by competitor."""
    working = selected(request, test_a_recipe_changes_all_products_with_weights, "name")
    for package in ("onnxruntime", "onnx", "torch", "openvino", "jax"):
        need(package)
    run = run_cbs(
        *("--backend", ",".join([*(working or SAMPLE), *REFUSED]), "-w", "0", "-iter", "1"),
        *("-name", "models/BERT_TINY_FP32_(PT|JAX)_32XI32_BATCH4/.+_DEFAULT"),
        # One process: most of the time would go to importing PyTorch and JAX.
        "--run-in-process",
        directory=tmp_path_factory.mktemp("recipes"),
        environment=recipes_environment,
    )
    found = {}
    for result in run.document["benchmarks"]:
        definition = result["definition"]
        if result["status"] != "unsupported" or definition["compiler"].partition("+")[2]:
            found[f"{definition['backend']}:{definition['compiler']}"] = result
    return found


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in SAMPLE else pytest.mark.nightly) for name in WORKING],
)
def test_a_recipe_changes_all_products_with_weights(results, name):
    result, (kind, share, least_db) = results[name], WORKING[name]
    assert result["status"] == "ok", result["reason"]
    assert result["definition"]["precision"] == name.partition("+")[2]
    (metrics,) = result["metrics"].values()
    applied = metrics["program"]["notes"]["recipe"]
    assert applied["weight_class"] == kind
    assert applied["layers"] == applied["linear"] == LINEAR
    assert applied["bytes_after"] < share * applied["bytes_before"]
    assert least_db < metrics["verification"]["sqnr_db"] < 60
    assert metrics["second_verification"]["passed"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_cannot_do_gives_the_reason(results, name):
    assert results[name]["status"] == "unsupported"
    assert REFUSED[name] in results[name]["reason"]


def test_results_say_with_which_version_it_was_made(results):
    (metrics,) = results["openvino:latency+int8wo"]["metrics"].values()
    assert metrics["program"]["notes"]["recipe"]["versions"]["nncf"]
    assert results["jax_xla:xla+int8wo"]["versions"]["qwix"]


def test_a_recipe_is_added_as_the_document_says(tmp_path, recipes_environment):
    """A package with the file of the guide, and the line that registers it."""
    need("openvino")
    group = "comparative_benchmark.recipes"
    documented_plugin(
        tmp_path,
        ROOT / "docs/guides/extend/add-a-recipe.md",
        "int8wo-asym",
        group,
        "asymmetric:RECIPE",
    )
    path = python_path(tmp_path, given=recipes_environment["PYTHONPATH"])
    run = run_cbs(
        *("--backend", "openvino:latency+int8wo-asym", "-w", "0", "-iter", "1"),
        *("-name", "models/BERT_TINY_FP32_PT_32XI32_BATCH1/.+_DEFAULT"),
        directory=tmp_path,
        environment={**recipes_environment, "PYTHONPATH": path},
    )
    (result,) = run.document["benchmarks"]
    assert result["status"] == "ok", result["reason"]
    (metrics,) = result["metrics"].values()
    assert metrics["program"]["notes"]["recipe"]["weight_class"] == "u8"
    assert metrics["program"]["notes"]["recipe"]["layers"] == LINEAR


UNAPPLIED = """
import jax, jax.numpy as jnp
from comparative_benchmark.backends import recipes
from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.jax_xla import qwix_recipes

def refused(model, error, inputs):
    try:
        qwix_recipes.apply(model, inputs, recipes.parse("int8wo"))
    except error as raised:
        return str(raised)
    raise AssertionError("applied")

class Function:
    def __init__(self, params, apply):
        self.params, self.apply = params, apply

x = jnp.ones((4, 8))
# A product that Qwix does not see is counted, and not taken for one that is quantised.
weights = {"w": jnp.ones((8, 8))}
hidden = Function(weights, lambda params, x: jnp.einsum("ij,jk->ik", x, params["w"]))
told = refused(hidden, recipes.NotAppliedError, (x,))
assert told == "int8wo changed 0 of 1 linear layers", told
assert "no weights" in refused(Function({}, lambda params, x: x), UnsupportedError, (x,))
assert "finds no weights in object" in refused(object(), UnsupportedError, (x,))
"""
ABSENT = """
import sys
from unittest import mock
from comparative_benchmark.backends import recipes
from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.jax_xla import qwix_recipes
from comparative_benchmark.openvino import program

for package, apply in (
    ("qwix", lambda: qwix_recipes.apply(None, (), recipes.parse("int8wo"))),
    ("nncf", lambda: program.apply_here(None, [], "int8wo")),
):
    with mock.patch.dict(sys.modules, {package: None}):
        try:
            apply()
        except UnsupportedError as error:
            assert "pip install -e '.[recipes]'" in str(error)
        else:
            raise AssertionError("applied")
"""


def test_a_recipe_that_changes_nothing_is_an_error(recipes_environment):
    need("jax")
    run_script(UNAPPLIED, [], recipes_environment, framework="jax with recipes")


def test_without_the_library_it_says_what_to_install(recipes_environment):
    need("openvino")
    run_script(ABSENT, [], recipes_environment, framework="jax with recipes")
