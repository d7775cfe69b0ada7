"""Workloads: which results can be compared."""

import re

import attrs
import pytest

from comparative_benchmark.studies.micro.shapes import Shape
from openxla.benchmark.comparative_suite import catalog, operator_cases
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DefinitionError,
    ModelFrameworkType,
    ModelTestData,
)
from openxla.benchmark.operators import operators
from openxla.benchmark.workloads import workload_of

CASES = {case.model.name: case for case in catalog.all_benchmarks()}
BASE = CASES["BERT_TINY_FP32_JAX_32XI32_BATCH1"]
GREEDY = CASES["GPT2_TINY_GREEDY_FP32_JAX_4X16XI32_8XI32"]
# Names of the OpenXLA suite for models that also have a name by the scheme.
ALIASES = {
    "VIT_CLASSIFICATION_3X224X224XF32": "VIT_BASE_FP32_3X224X224XF32_BATCH1",
    "VIT_CLASSIFICATION_FP32_3X224X224XF32": "VIT_BASE_FP32_3X224X224XF32_BATCH1",
}


def variant(case: BenchmarkCase, **parameters: object) -> BenchmarkCase:
    merged = {**case.model.model_parameters, **parameters}
    model = attrs.evolve(case.model, name="VARIANT", model_parameters=merged)
    return BenchmarkCase.build(model=model, input_data=case.input_data)


@pytest.mark.parametrize(
    "name", [name for name in CASES if "_PT_" in name and "EXAMPLE" not in name]
)
def test_a_pytorch_case_and_its_jax_sibling_are_one_workload(name):
    ours, theirs = workload_of(CASES[name]), workload_of(CASES[name.replace("_PT_", "_JAX_")])
    assert ours == theirs
    assert ours.digest == theirs.digest
    assert ours.id == theirs.id


def test_resnet50_is_one_workload_under_both_of_its_names():
    ours = CASES["RESNET50_FP32_PT_3X224X224XF32_BATCH1"]
    theirs = CASES["RESNET50_FP32_JAX_3X224X224XF32_BATCH1"]
    assert ours.model.model_parameters["model_name"] == "torchvision/resnet50"
    assert theirs.model.model_parameters["model_name"] == "microsoft/resnet-50"
    assert workload_of(ours) == workload_of(theirs)


def test_vit_without_a_type_is_the_fp32_workload():
    seeds = CASES["VIT_CLASSIFICATION_JAX_3X224X224XF32"]
    assert "data_type" not in seeds.model.model_parameters
    workload = workload_of(seeds)
    assert workload == workload_of(CASES["VIT_BASE_FP32_JAX_3X224X224XF32_BATCH1"])
    assert workload.data_type == "fp32"
    assert workload.label == "vit-base-patch16-224-fp32-1x3x224x224xf32"


def test_the_number_of_generated_tokens_changes_the_workload_though_the_inputs_are_equal():
    ours, theirs = workload_of(GREEDY), workload_of(variant(GREEDY, max_new_tokens=9))
    assert ours.inputs == theirs.inputs
    assert ours.digest != theirs.digest


@pytest.mark.parametrize("backward", [False, True])
def test_all_sizes_of_an_operator_are_part_of_its_workload(backward):
    torch = [ModelFrameworkType.PYTORCH]
    sizes = Shape(m=64, k=64, n=96)
    for name, operator in operators().items():
        if backward and not operator.is_differentiable:
            continue
        for letter in operator.uses:
            shapes = [sizes, attrs.evolve(sizes, **{letter: 128})]
            one, other = operator_cases.cases([name], shapes, ["fp32"], torch, backward=backward)
            assert workload_of(one).digest != workload_of(other).digest, (name, letter)


def test_generating_and_scoring_the_same_prompt_are_two_workloads():
    parameters = {k: v for k, v in GREEDY.model.model_parameters.items() if k != "max_new_tokens"}
    scoring = attrs.evolve(GREEDY, model=attrs.evolve(GREEDY.model, model_parameters=parameters))
    assert workload_of(scoring).inputs == workload_of(GREEDY).inputs
    assert workload_of(scoring).digest != workload_of(GREEDY).digest


@pytest.mark.parametrize(
    "change",
    [
        {"data_type": "bf16"},
        {"batch_size": 2},
        {"seq_len": 33},
        {"seed": 1},
        {"model_name": "bert-base-uncased"},
    ],
)
def test_whatever_changes_the_computation_changes_the_workload(change):
    ours, theirs = workload_of(BASE), workload_of(variant(BASE, **change))
    assert ours.digest != theirs.digest
    assert ours.id != theirs.id


