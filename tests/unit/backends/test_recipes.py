"""Recipes by their names: all of the name, the right numbers, and a limit for each."""

import subprocess
import sys
from importlib.metadata import EntryPoint

import attrs
import pytest

from comparative_benchmark.backends import recipes
from comparative_benchmark.backends.api import UnknownBackendError
from comparative_benchmark.backends.recipes import RecipeError, libraries
from comparative_benchmark.backends.recipes.registry import RECIPES, is_one
from comparative_benchmark.engine.trial import RecipeNoise, Trial, parse_competitors
from openxla.benchmark import devices, plugins
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.workloads import workload_of

# Recipes that torchao's benchmarking guide names.
GUIDE = (
    *("int8wo", "int8dq", "float8wo", "float8dq-tensor", "float8dq-row", "intx-4-64", "int4wo-64"),
    *("int8_dynamic_activation_intx_weight-4-32", "mxfp8", "nvfp4", "gemlitewo-4-64"),
    *("semi-sparse", "2:4", "block-64"),
)


BUILT_IN = {recipe.name: recipe for recipe in RECIPES}


@pytest.mark.parametrize("name", GUIDE)
def test_the_guides_names_are_recipes(name):
    chosen = recipes.parse(name)
    assert chosen.label == name
    assert chosen.min_sqnr_db >= 3
    assert chosen.recipe.by_backend or chosen.recipe.lacking


@pytest.fixture
def registered(monkeypatch):
    """Returns a function that lists the recipes as if only these entry points were installed."""

    def registered(*entries):
        points = [EntryPoint(name, value, recipes.registry.GROUP) for name, value in entries]
        monkeypatch.setattr(plugins, "entry_points", lambda group: points)
        monkeypatch.setattr(recipes.registry, "plugins", plugins.plugins.__wrapped__)
        return recipes.registry.recipes.__wrapped__()

    return registered


def test_built_in_recipes_need_no_entry_points(registered):
    assert len(BUILT_IN) == len(RECIPES)
    assert registered() == BUILT_IN


def test_entry_points_of_an_older_installation_are_skipped(registered, capsys):
    old = "comparative_benchmark.backends.recipes.int8wo:RECIPE"
    assert registered(("int8wo", old), ("int8wo-old", old)) == BUILT_IN
    assert capsys.readouterr().err == ""


def test_a_malformed_entry_point_is_left_out_with_the_reason(registered, capsys):
    assert registered(("malformed", "my-recipes.mod:RECIPE")) == BUILT_IN
    said = capsys.readouterr().err
    assert "malformed: 'my-recipes.mod:RECIPE' is not a valid entry point" in said


def test_only_the_first_import_of_a_process_can_exceed_the_time(tmp_path, monkeypatch):
    (tmp_path / "stuck.py").write_text("import time; time.sleep(60)\n")
    # The other entry is not a string, so Python ignores it.
    monkeypatch.setattr(sys, "path", [str(tmp_path), tmp_path, *sys.path])
    monkeypatch.setattr(plugins, "_DEADLINE_S", 1.0)
    quick, stuck = ("a", "json:dumps", "group"), ("b", "stuck:RECIPE", "group")
    assert plugins._probe([quick, stuck]) == [None]
    [refusal] = plugins._probe([stuck])
    assert refusal.reason == "its import did not finish within 1 s"


def test_a_package_adds_recipes_but_replaces_none(registered, tmp_path, monkeypatch):
    (tmp_path / "further_recipes.py").write_text(
        "from comparative_benchmark.backends.recipes import Recipe\n"
        "RECIPE = Recipe(name='mine', description='', min_sqnr_db=lambda values: 5.0,\n"
        "                by_backend={'jax_xla': f'{__name__}:settings'})\n"
        "def settings(): return {'weight_qtype': 'int8'}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry = "further_recipes:RECIPE"
    known = registered(("mine", entry), ("int8wo", entry))
    assert known == {**BUILT_IN, "mine": known["mine"]}
    mine = recipes.Chosen(label="mine", recipe=known["mine"], values={})
    assert (mine.min_sqnr_db, mine.rounding_in("jax_xla")) == (5.0, None)
    assert mine.configuration_in("jax_xla") == {"weight_qtype": "int8"}
    with pytest.raises(RecipeError, match="mine: openvino cannot apply it"):
        mine.configuration_in("openvino")


def test_the_table_imports_no_framework():
    program = (
        "import sys, comparative_benchmark.backends.recipes.registry\n"
        "frameworks = {'torch', 'torchao', 'jax', 'qwix', 'openvino', 'nncf', 'onnxruntime'}\n"
        "print(sorted(frameworks & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_settings_depend_on_the_parameters():
    settings = {"weight_qtype": "int4", "tile_size": 64}
    assert recipes.parse("intx-4-64").configuration_in("jax_xla") == settings
    assert recipes.parse("int4wo-64").configuration_in("jax_xla") == settings
    assert recipes.parse("int4wo-32").configuration_in("jax_xla", group=64) == settings
    with pytest.raises(NotImplementedError, match="at least 2 bits"):
        recipes.parse("intx-1-64").configuration_in("jax_xla")


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
def test_what_is_no_recipe_is_reported(text, told, monkeypatch):
    # The nearest name may otherwise be in an installed package.
    monkeypatch.setattr(recipes.registry, "recipes", lambda: BUILT_IN)
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
        case=case, workload=workload_of(case), competitor=competitor, device=devices.HOST_CPU
    )
    assert trial.precision == "int8wo"
    assert trial.verify_parameters == {"min_sqnr_db": 30.0}
    own = attrs.evolve(case, verify_parameters={"min_sqnr_db": 10.0})
    noise = RecipeNoise(first=(40.0,))
    for changed, least in ((case, 37.0), (own, 10.0)):
        assert attrs.evolve(trial, case=changed, noise=noise).verify_parameters == {
            "min_sqnr_db": least
        }


def test_a_recipe_has_one_spelling():
    assert is_one("intx-4-32")
    assert not is_one("intx-04-32")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pt_inductor:eager+int8w", "did you mean int8wo?"),
        ("pt_inductor:eager+intx-4", "expected intx-<bits>-<group>"),
        ("pt_inductor:eager+gemlitewo-4-64", "torchao 0.18 no longer has gemlite"),
        (
            "pt_inductor:eager+int8wo+int8dq",
            "int8dq and int8wo cannot be combined; choose one recipe",
        ),
        ("pt_inductor:aot-inductor+int8wo", "has no option 'int8wo' (options: none)"),
        ("tf_xla:xla+int8wo", "has no option 'int8wo' (options: "),
    ],
)
def test_what_a_compiler_does_not_take_is_reported(text, told):
    with pytest.raises(UnknownBackendError) as error:
        parse_competitors(text, "cpu")
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("machine", "cpuinfo", "saturates"),
    [
        ("x86_64", "flags : fpu avx2", True),
        ("x86_64", "flags : fpu avx2 avx512_vnni", False),
        ("x86_64", "flags : fpu avx2 avx_vnni", False),
        ("aarch64", "Features : asimd", False),
    ],
)
def test_unsigned_weights_where_products_of_bytes_saturate(
    monkeypatch, machine, cpuinfo, saturates
):
    monkeypatch.setattr(libraries.platform, "machine", lambda: machine)
    monkeypatch.setattr(libraries.Path, "read_text", lambda _: cpuinfo)
    assert libraries._saturates() is saturates
