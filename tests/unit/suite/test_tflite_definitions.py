"""TFLite cases: the meaning of addresses, properties shared with JAX, and paths of files."""

import ast
import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from openxla.benchmark import testdata
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import DefinitionError, ModelFrameworkType
from openxla.benchmark.models import architectures, shared_model
from openxla.benchmark.models.architectures import bert as bert_architecture
from openxla.benchmark.models.architectures import vit as vit_architecture
from openxla.benchmark.models.checkpoints import CheckpointError, seeded
from openxla.benchmark.models.tflite import conversion, files, tflite_model
from openxla.benchmark.workloads import workload_of

CASES = {
    case.model.name: case
    for case in catalog.all_benchmarks()
    if case.input_data is testdata.INPUT_DATA_MODEL_DEFAULT
}
TFLITE = [
    case
    for case in CASES.values()
    if case.model.model_impl.framework_type is ModelFrameworkType.TFLITE
]
TINY = "converted:BERT_TINY_FP32_JAX_32XI32_BATCH1/model_{}.tflite"


def source_of(case):
    """Returns the JAX case that a file was converted from."""
    return CASES[files.parse_uri(case.model.model_parameters["model_uri"]).source]


def completed(case):
    implementation = case.model.model_impl
    return architectures.get(implementation.architecture).complete(case.model.model_parameters)


def test_there_are_the_published_cases_and_tiny_ones_in_each_precision():
    published = [
        case for case in TFLITE if case.model.model_parameters["model_uri"].startswith("https")
    ]
    assert len(published) == 28
    tiny = {case.model.name.split("_TFLITE_")[0] for case in TFLITE if "tiny" in case.tags}
    kinds = ("FP32", "FP16", "DYN_QUANT", "INT8")
    assert tiny == {f"{name}_TINY_{kind}" for name in ("BERT", "VIT") for kind in kinds}


@pytest.mark.parametrize("case", TFLITE, ids=lambda case: case.model.name)
def test_an_address_stands_for_the_parameters_of_the_jax_model_that_it_names(case):
    source = source_of(case)
    ours = {**completed(case), "data_type": "fp32"}
    del ours["model_uri"]
    assert ours == completed(source)


@pytest.mark.parametrize("case", TFLITE, ids=lambda case: case.model.name)
def test_only_an_fp32_file_is_the_workload_of_its_jax_model(case):
    ours, theirs = workload_of(case), workload_of(source_of(case))
    if "_FP32_" in case.model.name:
        assert ours == theirs
        return
    assert ours.digest != theirs.digest
    assert ours.data_type in ("fp16-weights", "dynamic-range", "int8")
    assert f"-{ours.data_type}-" in ours.label
    # It is judged by the unquantised model on the same inputs.
    for shared in ("architecture", "config_digest", "checkpoint", "inputs", "input_digest"):
        assert getattr(ours, shared) == getattr(theirs, shared)


def test_each_precision_is_a_workload_of_its_own():
    names = [name for name in CASES if name.startswith("BERT_TINY_") and "_TFLITE_" in name]
    assert len({workload_of(CASES[name]).digest for name in names}) == 4


@pytest.mark.parametrize("name", ["BERT_TINY_INT8_TFLITE_32XI32_BATCH1"])
def test_outputs_are_declared_from_the_definition_alone(name):
    case = CASES[name]
    architecture = architectures.get(case.model.model_impl.architecture)
    assert str(architecture.output_specs(case.model.model_parameters)[0]) == "1x32x128xf32"


def test_another_checkpoint_is_another_workload():
    architecture = architectures.get("openxla.benchmark.models.tflite.bert")
    uri = TINY.format("int8")
    from openxla.benchmark.models import checkpoints

    def identity(**more):
        return checkpoints.identity(architecture, architecture.complete({"model_uri": uri, **more}))

    assert identity() == identity(seed=0) != identity(seed=1)
    base = "converted:BERT_BASE_FP32_JAX_I32_SEQLEN8/model_int8.tflite"
    given = architecture.complete({"model_uri": base, "checkpoint": "pretrained"})
    assert checkpoints.identity(architecture, given).startswith("google-bert/bert-base-uncased@")


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        (None, "neither https"),
        ("", "neither https"),
        ("BERT_TINY_FP32_JAX_32XI32_BATCH1/model_int8.tflite", "neither https"),
        ("http://host/BERT_TINY_FP32_JAX_32XI32_BATCH1/model_int8.tflite", "neither https"),
        ("https://host/../../root/model_int8.tflite", "neither https"),
        ("converted:a/b/model_int8.tflite", "neither https"),
        (TINY.format("int4"), "the file must be one of model_"),
        (
            "converted:BERT_HUGE_FP32_JAX_32XI32_BATCH1/model_int8.tflite",
            "must be one of BERT_TINY",
        ),
    ],
)
def test_a_malformed_address_reports_the_problem(uri, reason):
    architecture = architectures.get("openxla.benchmark.models.tflite.bert")
    with pytest.raises(DefinitionError, match=reason):
        architecture.complete({"model_uri": uri})