def test_pretrained_weights_change_the_workload():
    base = CASES["BERT_BASE_FP32_JAX_I32_SEQLEN8"]
    assert workload_of(base).digest != workload_of(variant(base, checkpoint="pretrained")).digest


def test_the_defaults_written_out_are_the_same_workload():
    assert workload_of(variant(BASE, checkpoint="seeded", seed=0)) == workload_of(BASE)


def test_name_tags_and_tolerances_do_not_change_the_workload():
    model = attrs.evolve(BASE.model, name="OTHER", tags=["x"])
    case = BenchmarkCase.build(
        model=model, input_data=BASE.input_data, verify_parameters={"rmse_factor": 2}
    )
    assert workload_of(case) == workload_of(BASE)


def test_other_input_data_is_another_workload():
    case = attrs.evolve(BASE, input_data=ModelTestData(name="OTHER", source_url=""))
    assert workload_of(case).digest != workload_of(BASE).digest


def test_all_digests_of_different_variants_differ():
    found = {}
    for name, case in CASES.items():
        key = re.sub(r"_(PT|JAX|TF|TFLITE)_", "_", name)
        # Pictures of TensorFlow have their channels last.
        key = re.sub(r"_(\d+)X\1X([34])X", r"_\2X\1X\1X", key)
        found.setdefault(workload_of(case).digest, set()).add(ALIASES.get(key, key))
    assert all(len(names) == 1 for names in found.values())


def test_a_workload_says_what_its_inputs_are():
    workload = workload_of(BASE)
    assert [str(spec) for spec in workload.inputs] == ["1x32xi32", "1x32xi32"]
    assert workload.label == "bert-tiny-fp32-1x32xi32"
    assert workload.id == str(workload) == f"{workload.label}-{workload.digest[:12]}"


def test_a_model_without_an_architecture_is_private():
    case = CASES["EXAMPLE_FP32_PT_BATCH1"]
    workload = workload_of(case)
    assert workload.inputs == ()
    assert workload.label == "EXAMPLE_FP32_PT_BATCH1"
    others = [workload_of(other).digest for other in CASES.values() if other is not case]
    assert workload.digest not in others
    assert workload.digest != workload_of(variant(case, batch_size=3)).digest


def test_a_private_workload_changes_with_the_source_of_its_model(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = tmp_path / "own_private_model.py"
    implementation = attrs.evolve(
        CASES["EXAMPLE_FP32_PT_BATCH1"].model.model_impl, module_path="own_private_model"
    )
    model = attrs.evolve(CASES["EXAMPLE_FP32_PT_BATCH1"].model, model_impl=implementation)
    case = BenchmarkCase.build(model=model, input_data=BASE.input_data)
    digests = set()
    for text in ("a = 1\n", "a = 2\n"):
        source.write_text(text, encoding="utf-8")
        digests.add(workload_of(case).digest)
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_name": "bert-huge"}, "choices are bert-base-uncased"),
        ({"data_type": "fp8"}, "fp8"),
        ({"data_type": None}, "data_type"),
        ({"seq_len": 129}, "seq_len"),
        ({"batch_size": 0}, "'batch_size' must be a positive integer"),
        ({"seq_len": "32"}, "'seq_len' must be a positive integer"),
        ({"batch_size": True}, "'batch_size' must be a positive integer"),
        ({"checkpoint": "x"}, "seeded, trained, pretrained"),
        ({"checkpoint": "pretrained"}, "no pretrained checkpoint"),
        ({"seed": -1}, "seed"),
    ],
)
def test_a_wrong_parameter_is_refused(change, message):
    with pytest.raises(DefinitionError, match=message):
        workload_of(variant(BASE, **change))


@pytest.mark.parametrize("missing", ["model_name", "data_type", "batch_size", "seq_len"])
def test_a_missing_parameter_is_refused_by_its_name(missing):
    parameters = {k: v for k, v in BASE.model.model_parameters.items() if k != missing}
    case = attrs.evolve(BASE, model=attrs.evolve(BASE.model, model_parameters=parameters))
    with pytest.raises(DefinitionError, match=missing):
        workload_of(case)


@pytest.mark.parametrize("name", ["nope", "os.path"])
def test_an_unknown_architecture_is_refused(name):
    implementation = attrs.evolve(BASE.model.model_impl, architecture=name)
    case = attrs.evolve(BASE, model=attrs.evolve(BASE.model, model_impl=implementation))
    with pytest.raises(DefinitionError, match=name):
        workload_of(case)
