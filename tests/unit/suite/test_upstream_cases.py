"""Every case that the OpenXLA suite published exists here, unchanged: `cbs list --json`."""

import contextlib
import csv
import io
import json
from pathlib import Path

import pytest

from comparative_benchmark.cli import command as cli

FRAMEWORKS = {"pt": "pytorch", "jax": "jax", "tf": "tensorflow_v2", "tflite": "tflite"}

with (Path(__file__).parents[1] / "data" / "upstream_cases.tsv").open(encoding="utf-8") as _file:
    ROWS = list(csv.DictReader(_file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.fixture(scope="module")
def listed():
    """What `cbs list --json` prints, by the name of the case."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert cli.main(["list", "--json"]) == 0
    return {case["benchmark_name"]: case for case in json.loads(printed.getvalue())}


def test_the_list_is_whole():
    # 192 lines were published; one of them, VIT_CLASSIFICATION_JAX_3X224X224XF32, twice.
    assert len(ROWS) == len({row["benchmark_name"] for row in ROWS}) == 191
    assert {row["framework"] for row in ROWS} == set(FRAMEWORKS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["benchmark_name"].split("/")[1])
def test_a_published_case_is_listed_field_by_field(row, listed):
    case = listed[row["benchmark_name"]]
    assert case["framework"] == FRAMEWORKS[row["framework"]]
    assert case["model_parameters"] == json.loads(row["model_parameters"])
    assert case["verify_parameters"] == json.loads(row["verify_parameters"])
    assert case["exported_model_types"] == row["exported_model_types"].split(",")
    assert set(case["tags"]) == set(row["tags"].split(","))


def test_workloads_are_shared_across_frameworks(listed):
    def workload(model):
        return listed[f"models/{model}/inputs/INPUT_DATA_MODEL_DEFAULT"]["workload"]

    for group in (
        [f"BERT_LARGE_FP32_{name}_384XI32_BATCH1" for name in ("PT", "JAX", "TF")],
        ["RESNET50_FP32_PT_3X224X224XF32_BATCH8", "RESNET50_FP32_TF_224X224X3XF32_BATCH8"],
        ["T5_LARGE_FP32_JAX_512XI32_BATCH1", "T5_LARGE_FP32_TF_512XI32_BATCH1"],
        ["BERT_BASE_FP32_TFLITE_I32_SEQLEN8", "BERT_BASE_FP32_JAX_I32_SEQLEN8"],
    ):
        assert len({workload(model) for model in group}) == 1, group
