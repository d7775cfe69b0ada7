"""Results as they travel between formats: what they promise, and what they refuse."""

import json

import attrs
import pytest
from formats_support import own_results, write_results
from hypothesis import given

from comparative_benchmark.formats.from_records import read_results
from comparative_benchmark.formats.result import FormatError, Result
from comparative_benchmark.results.codec import ResultsFileError


@given(own_results())
def test_json_and_back_is_the_same(results):
    for result in results:
        assert Result.from_json(json.loads(json.dumps(result.as_json()))) == result


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"case": 3}, "case: 3 is no text"),
        ({"case": "\ud800"}, "half a surrogate pair"),
        ({"status": "fast"}, "status: 'fast' is none of ok"),
        ({"batch_size": 1.5}, "batch_size: 1.5 is no whole number"),
        ({"batch_size": True}, "no whole number"),
        ({"latency_ms": "1"}, "latency_ms: '1' is no number"),
        ({"latency_ms": float("nan")}, "no finite number"),
        ({"latency_ms": 10**400}, "no finite number"),
        ({"latency_ms": -1.0}, "no amount"),
        ({"samples_ms": [[0.0]]}, "0.0 is no time"),
        ({"samples_ms": [[]]}, "a process without samples"),
        ({"samples_ms": [1.0]}, "samples_ms: 1.0 is no list"),
        ({"samples_ms": "1"}, "no list"),
        ({"compile_ms": [None]}, "null is no number"),
        ({"tags": ["a", 1]}, "tags: 1 is no text"),
        ({"metrics": {"a": "b"}}, "metrics.a"),
        ({"versions": {"jax": 1}}, "versions.jax: 1 is no text"),
        ({"extra": {"a": [float("inf")]}}, "no finite number"),
        ({"extra": []}, "extra: [] is no object"),
        ({"speed": 1}, "no field 'speed'"),
    ],
)
def test_other_types_are_refused_by_name(fields, words):
    with pytest.raises(FormatError) as error:
        Result.from_json({"case": "a", **fields})
    assert words in str(error.value)


@pytest.mark.parametrize("value", [None, [], "case", {"status": "ok"}])
def test_what_is_no_result_is_refused(value):
    with pytest.raises(FormatError):
        Result.from_json(value)


@pytest.mark.parametrize("speed", [{"latency_ms": 1.0}, {"samples_ms": ((1.0,),)}])
def test_only_a_right_answer_has_a_speed(speed):
    assert Result(case="a", **speed).status == "ok"
    with pytest.raises(FormatError, match="wrong_output, and yet it has a latency"):
        Result(case="a", status="wrong_output", **speed)


@pytest.fixture
def results_file(tmp_path, make_trial, finished):
    path = tmp_path / "results.json"
    write_results(path, make_trial, finished)
    return path


def test_results_files_are_read_with_all_that_formats_need(results_file):
    results, refused = read_results(results_file)
    assert not refused
    first = results[0]
    assert first.competitor == "jax_xla:xla"
    assert first.device == "host-cpu"
    assert [len(process) for process in first.samples_ms] == [4, 3, 5]
    assert first.latency_low_ms < first.latency_ms < first.latency_high_ms
    assert first.versions == {"jax": "1.2.3", "python": "3.11.9"}
    assert first.timestamp is not None
    assert first.host["hostname"] == "a-machine"
    statuses = {result.status: result for result in results}
    assert len(statuses) == 8
    assert all(r.latency_ms is None and not r.samples_ms for r in results if r.status != "ok")
    assert statuses["wrong_output"].why.startswith("wrong_output in verify: a <reason>")
    compile_only = results[2]
    assert compile_only.latency_ms is None
    assert compile_only.compile_ms
    assert len({attrs.astuple(result)[-2] for result in results}) == len(results)


def test_a_record_of_another_shape_costs_nothing_but_itself(results_file):
    document = json.loads(results_file.read_text())
    document["benchmarks"][1]["status"] = "splendid"
    document["benchmarks"][2] = 7
    results_file.write_text(json.dumps(document))
    results, refused = read_results(results_file)
    assert len(results) == len(document["benchmarks"]) - 2
    assert len(refused) == 2
    assert all(str(results_file) in sentence for sentence in refused)
    assert "splendid" in refused[0]


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text("{}")
    with pytest.raises(ResultsFileError, match=r"other\.json is no results file"):
        read_results(path)
