"""Results between formats: valid values, and refusals."""

import json

import pytest
from formats_support import own_results, write_results
from hypothesis import given

from comparative_benchmark.reporting.history import results_files
from comparative_benchmark.reporting.history.rows import (
    FormatError,
    PortableResult,
    decoded,
    portable_result,
)


@pytest.mark.slow
@given(own_results())
def test_json_and_back_is_the_same(results):
    for result in results:
        assert decoded(json.dumps(result.as_json())) == result


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"case": 3}, "`$.case`"),
        ({"status": "fast"}, "(ok|unsteady|wrong_output|unsupported"),
        ({"batch_size": 1.5}, "`$.batch_size`"),
        ({"batch_size": True}, "got `bool`"),
        ({"latency_ms": "1"}, "`$.latency_ms`"),
        ({"latency_ms": float("nan")}, "`$.latency_ms`"),
        ({"latency_ms": 10**400}, "`$.latency_ms`"),
        ({"latency_ms": -1.0}, ">= 0"),
        ({"samples_ms": [[0.0]]}, "`$.samples_ms[0][0]`"),
        ({"samples_ms": [[]]}, "`$.samples_ms[0]`"),
        ({"samples_ms": [1.0]}, "`$.samples_ms[0]`"),
        ({"samples_ms": "1"}, "`$.samples_ms`"),
        ({"compile_ms": [None]}, "`$.compile_ms[0]`"),
        ({"tags": ["a", 1]}, "`$.tags[1]`"),
        ({"metrics": {"a": "b"}}, "`$.metrics"),
        ({"metrics": {"a": float("inf")}}, "`$.metrics"),
        ({"versions": {"jax": 1}}, "`$.versions"),
        ({"extra": []}, "`$.extra`"),
        ({"speed": 1}, "unknown field `speed`"),
    ],
)
def test_other_types_are_refused_by_name(fields, words):
    with pytest.raises(FormatError) as error:
        portable_result(**{"case": "a", **fields})
    assert words in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        *("null", "[]", '"case"', '{"status": "ok"}', "{", '{"case": "\\ud800"}'),
        *('{"case": "a", "extra": {"b": NaN}}', '{"case": "a", "extra": {"b": 1e400}}'),
        '{"case": "a", "extra": ' + '{"a": ' * 100_000,
    ],
)
def test_what_is_not_a_result_is_refused(text):
    with pytest.raises(FormatError):
        decoded(text)


@pytest.mark.parametrize("speed", [{"latency_ms": 1.0}, {"samples_ms": ((1.0,),)}])
def test_only_a_right_answer_has_a_speed(speed):
    assert portable_result(case="a", **speed).status == "ok"
    with pytest.raises(FormatError, match="wrong_output result must not have a latency"):
        portable_result(case="a", status="wrong_output", **speed)
    with pytest.raises(ValueError, match="wrong_output result must not have a latency"):
        PortableResult(case="a", status="wrong_output", **speed)


@pytest.fixture
def results_file(tmp_path, make_trial, finished):
    path = tmp_path / "results.json"
    write_results(path, make_trial, finished)
    return path


def test_results_files_are_read_with_all_that_formats_need(results_file):
    contents = results_files.read(results_file)
    results = contents.results
    assert not contents.refused
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
    assert len({result.identity for result in results}) == len(results)


def test_a_file_with_a_record_of_another_shape_is_refused_whole(results_file):
    document = json.loads(results_file.read_text())
    document["benchmarks"][1]["status"] = "splendid"
    results_file.write_text(json.dumps(document))
    contents = results_files.read(results_file)
    assert contents.results == ()
    [sentence] = contents.refused
    assert str(results_file) in sentence
    assert "'splendid'" in sentence
    assert "$.benchmarks[1].status" in sentence


def test_a_result_whose_samples_allow_no_estimate_costs_only_itself(results_file):
    due = results_files.read(results_file).results
    document = json.loads(results_file.read_text())
    [metrics] = document["benchmarks"][1]["metrics"].values()
    metrics["processes"][0]["blocks"][0]["latencies_ms"][0] = 0.0
    results_file.write_text(json.dumps(document))
    contents = results_files.read(results_file)
    assert contents.results == (due[0], *due[2:])
    assert contents.refused == (f"{results_file}: $.benchmarks[1]: a sample is zero or negative",)


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "other.json"
    path.write_text("{}")
    assert "is not a results file" in results_files.read(path).refused[0]
    assert "does not exist" in results_files.read(tmp_path / "none.json").refused[0]
