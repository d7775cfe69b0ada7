"""Made-up results have the format of `cbs run`, so pages made from them are realistic."""

import importlib.util
import json
from pathlib import Path

import jsonschema
import pytest
from results_support import decoded

from comparative_benchmark.reporting.report import inputs
from comparative_benchmark.results.results_file import SCHEMA_FILE

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "_made_results.py"


@pytest.fixture(scope="module")
def made():
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("_made_results", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_they_follow_the_schema(made):
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(made.document(60, slower=True))


def test_they_can_be_made_again_and_all_be_read(made):
    first, again = made.document(40, night=3), made.document(40, night=3)
    assert first == again
    assert made.document(40, night=4)["benchmarks"] != first["benchmarks"]
    assert len(inputs.merge([decoded(first)]).cases) == 40
