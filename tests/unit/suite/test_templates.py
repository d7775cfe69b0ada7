"""Templates and families: one definition, many variants."""

import string

import pytest

from openxla.benchmark import testdata
from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DefinitionError,
    Model,
    ModelArtifactType,
    ModelFrameworkType,
    ModelImplementation,
)

IMPLEMENTATION = ModelImplementation(name="IMPL", framework_type=ModelFrameworkType.JAX)


def template(**changes: object) -> utils.ModelTemplate:
    fields = {"name": "X_BATCH${batch_size}", "model_impl": IMPLEMENTATION, **changes}
    return utils.ModelTemplate(**fields)


def test_a_batch_template_gives_one_model_for_each_size():
    models = utils.build_batch_models(
        template(tags=[utils.BATCH_TAG, "x"], model_parameters={"data_type": "fp32"}), [1, 16]
    )
    assert list(models) == [1, 16]
    assert [model.name for model in models.values()] == ["X_BATCH1", "X_BATCH16"]
    assert models[16].tags == ("batch-16", "x")
    assert models[16].model_parameters == {"data_type": "fp32", "batch_size": 16}


@pytest.mark.parametrize(
    ("build", "field", "tag"),
    [
        (utils.build_batch_models, "batch_size", utils.BATCH_TAG),
        (utils.build_input_sequence_models, "seq_len", utils.SEQLEN_TAG),
        (utils.build_gen_models, "gen_len", utils.GEN_TAG),
    ],
)
def test_each_helper_fills_its_own_field(build, field, tag):
    models = build(template(name=f"X_${{{field}}}", tags=[tag]), [8])
    assert models[8].name == "X_8"
    assert models[8].model_parameters == {field: 8}
    assert models[8].tags == (f"{tag.partition('-')[0]}-8",)


def test_several_axes_give_every_combination_in_order():
    models = utils.build_models(
        template(name="X_${data_type}_B${batch_size}"),
        {"data_type": ["fp32", "bf16"], "batch_size": [1, 2]},
    )
    assert [(key, model.name) for key, model in models.items()] == [
        (("fp32", 1), "X_fp32_B1"),
        (("fp32", 2), "X_fp32_B2"),
        (("bf16", 1), "X_bf16_B1"),
        (("bf16", 2), "X_bf16_B2"),
    ]
    assert models["bf16", 2].model_parameters == {"data_type": "bf16", "batch_size": 2}


def test_a_parameter_that_is_only_a_field_keeps_the_type_of_its_value():
    models = utils.build_models(
        template(model_parameters={"size": "${batch_size}", "text": "b=${batch_size}", "n": 3}),
        {"batch_size": [4]},
    )
    assert models[(4,)].model_parameters == {"size": 4, "text": "b=4", "n": 3, "batch_size": 4}


def test_the_url_of_a_template_knows_name_and_axes():
    models = utils.build_batch_models(
        template(
            artifacts_dir_url="gs://bucket/${name}/${batch_size}",
            exported_model_types=[ModelArtifactType.STABLEHLO_MLIR],
        ),
        [2],
    )
    assert models[2].artifacts_dir_url == "gs://bucket/X_BATCH2/2"
    assert models[2].exported_model_types == (ModelArtifactType.STABLEHLO_MLIR,)


def test_variants_with_one_name_are_refused():
    with pytest.raises(DefinitionError, match=r"'X'.*same name"):
        utils.build_batch_models(template(name="X"), [1, 2])


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "X_${size}"},
        {"name": "X_${batch_size"},
        {"name": "X_$"},
        {"tags": ["${size}"]},
        {"model_parameters": {"text": "${size}"}},
        {"artifacts_dir_url": "gs://${bucket}"},
    ],
)
def test_an_unknown_or_malformed_field_is_refused(changes):
    with pytest.raises(DefinitionError, match="unknown or malformed field"):
        utils.build_batch_models(template(**changes), [1])


def test_cases_have_the_keys_of_their_models():
    models = utils.build_batch_models(template(), [1, 2])
    cases = utils.build_benchmark_cases(models, verify_parameters={"absolute_tolerance": 0.5})
    assert list(cases) == [1, 2]
    assert cases[2].model is models[2]
    assert cases[2].input_data is testdata.INPUT_DATA_MODEL_DEFAULT
    assert cases[2].verify_parameters == {"absolute_tolerance": 0.5}


def test_the_seeds_helper_names_exist():
    models = utils.build_batch_models(template(), [1])
    for build in (
        utils.build_batch_benchmark_cases,
        utils.build_input_sequence_benchmark_cases,
        utils.build_gen_benchmark_cases,
    ):
        assert build(models) == utils.build_benchmark_cases(models)


def test_collect_finds_records_in_nested_containers_once():
    models = utils.build_batch_models(template(), [1, 2, 3])
    namespace = {
        "ONE": models[1],
        "NESTED": {"a": {"b": [models[2], (models[3], "text")]}},
        "AGAIN": models,
        "number": 1,
        "text": "abc",
    }
    assert utils.collect(namespace, Model) == [models[1], models[2], models[3]]
    assert utils.collect(namespace, BenchmarkCase) == []


