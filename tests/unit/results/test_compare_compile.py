"""Results without latencies: compile times against compile times."""

import copy
import json
import math

import jsonschema
import numpy as np
import pytest
from results_support import completed
from test_compare import (
    code,
    compare_documents,
    compare_to_baseline,
    document,
    metrics,
    one,
    record,
)

from comparative_benchmark.analysis.stats.analysis import Verdict
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.results.comparing.compare import Fate, summarize_comparisons
from comparative_benchmark.results.results_file import SCHEMA_FILE, ResultsFileError, encode
from comparative_benchmark.terminal.compare_views import HEADINGS, summary_line, table_rows


def times(cold, **changes):
    level = {"compile": {"cold_ms": cold, "warm_ms": []}, "stop_reason": "compile_only"}
    return record(level={**level, **changes.pop("level", {})}, **changes)


def compiling(seed=0, *, scale=1.0, count=6, **changes):
    random = np.random.default_rng(seed)
    cold = scale * 800 * (1 + 0.005 * random.standard_normal(count))
    return times(cold.tolist(), **changes)


@pytest.mark.parametrize(
    ("scale", "expected", "exits"),
    [(1.2, Verdict.SLOWER, 2), (0.8, Verdict.FASTER, 0), (1.0, Verdict.SAME, 0)],
)
def test_cold_compile_times_have_a_ratio_and_a_verdict(scale, expected, exits):
    before, after = document(compiling()), document(compiling(1, scale=scale))
    found = one(before, after)
    assert found.verdict is expected
    assert found.quantity == "cold compile"
    assert found.ratio.estimate == pytest.approx(scale, rel=0.02)
    assert found.ratio.processes == 6
    assert found.baseline_ms.estimate == pytest.approx(800, rel=0.02)
    assert code(before, after) == exits


def test_three_percent_of_compile_time_are_below_the_threshold_and_of_latency_are_not():
    assert one(document(compiling()), document(compiling(1, scale=1.03))).verdict in (
        Verdict.SAME,
        Verdict.UNCLEAR,
    )
    slower = document(record(level=metrics(1, scale=1.03)))
    assert one(document(record()), slower).verdict is Verdict.SLOWER


def test_a_larger_threshold_of_the_user_holds_for_compile_times_too():
    sides = document(compiling()), document(compiling(1, scale=1.2))
    (found,) = compare_documents(*sides, threshold=0.3)
    assert found.verdict is Verdict.SAME


def test_a_verdict_needs_three_processes():
    found = one(document(compiling(count=2)), document(compiling(1, scale=2.0, count=2)))
    assert found.verdict is Verdict.UNCLEAR
    assert "2 processes; a verdict needs at least 3" in found.reason


def test_an_unchanged_program_can_well_compile_slower():
    same = {"level": {"program": {"artifact_sha256": "a" * 64}}}
    sides = [compiling(), compiling(1, scale=1.2)]
    for side in sides:
        side["metrics"]["framework_level"] |= same["level"]
        side["versions"] = {"jaxlib": "1"}
    assert one(*map(document, sides)).verdict is Verdict.SLOWER


def test_compile_times_against_latencies_are_incomparable():
    for sides in ((compiling(), record()), (record(), compiling())):
        found = one(*map(document, sides))
        assert found.fate is Fate.INCOMPARABLE
        assert "different measurements:" in found.reason
        assert "cold compile" in found.reason


def test_what_has_nothing_to_compile_is_not_counted():
    eager = document(times([]), compiling(workload={"digest": "w2"}))
    found = compare_documents(eager, copy.deepcopy(eager))
    assert [item.fate for item in found] == [Fate.UNSUPPORTED, Fate.COMPARED]
    assert summarize_comparisons(found).cases == 1
    assert one(document(times([None])), document(compiling())).fate is Fate.INCOMPARABLE


BAD = {"one": [5.0], "zero": [0.0, 1.0, 2.0], "null": [None, 1.0, 2.0]}


