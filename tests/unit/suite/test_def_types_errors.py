"""Malformed records of the vocabulary: errors name the record, the field and the reason."""

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openxla.benchmark.def_types import (
    BenchmarkCase,
    DefinitionError,
    DeviceSpec,
    Model,
    ModelFrameworkType,
    ModelImplementation,
    ModelTestData,
    TensorSpec,
)
from openxla.benchmark.models import architectures

IMPLEMENTATION = ModelImplementation(name="IMPL", framework_type=ModelFrameworkType.JAX)
MODEL = Model(name="MODEL", model_impl=IMPLEMENTATION, model_parameters={"batch_size": 1})
DATA = ModelTestData(name="DATA", source_url="")
DEVICE = DeviceSpec(
    name="device",
    host_type="host",
    host_model="m",
    host_environment="e",
    accelerator_type="cpu",
    accelerator_model="m",
    accelerator_architecture="a",
)
CASE = BenchmarkCase.build(model=MODEL, input_data=DATA)

BAD_FIELDS = [
    (IMPLEMENTATION, "tags", "transformer", "list"),
    (IMPLEMENTATION, "tags", ["ok", ""], "non-empty"),
    (IMPLEMENTATION, "tags", ["ok", 1], "strings"),
    (IMPLEMENTATION, "tags", None, "list"),
    (IMPLEMENTATION, "framework_type", "jax", "ModelFrameworkType"),
    (IMPLEMENTATION, "source_info", 3, "string"),
    (IMPLEMENTATION, "module_path", "models/bert.py", "dotted"),
    (IMPLEMENTATION, "module_path", "a..b", "dotted"),
    (IMPLEMENTATION, "module_path", "", "dotted"),
    (IMPLEMENTATION, "architecture", "bert-large", "dotted"),
    (MODEL, "tags", "batch-1", "list"),
    (MODEL, "model_impl", "IMPL", "ModelImplementation"),
    (MODEL, "model_parameters", [("batch_size", 1)], "dictionary"),
    (MODEL, "model_parameters", {"batch size": 1}, "keyword"),
    (MODEL, "model_parameters", {1: 1}, "keyword"),
    (MODEL, "model_parameters", {"shape": [[1, 2]]}, "scalar"),
    (MODEL, "model_parameters", {"x": object()}, "scalar"),
    (MODEL, "model_parameters", {"x": math.nan}, "'x'"),
    (MODEL, "model_parameters", {"x": math.inf}, "'x'"),
    (MODEL, "artifacts_dir_url", 1, "string"),
    (MODEL, "exported_model_types", "stablehlo_mlir", "list"),
    (MODEL, "exported_model_types", ["stablehlo_mlir"], "ModelArtifactType"),
    (DATA, "source_url", None, "str"),
    (DATA, "source_info", None, "str"),
    (DATA, "tags", "x", "list"),
    (DEVICE, "host_type", None, "str"),
    (DEVICE, "accelerator_type", 1, "str"),
    (DEVICE, "accelerator_attributes", "num_of_gpus", "dictionary"),
    (DEVICE, "accelerator_attributes", {"num_of_gpus": [[1]]}, "scalar"),
    (CASE, "model", "MODEL", "Model"),
    (CASE, "input_data", "DATA", "ModelTestData"),
    (CASE, "verify_parameters", 0.5, "dictionary"),
]


@pytest.mark.parametrize(("record", "field", "value", "reason"), BAD_FIELDS)
def test_a_bad_field_is_refused_with_record_field_and_reason(record, field, value, reason):
    with pytest.raises(DefinitionError) as caught:
        attrs.evolve(record, **{field: value})
    message = str(caught.value)
    assert type(record).__name__ in message
    assert repr(record.name) in message
    assert repr(field) in message
    assert reason in message


@pytest.mark.parametrize("record", [IMPLEMENTATION, MODEL, DATA, DEVICE, CASE])
@pytest.mark.parametrize("name", ["", "two words", "tab\t", None, 7])
def test_a_bad_name_is_refused(record, name):
    with pytest.raises(DefinitionError, match=rf"{type(record).__name__}.*'name'"):
        attrs.evolve(record, name=name)


@pytest.mark.parametrize("record", [IMPLEMENTATION, MODEL, DATA, DEVICE])
@pytest.mark.parametrize("name", ["-dash", "a/b", "ä", "a\n", "$x"])
def test_a_name_that_is_no_file_name_is_refused(record, name):
    with pytest.raises(DefinitionError, match="letters, digits"):
        attrs.evolve(record, name=name)


bad_tolerances = st.one_of(
    st.just(math.nan),
    st.just(math.inf),
    st.just(-math.inf),
    st.floats(max_value=-1e-300, allow_nan=False),
    st.integers(max_value=-1),
    st.booleans(),
    st.none(),
    st.text(max_size=4),
    st.lists(st.floats(), max_size=1),
)


@pytest.mark.slow
@given(st.sampled_from(["absolute_tolerance", "relative_tolerance", "rmse_factor"]), bad_tolerances)
def test_a_bad_tolerance_is_refused_with_its_key(key, value):
    with pytest.raises(DefinitionError) as caught:
        BenchmarkCase.build(model=MODEL, input_data=DATA, verify_parameters={key: value})
    message = str(caught.value)
    assert CASE.name in message
    assert "verify_parameters" in message
    assert repr(key) in message


@given(st.text().filter(lambda key: key not in ("rmse_factor", "rmse_floor")))
def test_an_unknown_verify_parameter_is_refused_with_the_known_ones(key):
    if key in ("absolute_tolerance", "relative_tolerance"):
        return
    with pytest.raises(DefinitionError, match="choices are absolute_tolerance, relative_tolerance"):
        BenchmarkCase.build(model=MODEL, input_data=DATA, verify_parameters={key: 0.1})


@given(st.text())
def test_a_text_is_never_taken_for_a_list(text):
    for record in (IMPLEMENTATION, MODEL, DATA):
        with pytest.raises(DefinitionError, match="'tags' must be a list"):
            attrs.evolve(record, tags=text)


def test_a_missing_field_is_a_type_error_as_in_any_call():
    with pytest.raises(TypeError, match="framework_type"):
        ModelImplementation(name="I")
    with pytest.raises(TypeError, match="model_parameters"):
        Model(name="M", model_impl=IMPLEMENTATION)


def test_a_tensor_spec_checks_shape_and_type():
    with pytest.raises(DefinitionError, match=r"TensorSpec.*'shape'"):
        TensorSpec(shape="1x2", dtype="i32")
    with pytest.raises(DefinitionError, match=r"TensorSpec.*'dtype'"):
        TensorSpec(shape=(1, 2), dtype=None)


@pytest.mark.parametrize("statement", ["raise SystemExit(0)", "raise ValueError('no')", "1 / 0"])
def test_an_architecture_that_ends_its_import_is_a_wrong_definition(
    tmp_path, monkeypatch, statement
):
    (tmp_path / "ending").mkdir()
    (tmp_path / "ending" / "__init__.py").write_text("")
    (tmp_path / "ending" / "arch.py").write_text(statement)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DefinitionError, match=r"architecture 'ending\.arch': \w+"):
        architectures.get("ending.arch")
