"""The catalogue: every case, chosen by name, tag and framework."""

import importlib
import itertools
import re

import pytest

from openxla.benchmark import testdata
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DefinitionError,
    Model,
    ModelFrameworkType,
    ModelImplementation,
)

TINY = "models/BERT_TINY_FP32_PT_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"
_serial = itertools.count()


@pytest.fixture(scope="module")
def cases():
    return catalog.all_benchmarks()


@pytest.fixture
def write_suite(tmp_path, monkeypatch):
    """Writes an importable module and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text: str) -> str:
        name = f"plugged_in_suite_{next(_serial)}"
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        importlib.invalidate_caches()
        return name

    return write


def suite_with(name: str) -> str:
    return f"""
from openxla.benchmark import def_types, testdata
IMPL = def_types.ModelImplementation(
    name="OWN", tags=["own"], framework_type=def_types.ModelFrameworkType.JAX, module_path="own")
MODEL = def_types.Model(name="{name}", model_impl=IMPL, model_parameters={{}})
ALL_BENCHMARKS = [def_types.BenchmarkCase.build(
    model=MODEL, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)]
"""


def test_names_of_all_cases_are_unique(cases):
    assert len({case.name for case in cases}) == len(cases) > 100


def test_both_frameworks_are_there(cases):
    found = {case.model.model_impl.framework_type for case in cases}
    assert {ModelFrameworkType.PYTORCH, ModelFrameworkType.JAX} <= found


def test_a_name_selects_that_case_alone(cases):
    (case,) = catalog.select(cases, name=TINY)
    assert case.name == TINY


def test_an_expression_must_match_the_whole_name(cases):
    selected = catalog.select(cases, name=r"models/BERT_TINY_.+_PT_.+BATCH1/.+")
    assert {case.model.name for case in selected} == {
        f"BERT_TINY_{kind}_PT_32XI32_BATCH1" for kind in ("FP32", "FP16", "BF16")
    }
    for part in ("models/BERT_TINY_FP32_PT_32XI32_BATCH[1]", "BERT_TINY.+", "INPUT_DATA.*"):
        with pytest.raises(catalog.NoMatchError):
            catalog.select(cases, name=part)


def test_a_malformed_expression_is_an_error_of_expressions(cases):
    with pytest.raises(re.error):
        catalog.select(cases, name="models/(")


def test_cases_must_have_all_tags(cases):
    selected = catalog.select(cases, tags=["tiny", "cnn"])
    assert selected
    assert all({"tiny", "cnn"} <= set(case.tags) for case in selected)
    assert len(selected) < len(catalog.select(cases, tags=["tiny"]))


def test_a_framework_selects_its_cases(cases):
    selected = catalog.select(cases, framework="jax")
    assert {case.model.model_impl.framework_type for case in selected} == {ModelFrameworkType.JAX}
    more = catalog.select(cases, framework="jax,pytorch")
    assert {case.model.model_impl.framework_type.value for case in more} == {"jax", "pytorch"}


def test_criteria_hold_together_and_order_is_kept(cases):
    name, framework = ".*(BERT|RESNET)_TINY.*", "pytorch"
    selected = catalog.select(cases, name=name, tags=["batch-4"], framework=framework)
    assert [case for case in cases if case in selected] == selected
    assert {case.model.name for case in selected} == {
        f"{family}_{data_type}_PT_{shape}_BATCH4"
        for data_type, element in (("FP32", "F32"), ("FP16", "F16"), ("BF16", "BF16"))
        for family, shape in (("BERT_TINY", "32XI32"), ("RESNET_TINY", f"3X32X32X{element}"))
    }


def test_no_match_names_the_nearest_and_how_to_list(cases):
    with pytest.raises(catalog.NoMatchError) as caught:
        catalog.select(cases, name=TINY.replace("TINY", "TINI"))
    message = str(caught.value)
    assert TINY in message
    assert "whole name" in message
    assert "cbs list" in message


@pytest.mark.parametrize("criteria", [{"tags": ["nope"]}, {"framework": "nope"}])
def test_no_match_without_a_name_explains_how_to_list(cases, criteria):
    with pytest.raises(catalog.NoMatchError, match="cbs list"):
        catalog.select(cases, **criteria)


def test_an_unknown_tag_gets_a_suggestion(cases):
    with pytest.raises(catalog.NoMatchError, match="no case has the tag 'brt'; did you mean bert"):
        catalog.select(cases, tags=["brt"])


def test_no_match_does_not_deny_a_name_that_exists(cases):
    with pytest.raises(catalog.NoMatchError) as caught:
        catalog.select(cases, name=TINY, tags=["nope"])
    assert f"no case is named '{TINY}'" not in str(caught.value)


def test_a_module_can_be_plugged_in(cases, write_suite):
    extended = catalog.all_benchmarks([write_suite(suite_with("OWN_MODEL"))])
    assert [case.name for case in extended[: len(cases)]] == [case.name for case in cases]
    assert [case.model.name for case in extended[len(cases) :]] == ["OWN_MODEL"]


def test_a_module_given_twice_counts_once(cases, write_suite):
    module = write_suite(suite_with("OWN_MODEL"))
    assert len(catalog.all_benchmarks([module, module])) == len(cases) + 1


def test_two_cases_with_one_name_are_refused(write_suite):
    first, second = write_suite(suite_with("SAME")), write_suite(suite_with("SAME"))
    with pytest.raises(DefinitionError, match=rf"{second}.*models/SAME/inputs/.*already exists"):
        catalog.all_benchmarks([first, second])


@pytest.mark.parametrize(
    "text", ["", "ALL_BENCHMARKS = None", "ALL_BENCHMARKS = [1]", "ALL_BENCHMARKS = 'abc'"]
)
def test_a_module_without_a_list_of_cases_is_refused(write_suite, text):
    module = write_suite(text)
    with pytest.raises(DefinitionError, match=rf"{module}.*ALL_BENCHMARKS"):
        catalog.all_benchmarks([module])


@pytest.mark.parametrize("path", ["no_such_module", "./my_suite.py", "my_suite.py", ".relative"])
def test_a_module_that_can_not_be_found_is_refused(path):
    with pytest.raises(DefinitionError, match=re.escape(path)):
        catalog.all_benchmarks([path])


@pytest.mark.parametrize("text", ["import no_such_package", "from os import no_such_name"])
def test_a_module_that_can_not_be_imported_is_refused_with_its_reason(write_suite, text):
    module = write_suite(text)
    with pytest.raises(DefinitionError, match=rf"{module}.*no_such"):
        catalog.all_benchmarks([module])


def test_select_needs_nothing_of_the_suite():
    implementation = ModelImplementation(name="I", framework_type=ModelFrameworkType.TFLITE)
    model = Model(name="M", model_impl=implementation, model_parameters={})
    case = BenchmarkCase.build(model=model, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)
    assert catalog.select([case], framework="tflite") == [case]
