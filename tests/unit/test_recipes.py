"""Recipes by their names: all of the name, the right numbers, and a limit of their own."""

import pytest
from tests_support import shipped

from comparative_benchmark import recipes
from comparative_benchmark.backends.api import UnknownBackendError
from comparative_benchmark.recipes import RecipeError
from comparative_benchmark.runs.trial import Trial, parse_competitors
from openxla.benchmark import devices
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.workloads import workload_of

# What torchao's benchmarking guide names.
GUIDE = (
    *("int8wo", "int8dq", "float8wo", "float8dq-tensor", "float8dq-row", "intx-4-64", "int4wo-64"),
    *("int8_dynamic_activation_intx_weight-4-32", "mxfp8", "nvfp4", "gemlitewo-4-64"),
    *("semi-sparse", "2:4", "block-64"),
)


OURS = set(shipped(recipes.registry.GROUP)) - {"int8wo-asym"}  # an example of the documents


@pytest.mark.parametrize("name", GUIDE)
def test_the_guides_names_are_recipes(name):
    chosen = recipes.parse(name)
    assert chosen.label == name
    assert chosen.min_sqnr_db >= 3
    assert chosen.recipe.by_backend or chosen.recipe.lacking


def test_numbers_follow_the_name():
    chosen = recipes.parse("int8_dynamic_activation_intx_weight-4-32")
    assert chosen.recipe.name == "int8_dynamic_activation_intx_weight"
    assert chosen.values == {"bits": 4, "group": 32}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        # The guide's own code goes by substrings, and would take these.
        ("int8wo_and_more", "unknown recipe 'int8wo_and_more'; did you mean int8wo?"),
        ("my-int8dq", "unknown recipe 'my-int8dq'; did you mean int8dq?"),
        ("int8w", "did you mean int8wo?"),
        ("INT8WO", "unknown recipe 'INT8WO'"),
        ("", "unknown recipe ''"),
        ("intx", "expected intx-<bits>-<group>"),
        ("intx-4", "expected intx-<bits>-<group>"),
        ("int8wo-3", "'int8wo-3': expected int8wo"),
        ("intx-9-64", "bits is '9'; choices are 1, 2, 3, 4, 5, 6, 7, 8"),
        ("intx-4-0", "group is '0'; expected a number above 0"),
        ("intx-4-x", "group is 'x'"),
        ("int4wo-33", "group is '33'; choices are 32, 64, 128, 256"),
    ],
)
def test_what_is_no_recipe_is_told(text, told, monkeypatch):
    # The nearest name may otherwise be in an installed package.
    known = {name: recipe for name, recipe in recipes.recipes().items() if name in OURS}
    monkeypatch.setattr(recipes.registry, "recipes", lambda: known)
    with pytest.raises(RecipeError) as error:
        recipes.parse(text)
    assert told in str(error.value)


def test_one_bit_less_may_lose_six_decibels_and_one_bit_is_not_enough():
    limits = [recipes.parse(f"intx-{bits}-64").min_sqnr_db for bits in range(1, 9)]
    assert limits == [3, 3, 6, 12, 18, 24, 30, 36]


def test_a_recipe_is_an_option_of_a_compiler():
    (competitor,) = parse_competitors("pt_inductor:inductor+int8wo+freezing", "cpu")
    assert str(competitor) == "pt_inductor:inductor+freezing+int8wo"
    assert competitor.recipe.label == competitor.precision == "int8wo"
    (case,) = [
        case
        for case in catalog.all_benchmarks()
        if case.name == "models/BERT_TINY_FP32_PT_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"
    ]
    trial = Trial(
        case=case,
        workload=workload_of(case),
        competitor=competitor,
        device=devices.HOST_CPU,
    )
    assert trial.precision == "int8wo"
    assert trial.verify_parameters == {"min_sqnr_db": 30.0}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pt_inductor:eager+int8w", "did you mean int8wo?"),
        ("pt_inductor:eager+intx-4", "expected intx-<bits>-<group>"),
        ("pt_inductor:eager+gemlitewo-4-64", "torchao 0.18 no longer has gemlite"),
        (
            "pt_inductor:eager+int8wo+int8dq",
            "int8dq and int8wo cannot be applied together; choose one recipe",
        ),
        ("pt_inductor:aot-inductor+int8wo", "has no option 'int8wo'; choices are none"),
        ("tf_xla:xla+int8wo", "has no option 'int8wo'; choices are"),
    ],
)
def test_what_a_compiler_does_not_take_is_told(text, told):
    with pytest.raises(UnknownBackendError) as error:
        parse_competitors(text, "cpu")
    assert told in str(error.value)
