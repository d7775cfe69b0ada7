"""Every BERT, ResNet and example case of the seed exists here under its name, unchanged."""

import csv
import json
from pathlib import Path

import pytest

from openxla.benchmark.comparative_suite import catalog

FRAMEWORKS = {"pt": "pytorch", "jax": "jax", "tf": "tensorflow_v2", "tflite": "tflite"}

with (Path(__file__).parent / "data" / "upstream_cases.tsv").open(encoding="utf-8") as _file:
    ROWS = list(csv.DictReader(_file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.fixture(scope="module")
def cases():
    return catalog.all_benchmarks()


def test_the_list_of_upstream_cases_is_not_empty():
    assert {row["framework"] for row in ROWS} == set(FRAMEWORKS)
    assert len(ROWS) > 70


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["benchmark_name"].split("/")[1])
def test_an_upstream_case_resolves_with_equal_parameters_and_tags(row, cases):
    (case,) = catalog.select(
        cases, name=row["benchmark_name"], framework=FRAMEWORKS[row["framework"]]
    )
    assert dict(case.model.model_parameters) == json.loads(row["model_parameters"])
    assert dict(case.verify_parameters) == json.loads(row["verify_parameters"])
    assert set(case.tags) == set(row["tags"].split(","))
