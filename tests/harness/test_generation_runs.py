"""Whole runs of generating models: judged after near-ties, and measured in parts."""

import json

import jsonschema
import pytest
from cbs_test_plugin.generating_suite import WRONG
from tests_support import run_cbs

from comparative_benchmark.results.results_file import SCHEMA_FILE

SUITE = ("--suite", "cbs_test_plugin.generating_suite", "--backend", "test_numpy")


@pytest.fixture(scope="module")
def run(tmp_path_factory, environment):
    """Every model of the suite, with fixed counts."""
    return run_cbs(
        *(*SUITE, "-name", "models/(TEXT|TWINS)_.+/.+", "-w", "1", "-iter", "3"),
        directory=tmp_path_factory.mktemp("generation"),
        environment=environment,
    )


@pytest.fixture(scope="module")
def records(run):
    """Record by model."""
    return {record["definition"]["model"]: record for record in run.document["benchmarks"]}


def metrics_of(record):
    return record["metrics"]["framework_level"]


def test_the_right_ones_are_ok(records, run):
    for name in ("TEXT_NONE", "TWINS_NONE"):
        assert records[name]["status"] == "ok", run.out + run.err


def test_the_results_are_as_the_schema_says(run):
    jsonschema.validate(run.document, json.loads(SCHEMA_FILE.read_text(encoding="utf-8")))


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_one_is_named_with_its_first_wrong_step(records, fault):
    record = records[f"TEXT_{fault.upper().replace('-', '_')}"]
    assert record["status"] == "wrong_output"
    assert record["phase"] == "verify_first_run"
    assert record["reason"].startswith("sequence ")
    assert metrics_of(record)["generation"]["tokens_per_s"] is None
    assert "latencies_ms" not in metrics_of(record)


def test_near_ties_are_followed_to_the_end(records):
    metrics = metrics_of(records["TWINS_NONE"])
    first, last = metrics["verification"], metrics["final_verification"]
    assert first["tokens_fed"] == "own"
    assert last["tokens_fed"] == "truth"
    assert first["divergences"] == last["divergences"] != []
    assert metrics["phases"]["verification_compile"]["ms"] > 0
    assert "verification_compile" not in metrics_of(records["TEXT_NONE"])["phases"]


def test_what_is_compiled_for_the_verification_is_no_compile_time(records):
    phases = metrics_of(records["TWINS_NONE"])["phases"]
    total = phases["compile"]["ms"]
    assert metrics_of(records["TWINS_NONE"])["compile_time_ms"] == total
    assert total < phases["verification_compile"]["ms"]


@pytest.mark.parametrize(
    ("fault", "fed"), [("LATE_GARBAGE", "its own"), ("IGNORES_WHAT_IT_IS_FED", "the truth's")]
)
def test_a_fault_behind_a_near_tie_is_found(records, fault, fed):
    record = records[f"TWINS_{fault}"]
    assert (record["status"], record["phase"]) == ("wrong_output", "verify_rest")
    assert record["reason"].startswith(f"when fed {fed} tokens: sequence ")


def test_prefill_and_decode_are_measured_apart(records):
    found = metrics_of(records["TEXT_NONE"])["generation"]
    assert found["not_measurable"] is None
    assert (found["batch_size"], found["prompt_tokens"], found["new_tokens"]) == (2, 6, 8)
    assert found["verification"]["passed"]
    [process] = found["processes"]
    # Seven steps follow a prefill, which gives the first of eight tokens.
    assert len(process["decode_ms"]) == 7 * len(process["prefill_ms"]) > 0
    assert min(process["prefill_ms"]) <= found["prefill_ms"] <= max(process["prefill_ms"])
    assert min(process["decode_ms"]) <= found["decode_ms_per_token"] <= max(process["decode_ms"])
    median_ms = metrics_of(records["TEXT_NONE"])["median_latency_ms"]
    assert found["tokens_per_s"] == pytest.approx(2 * 8 * 1e3 / median_ms)


def test_six_tokens_take_longer_to_read_than_one(records):
    found = metrics_of(records["TEXT_NONE"])["generation"]
    assert found["prefill_ms"] > found["decode_ms_per_token"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("NO_PARTS", "cannot call prefill and decode separately"),
        ("PARTS_CRASH", "crashed: the worker exited unexpectedly (killed by SIGABRT)"),
        ("PARTS_WRONG", "wrong output if prefill and decode are called separately: sequence "),
    ],
)
def test_parts_that_can_not_be_measured_cost_nothing_else(records, fault, reason):
    record = records[f"TEXT_{fault}"]
    found = metrics_of(record)["generation"]
    assert record["status"] == "ok", record["reason"]
    assert reason in found["not_measurable"]
    assert found["prefill_ms"] is None is found["decode_ms_per_token"]
    assert found["tokens_per_s"] > 0
    assert len(metrics_of(record)["latencies_ms"]) == 3


def test_a_table_shows_them(run):
    heading = next(line for line in run.out.splitlines() if "tokens/s" in line)
    for text in ("generation", "prefill ms", "ms per token"):
        assert text in heading
    assert "cannot call prefill and decode separately" in run.out


def test_a_race_gives_intervals(cbs_run):
    race = cbs_run(*SUITE, "-name", "models/TEXT_NONE/.+", "--processes", "2", "--precision", "0.5")
    assert race.code == 0, race.out + race.err
    [record] = race.document["benchmarks"]
    found = metrics_of(record)["generation"]
    assert len(found["processes"]) == 2
    for name in ("prefill_ms", "decode_ms_per_token"):
        limits = found[f"{name}_interval"]
        assert limits["low"] <= found[name] <= limits["high"]
        assert (limits["level"], limits["processes"]) == (0.95, 2)


def test_compile_only_runs_are_judged_behind_near_ties_too(cbs_run):
    run = cbs_run(
        *(*SUITE, "-name", "models/TWINS_(NONE|LATE_GARBAGE)/.+"),
        *("--compile-only", "--processes", "1"),
    )
    assert run.statuses["TWINS_NONE test_numpy:direct"] == "ok", run.out + run.err
    assert run.statuses["TWINS_LATE_GARBAGE test_numpy:direct"] == "wrong_output"


def test_in_process_runs_are_judged_the_same(cbs_run):
    run = cbs_run(
        *(*SUITE, "-name", "models/TWINS_(NONE|LATE_GARBAGE)/.+"),
        *("-w", "0", "-iter", "2", "--run-in-process"),
    )
    assert run.statuses["TWINS_NONE test_numpy:direct"] == "ok", run.out + run.err
    assert run.statuses["TWINS_LATE_GARBAGE test_numpy:direct"] == "wrong_output"
