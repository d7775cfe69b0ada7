"""Records of the vocabulary: valid ones."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openxla.benchmark import def_types
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DeviceSpec,
    Model,
    ModelArtifactType,
    ModelFrameworkType,
    ModelImplementation,
    ModelTestData,
    TensorSpec,
)

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,20}", fullmatch=True)
texts = st.text(min_size=1, max_size=8)
tag_lists = st.lists(texts, max_size=4)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5)
)
scalars = scalars.filter(lambda value: value not in (float("inf"), float("-inf")))
parameters = st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), scalars)
parameters = parameters.map(dict)

implementations = st.builds(
    ModelImplementation,
    name=names,
    tags=tag_lists,
    framework_type=st.sampled_from(ModelFrameworkType),
    source_info=st.none() | st.text(max_size=5),
    module_path=st.none() | st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5}){0,2}", fullmatch=True),
)
models = st.builds(
    Model,
    name=names,
    tags=tag_lists,
    model_impl=implementations,
    model_parameters=parameters,
    exported_model_types=st.lists(st.sampled_from(ModelArtifactType), max_size=3),
)
input_data = st.builds(ModelTestData, name=names, source_url=st.text(max_size=5), tags=tag_lists)
tolerances = st.dictionaries(
    st.sampled_from(["absolute_tolerance", "relative_tolerance", "rmse_factor", "rmse_floor"]),
    st.integers(0, 10**6) | st.floats(0, 1e6),
)


@pytest.mark.slow
@given(models, input_data, tolerances)
def test_a_valid_case_builds_and_is_named_after_model_and_input(model, data, verify_parameters):
    case = BenchmarkCase.build(model=model, input_data=data, verify_parameters=verify_parameters)
    assert str(case) == case.name == f"models/{model.name}/inputs/{data.name}"
    assert case.verify_parameters == verify_parameters
    assert set(case.tags) == {*model.model_impl.tags, *model.tags, *data.tags}
    assert len(case.tags) == len(set(case.tags))


@pytest.mark.slow
@given(models, input_data)
def test_records_are_hashable_and_print_as_their_name(model, data):
    case = BenchmarkCase.build(model=model, input_data=data)
    records = [model, model.model_impl, data, case]
    assert [str(record) for record in records] == [record.name for record in records]
    # Equal records have equal hashes, also when made apart.
    for record in records:
        twin = attrs.evolve(record)
        assert twin == record
        assert hash(twin) == hash(record)


@given(models)
def test_records_are_frozen_all_the_way_down(model):
    for record in (model, model.model_impl):
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            record.name = "other"
        assert isinstance(record.tags, tuple)
    with pytest.raises(TypeError):
        model.model_parameters["batch_size"] = 2


def test_a_record_does_not_change_with_the_containers_it_was_made_of():
    tags, values = ["a"], {"batch_size": 1}
    implementation = ModelImplementation(name="I", framework_type=ModelFrameworkType.JAX)
    model = Model(name="M", tags=tags, model_impl=implementation, model_parameters=values)
    tags.append("b")
    values["batch_size"] = 2
    assert model.tags == ("a",)
    assert model.model_parameters == {"batch_size": 1}


def test_tags_of_a_case_come_once_and_in_the_order_of_implementation_model_input():
    implementation = ModelImplementation(
        name="I", tags=["cnn", "x"], framework_type=ModelFrameworkType.JAX
    )
    model = Model(name="M", tags=["batch-1", "cnn"], model_impl=implementation, model_parameters={})
    data = ModelTestData(name="D", source_url="", tags=["x", "small"])
    case = BenchmarkCase.build(model=model, input_data=data)
    assert case.tags == ("cnn", "x", "batch-1", "small")


def test_data_type_and_batch_size_come_from_the_parameters():
    implementation = ModelImplementation(name="I", framework_type=ModelFrameworkType.JAX)
    data = ModelTestData(name="D", source_url="")

    def case(**values: object) -> BenchmarkCase:
        model = Model(name="M", model_impl=implementation, model_parameters=values)
        return BenchmarkCase.build(model=model, input_data=data)

    full = case(data_type="fp32", batch_size=4)
    assert (full.data_type, full.batch_size) == ("fp32", 4)
    assert (case().data_type, case().batch_size) == (None, None)


def test_a_shape_is_a_parameter_however_it_is_written():
    implementation = ModelImplementation(name="I", framework_type=ModelFrameworkType.JAX)
    for shape in ([4, 16], (4, 16)):
        model = Model(name="M", model_impl=implementation, model_parameters={"shape": shape})
        assert model.model_parameters == {"shape": (4, 16)}


def test_tensor_specs_print_as_shape_and_type():
    assert str(TensorSpec(shape=(1, 384), dtype="i32")) == "1x384xi32"
    assert str(TensorSpec(shape=(), dtype="f32")) == "f32"


def test_enumerations_have_the_seeds_names_and_values():
    frameworks = {item.name: item.value for item in ModelFrameworkType}
    assert frameworks == {
        "TF_V1": "tensorflow_v1",
        "TF_V2": "tensorflow_v2",
        "TFLITE": "tflite",
        "PYTORCH": "pytorch",
        "JAX": "jax",
        "GGML": "ggml",
        # Forms of exported programs, for which the OpenXLA suite has no models.
        "ONNX": "onnx",
        "STABLEHLO": "stablehlo",
    }
    expected = [
        "TF_SAVEDMODEL_V1",
        "TF_SAVEDMODEL_V2",
        "TFLITE_FP32",
        "TFLITE_FP32_STABLEHLO",
        "TFLITE_FP16",
        "TFLITE_DYNAMIC_RANGE_QUANT",
        "TFLITE_INT8",
        "XLA_HLO_DUMP",
        "STABLEHLO_MLIR",
        "LINALG_MLIR",
        "TOSA_MLIR",
    ]
    artifacts = {item.name: item.value for item in ModelArtifactType}
    assert artifacts == {name: name.lower() for name in expected}


def test_every_record_takes_keywords_only():
    for record in (ModelImplementation, Model, ModelTestData, DeviceSpec, BenchmarkCase):
        assert all(field.kw_only for field in attrs.fields(record))
    assert issubclass(def_types.DefinitionError, ValueError)