def family(**changes: object) -> families.Family:
    fields = {
        "name": "NET_${DATA_TYPE}_${FRAMEWORK}_3X8X8X${ELEMENT_TYPE}_BATCH${batch_size}",
        "model_name": "net",
        "axis": "batch_size",
        "sizes": (1, 2),
        "tags": (utils.BATCH_TAG,),
        **changes,
    }
    return families.Family(**fields)


def test_a_family_spells_framework_and_types_in_its_names():
    models = family().models(IMPLEMENTATION, "JAX")
    assert {key: model.name for key, model in models.items()} == {
        (data_type, size): f"NET_{data_type.upper()}_JAX_3X8X8X{element}_BATCH{size}"
        for data_type, element in (("fp32", "F32"), ("fp16", "F16"), ("bf16", "BF16"))
        for size in (1, 2)
    }
    assert models["bf16", 2].model_parameters == {
        "data_type": "bf16",
        "model_name": "net",
        "batch_size": 2,
    }


def test_a_family_takes_another_model_name_and_parameters_by_type():
    changes = {"PT": {"model_name": "hub/net", "parameters_by_type": {"fp16": {"hint": True}}}}
    described = family(parameters={"seq_len": 8}, changes=changes)
    models = described.in_framework("PT").models(IMPLEMENTATION, "PT")
    assert models["fp32", 1].model_parameters["model_name"] == "hub/net"
    assert "hint" not in models["fp32", 1].model_parameters
    assert models["fp16", 1].model_parameters["hint"] is True
    assert all(model.model_parameters["seq_len"] == 8 for model in models.values())
    others = described.in_framework("JAX").models(IMPLEMENTATION, "JAX")
    assert others["fp16", 1].model_parameters == {
        "data_type": "fp16",
        "model_name": "net",
        "seq_len": 8,
        "batch_size": 1,
    }


def test_a_family_of_a_network_is_defined_in_each_framework():
    net = families.Network(name="NET", module="net", tags=["new"], other_tags={"JAX": ["old"]})
    families_ = {"NET_TINY": family(network=net, published=True)}
    for name, kind, tag in (("PT", "pytorch", "new"), ("JAX", "jax", "old")):
        found = families.definitions(name, families_)
        assert set(found) == {f"NET_TINY_{name}", f"NET_TINY_{name}_CASES", f"NET_{name}_IMPL"}
        implementation = found[f"NET_{name}_IMPL"]
        assert implementation.framework_type.value == kind
        assert implementation.tags == (tag,)
        assert implementation.architecture == "net"
        assert implementation.module_path == f"openxla.benchmark.models.{name.lower()}.net"
        cases = found[f"NET_TINY_{name}_CASES"]
        assert [case.model for case in cases.values()] == [*found[f"NET_TINY_{name}"].values()]
        assert all(
            case.verify_parameters == families.PUBLISHED_TOLERANCE for case in cases.values()
        )


def test_a_family_with_an_unknown_field_or_type_is_refused():
    with pytest.raises(DefinitionError, match="unknown or malformed field"):
        family(name="NET_${PRECISION}_${batch_size}").models(IMPLEMENTATION, "PT")
    with pytest.raises(DefinitionError, match="data_type 'fp8'"):
        family(data_types=("fp8",)).models(IMPLEMENTATION, "PT")


def test_what_definition_files_of_the_openxla_suite_write():
    url = string.Template("https://example.org/models/" + "${name}")
    template = utils.ModelTemplate(
        name=utils.BATCH_NAME("NET_FP32_JAX"),
        tags=[utils.BATCH_TAG, "fp32"],
        model_impl=IMPLEMENTATION,
        model_parameters={"batch_size": utils.BATCH_SIZE_PARAM, "seq_len": 8},
        artifacts_dir_url=url,
    )
    models = utils.build_batch_models(template=template, batch_sizes=[1, 16])
    assert models[16].artifacts_dir_url == "https://example.org/models/NET_FP32_JAX_BATCH16"
    assert models[16].model_parameters["batch_size"] == 16
    cases = utils.build_batch_benchmark_cases(
        batch_models=models, verify_parameters={"absolute_tolerance": 0.5}, batch_sizes=[16]
    )
    assert [case.model for case in cases.values()] == [models[16]]
    with pytest.raises(DefinitionError, match="no model of size 8; choices are 1, 16"):
        utils.build_batch_benchmark_cases(batch_models=models, batch_sizes=[8])
    for name, build, cases_of, keyword in (
        (utils.SEQ_LEN_NAME, utils.build_input_sequence_models, "input_sequence", "seq_len"),
        (utils.GEN_NAME, utils.build_gen_models, "gen", "max_new_tokens"),
    ):
        sizes = "input_sequence_lengths" if keyword == "seq_len" else "gen_sizes"
        size = utils.SEQ_LEN_PARAM if keyword == "seq_len" else utils.GEN_SIZE_PARAM
        made = build(
            template=utils.ModelTemplate(
                name=name("NET"),
                tags=[string.Template("fp32"), utils.SEQ_LEN_TAG][: 1 + (keyword == "seq_len")],
                model_impl=IMPLEMENTATION,
                model_parameters={keyword: size},
            ),
            **{sizes: [8, 32]},
        )
        assert made[32].model_parameters[keyword] == 32
        function = getattr(utils, f"build_{cases_of}_benchmark_cases")
        assert list(function(model_dict=made, **{sizes: [32]})) == [32]
    assert utils.MODELS_MODULE_PATH == "openxla.benchmark.models"