@pytest.mark.parametrize("cold", BAD.values(), ids=BAD)
def test_bad_compile_times_have_a_reason_and_no_ratio(cold):
    for sides in ((compiling(), times(cold)), (times(cold), compiling())):
        found = one(*map(document, sides))
        assert found.fate is Fate.INCOMPARABLE
        assert found.verdict is Verdict.INCOMPARABLE
        assert "cold compile times: " in found.reason
        assert found.ratio is None


REFUSED = ([math.nan, 1.0], ["1"], [True], [10**400], 7.0)


@pytest.mark.parametrize("cold", REFUSED, ids=str)
def test_compile_times_that_are_not_times_are_refused(cold):
    with pytest.raises(ResultsFileError, match=r"cold_ms|NaN"):
        completed(document(times(cold)))


@pytest.mark.parametrize("odd", [None, [], {"warm_ms": [1.0]}, {"cold_ms": {}}])
def test_compile_times_of_another_shape_are_refused(odd):
    bad = document(record(level={"stop_reason": "compile_only", "compile": odd}))
    with pytest.raises(ResultsFileError, match="compile"):
        completed(bad)


def test_latencies_and_compile_times_of_one_case_stand_next_to_each_other():
    before = document(record(), {**compiling(), "run_id": "c"})
    after = document(
        record(level=metrics(1, scale=2.0)), {**compiling(1, scale=0.5), "run_id": "c"}
    )
    found = compare_documents(before, after)
    assert [item.quantity for item in found] == ["latency", "cold compile"]
    summary = summarize_comparisons(found)
    assert (summary.passed, summary.compiled) == (2, 1)
    assert summary.geomean == pytest.approx(2, rel=0.01)
    assert summary.compile_geomean == pytest.approx(0.5, rel=0.02)
    assert summary_line(summary) == (
        "speed-up 0.5000 (0.4994-0.5005), geomean over 1 of 2 cases, "
        "speed-up of cold compiles 2.00 (1.99-2.01), geomean over 1 of 2 cases, "
        "1 faster, 1 slower"
    )
    measured = HEADINGS.index("measured")
    assert [row[measured] for row in table_rows(found)] == ["latency", "cold compile"]


def test_a_baseline_is_of_the_same_measurement():
    sides = [compiling(), compiling(1, scale=1.5), record(), record(level=metrics(1))]
    for side in sides[2:]:
        side["run_id"] = "s"
    for side in (sides[0], sides[2]):
        side["definition"].update(backend="pt_inductor", compiler="inductor")
    found = compare_to_baseline(sides, "pt_inductor:inductor")
    assert [(item.quantity, item.fate) for item in found] == [
        ("cold compile", Fate.COMPARED),
        ("latency", Fate.COMPARED),
    ]


def test_the_schema_takes_a_compile_only_record_and_no_other_without_samples(make_trial, finished):
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    schema["$ref"] = "#/$defs/Result"
    validator = jsonschema.Draft202012Validator(schema)
    whole = json.loads(encode(to_result(make_trial(), finished(), run_id="r")))
    validator.validate(whole)
    level = whole["metrics"]["framework_level"]
    for name in [key for key in level if "latenc" in key]:
        del level[name]
    assert not validator.is_valid(whole)
    level |= {"stop_reason": "compile_only", "compile": {"cold_ms": [1.5], "warm_ms": []}}
    validator.validate(whole)
    for change in ({"compile": {"cold_ms": ["1"]}}, {"latencies_ms": [1.0]}, {"error": "e"}):
        spoilt = {**whole, "metrics": {"framework_level": {**level, **change}}}
        assert not validator.is_valid(spoilt), change
    for environment, valid in ((None, True), ({"name": "old"}, True), ({}, False), ("old", False)):
        whole["definition"]["environment"] = environment
        assert validator.is_valid(whole) is valid, environment
