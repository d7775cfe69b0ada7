"""Export and import give the same result, and the same point of the history."""

import datetime
import json

import pytest
from formats_support import own_results, write_results
from hypothesis import assume, given, settings

from comparative_benchmark.reporting.formats.interface import (
    CARRIER,
    Source,
    exporter,
    importer,
    read_file,
)
from comparative_benchmark.reporting.history import results_files
from comparative_benchmark.reporting.history.database import rows_of
from comparative_benchmark.reporting.history.rows import FormatError

pytestmark = pytest.mark.slow

NAMES = ("torchbench", "oss-v3", "google-benchmark")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=40)
@given(results=own_results())
def test_any_result_survives(name, results):
    try:
        [content] = exporter(name)(results).files.values()
    except FormatError as error:
        # Two of one name are refused before anything is written.
        assume("two results are" not in str(error))
        raise
    for format_name in (name, "auto"):
        imported = importer(format_name)(Source("a.json", content))
        assert imported.refused == ()
        assert sorted(imported.results, key=repr) == sorted(results, key=repr)


@pytest.fixture
def results_file(tmp_path, make_trial, finished):
    path = tmp_path / "results.json"
    write_results(path, make_trial, finished)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_the_history_are_the_same(name, results_file, tmp_path):
    results = results_files.read(results_file).results
    path = tmp_path / "exported.json"
    path.write_bytes(exporter(name)(results).files[""])
    rows, refused = rows_of(path, read_file(path))
    due, wrong = rows_of(results_file, results_files.read(results_file))
    assert refused == wrong == []
    assert sorted(rows, key=repr) == sorted(due, key=repr)
    # A second import of the one after the other changes nothing.
    assert {row.content for row in rows} == {row.content for row in due}


def tampered(document, name):
    """Changes the first number that a reader would see."""
    if name == "torchbench":
        key = next(k for k, v in document["metrics"].items() if isinstance(v, float))
        document["metrics"][key] *= 0.5
    else:
        document["benchmarks"][0]["real_time"] *= 0.5
    return document


@pytest.mark.parametrize("name", ["torchbench", "google-benchmark"])
def test_a_number_that_someone_changed_is_refused_and_the_rest_imported(name, results_file):
    results = results_files.read(results_file).results
    document = json.loads(exporter(name)(results).files[""])
    text = json.dumps(tampered(document, name), indent=1)
    imported = importer(name)(Source("a.json", text.encode()))
    assert imported.results == results[1:]
    [sentence] = imported.refused
    # The line of the exact result, which the changed number contradicts.
    line = text[: text.index('{\n    "case"')].count("\n") + 1
    assert sentence.startswith(f"a.json:{line}: {results[0].name}: ")


def test_a_record_of_oss_v3_that_someone_changed_is_refused(results_file):
    results = results_files.read(results_file).results
    lines = exporter("oss-v3")(results).files[""].decode().splitlines()
    first = json.loads(lines[0])
    first["metric"]["benchmark_values"][0] *= 0.5
    imported = importer("oss-v3")(
        Source("a.json", "\n".join([json.dumps(first), *lines[1:]]).encode())
    )
    assert imported.results == results[1:]
    [sentence] = imported.refused
    assert sentence == (
        "a.json:1: metric 'latency (ms)' differs from metric.extra_info.common_benchmark_suite"
    )


def test_what_the_uploader_adds_to_a_record_is_no_change(results_file):
    results = results_files.read(results_file).results
    metadata = {"repo": "pytorch/pytorch", "head_sha": "0" * 40, "workflow_id": 1, "job_id": 2}
    lines = exporter("oss-v3")(results).files[""].decode().splitlines()
    uploaded = [{**metadata, **json.loads(line)} for line in lines]
    imported = importer("oss-v3")(Source("a.json", json.dumps(uploaded).encode()))
    assert imported.refused == ()
    assert imported.results == results


def test_a_lost_line_of_a_result_is_noticed(results_file):
    results = results_files.read(results_file).results
    lines = exporter("oss-v3")(results).files[""].decode().splitlines()
    for lost, words in ((0, "0 records for this result contain metric.extra"), (1, "is missing")):
        kept = lines[:lost] + lines[lost + 1 :]
        imported = importer("oss-v3")(Source("a.json", "\n".join(kept).encode()))
        assert len(imported.results) == len(results) - 1
        assert words in imported.refused[0]


def test_a_carrier_of_another_version_is_refused(results_file):
    results = results_files.read(results_file).results
    document = json.loads(exporter("torchbench")(results).files[""])
    document[CARRIER]["version"] = 99
    with pytest.raises(FormatError, match="unsupported version 99, expected 1"):
        importer("torchbench")(Source("a.json", json.dumps(document).encode()))


def test_a_result_in_the_carrier_that_is_damaged_costs_only_itself(results_file):
    results = results_files.read(results_file).results
    document = json.loads(exporter("google-benchmark")(results).files[""])
    document[CARRIER]["results"][3]["latency_ms"] = 0.001
    imported = importer("google-benchmark")(
        Source("a.json", json.dumps(document, indent=1).encode())
    )
    assert len(imported.results) == len(results) - 1
    assert "wrong_output result must not have a latency" in imported.refused[0]


def test_time_and_zone_survive(results_file):
    results = results_files.read(results_file).results
    assert datetime.datetime.fromisoformat(results[0].timestamp).tzinfo is not None
