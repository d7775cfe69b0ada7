"""Results files that the suite wrote in the past are read for ever."""

import json

import jsonschema
import pytest
from results_support import AGES, FOLDER, LATEST, decoded, plain_document, write

from comparative_benchmark.cli.command import main
from comparative_benchmark.results.results_file import SCHEMA_FILE, schema


def test_every_file_is_listed():
    assert {path.name.removesuffix(".json.xz") for path in FOLDER.glob("*.xz")} == set(AGES)


@pytest.mark.parametrize("age", AGES)
def test_a_file_is_read_shown_and_compared(age, tmp_path, capsys):
    old = write(tmp_path / "old.json", age)
    new = write(tmp_path / "new.json", LATEST)
    assert main(["show", str(old)]) == 0
    shown = capsys.readouterr().out
    assert "jax_xla:xla" in shown
    assert "pt_inductor:eager" in shown
    assert main(["compare", str(old), str(new)]) in (0, 2, 3)
    assert main(["compare", str(old), str(old)]) in (0, 3)


@pytest.mark.parametrize("age", AGES)
def test_a_file_keeps_to_the_schema_and_loses_nothing(age):
    plain = plain_document(age)
    jsonschema.Draft202012Validator(schema()).validate(plain)
    document = decoded(plain)
    assert [result.status.value for result in document.benchmarks] == [
        record["status"] for record in plain["benchmarks"]
    ]
    for result, record in zip(document.benchmarks, plain["benchmarks"], strict=True):
        [metrics] = record["metrics"].values()
        assert list(result.measured.latencies_ms or ()) == metrics.get("latencies_ms", [])
        assert result.measured.compile_time_ms == metrics["compile_time_ms"]
        assert result.definition.workload.digest == record["definition"]["workload"]["digest"]


def test_the_published_schema_is_that_of_the_classes():
    assert json.loads(SCHEMA_FILE.read_text()) == json.loads(json.dumps(schema()))
