"""Exports of TensorFlow models: SavedModel and TFLite."""

import pytest
from agreement_support import need
from exporters_support import generate

from openxla.benchmark.comparative_suite import families

pytestmark = pytest.mark.frameworks

MODEL = "RESNET_TINY_FP32_TF_32X32X3XF32_BATCH1"
TYPES = "tf_savedmodel_v2,tflite_fp32,tflite_dynamic_range_quant,tosa_mlir"


@pytest.fixture(scope="module", autouse=True)
def _stack():
    for package in ("tensorflow", "keras", "ai_edge_litert"):
        need(package)


@pytest.fixture(scope="module")
def resnet(tmp_path_factory, environment):
    folder = tmp_path_factory.mktemp("one") / "out"
    return generate(MODEL, folder, environment, "--types", TYPES)


def test_what_is_proved_is_what_is_recorded(resnet):
    entry = families.recorded_exports(families.PROVED_FILE)[MODEL]
    asked = set(TYPES.split(","))
    assert resnet.made & asked == set(entry["types"]) & asked, resnet.err
    for name in asked - resnet.made:
        # The reason, without what differs from machine to machine.
        assert resnet.failures[name][:40] in entry["failures"][name]


@pytest.mark.nightly
def test_a_saved_model_is_one_archive_and_the_same_each_time(resnet, tmp_path, environment):
    assert {"tf_savedmodel_v2", "tflite_fp32"} <= resnet.made
    again = generate(MODEL, tmp_path / "out", environment, "--types", "tf_savedmodel_v2")
    assert resnet.digests()["tf-model.tgz"] == again.digests()["tf-model.tgz"]


def test_a_quantised_file_is_smaller(resnet):
    sizes = {file.artifact_type: file.size_bytes for file in resnet.manifest.files}
    assert sizes["tflite_dynamic_range_quant"] < 0.6 * sizes["tflite_fp32"]