PUBLISHED = files.parse_uri("https://a.host/x/BERT_BASE_FP32_JAX_I32_SEQLEN8/model_fp32.tflite")
OWN = files.parse_uri(TINY.format("int8"))


def test_a_published_file_that_is_not_here_says_where_it_belongs(root):
    place = root / "published/a.host/x/BERT_BASE_FP32_JAX_I32_SEQLEN8/model_fp32.tflite"
    with pytest.raises(CheckpointError, match="does not fetch it") as caught:
        files.published(PUBLISHED)
    assert str(place) in str(caught.value)
    place.parent.mkdir(parents=True)
    place.write_bytes(b"TFL3")
    found = files.published(PUBLISHED)
    assert (found.path, found.size_bytes, found.origin) == (place, 4, "published")
    with pytest.raises(CheckpointError, match=r"^converted:.* is not a published file"):
        files.published(OWN)


def modules_of_tensorflow(source):
    """Returns the modules of our TensorFlow models that one of them imports, directly or not."""
    package, found = "openxla.benchmark.models.tf", set()
    for node in ast.walk(ast.parse(Path(find_spec(source).origin).read_text())):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{package}."):
            parts = [f"{node.module}.{item.name}" for item in node.names]
            found |= set(parts) if node.module == package else {node.module}
    return found.union(*map(modules_of_tensorflow, found))


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_a_change_in_any_module_of_the_model_makes_another_file(name):
    modules = modules_of_tensorflow(f"openxla.benchmark.models.tf.{name}")
    assert len(modules) == 3
    assert modules <= set(tflite_model._CONVERTERS)


def write(path, content=b"TFL3"):
    path.write_bytes(content)
    return {"made": True}


def test_a_file_is_converted_once_for_each_recipe():
    calls = []

    def make(path):
        calls.append(path)
        return write(path)

    first = files.converted(OWN, {"seed": 0}, make)
    assert files.converted(OWN, {"seed": 0}, make) == first
    assert len(calls) == 1
    assert first.notes == {"made": True}
    other = files.converted(OWN, {"seed": 1}, make)
    assert len(calls) == 2
    assert other.path.parent != first.path.parent
    manifest = json.loads((first.path.parent / "manifest.json").read_text())
    assert manifest["recipe"] == {"seed": 0}
    assert manifest["sha256"] == first.sha256
    assert list(first.path.parent.parent.glob(".*")) == []


def test_of_two_writers_the_first_to_finish_wins():
    def overtaken(path):
        files.converted(OWN, {}, write)
        return write(path, b"another conversion of the same")

    assert files.converted(OWN, {}, overtaken).path.read_bytes() == b"TFL3"


def test_a_failed_conversion_leaves_nothing(root):
    def fail(path):
        path.write_bytes(b"half")
        raise conversion.NotConvertibleError("no")

    with pytest.raises(conversion.NotConvertibleError):
        files.converted(OWN, {}, fail)
    assert list((root / "tflite").iterdir()) == []


def test_a_damaged_file_is_an_error():
    found = files.converted(OWN, {}, write)
    found.path.write_bytes(b"TFL4")
    with pytest.raises(files.DamagedFileError, match="remove"):
        files.converted(OWN, {}, write)


@pytest.mark.parametrize(
    ("architecture", "parameters"),
    [
        (bert_architecture.ARCHITECTURE, {"model_name": "bert-tiny", "seq_len": 16}),
        (vit_architecture.ARCHITECTURE, {"model_name": "vit-tiny", "data_type": "fp32"}),
    ],
    ids=["text", "picture"],
)
def test_calibration_inputs_are_real_and_never_the_judged_ones(architecture, parameters):
    parameters = {"batch_size": 2, "data_type": "fp32", **parameters}
    checkpoint = seeded(architecture, parameters["model_name"])
    raw = architecture.default_inputs(parameters)
    judged = architecture.preprocess(raw, parameters, checkpoint)
    sets = list(shared_model.calibration_sets(architecture, parameters, checkpoint, 3))
    assert len(sets) == 3
    for arrays in sets:
        assert [(a.shape, a.dtype) for a in arrays] == [(a.shape, a.dtype) for a in judged]
    rows = [row.tobytes() for arrays in [judged, *sets] for row in arrays[0]]
    assert len(set(rows)) == len(rows) == 8


def test_int8_without_calibration_inputs_is_refused_with_a_way_out():
    class Bare:
        """A user's model."""

    class Empty:
        def calibration_inputs(self, count):
            return iter(())

    with pytest.raises(conversion.NotConvertibleError, match=r"calibration_inputs\(count\)"):
        conversion._calibration(Bare(), 2)
    with pytest.raises(conversion.NotConvertibleError, match="yields none"):
        conversion._calibration(Empty(), 2)


def test_calibration_inputs_go_to_the_inputs_by_their_position():
    class Endless:
        def calibration_inputs(self, count):
            while True:
                yield np.zeros(1), np.ones(2)

    samples = list(conversion._calibration(Endless(), 3)())
    assert len(samples) == 3
    assert [sorted(sample) for sample in samples] == [["input_00", "input_01"]] * 3
    assert samples[0]["input_01"].sum() == 2
