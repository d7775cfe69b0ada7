"""Models that misbehave affect only their own trial."""

import json
from pathlib import Path

import jsonschema
import pytest
from cbs_test_plugin.suite import MODELS
from tests_support import processes_of, run_cbs

from comparative_benchmark.results.results_file import SCHEMA_FILE

TOYS = ("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy", "-w", "1", "-iter", "3")
EXPECTED = {
    "TOY_NONE": ("ok", None, ""),
    "TOY_SEGFAULT": ("crashed", "first_run", "SIGSEGV"),
    "TOY_HANG": ("timeout", "first_run", "longer than 2 s"),
    "TOY_MEMORY": ("out_of_memory", "first_run", "limit of 0.5 GiB"),
    "TOY_NO_MEMORY": ("out_of_memory", "first_run", "MemoryError"),
    "TOY_NAN": ("wrong_output", "verify_first_run", "NaN"),
    "TOY_TRANSPOSED": ("wrong_output", "verify_first_run", "relative error"),
    "TOY_CONSTANT": ("wrong_output", "verify_first_run", "relative error"),
    "TOY_LATE_FAULT": ("wrong_output", "verify_last_run", "relative error"),
    "TOY_MEMOISED": ("wrong_output", "verify_second_input", "relative error"),
    "TOY_KNOWS_ADDRESSES": ("wrong_output", "verify_second_input", "relative error"),
    "TOY_ONE_BEHIND": ("wrong_output", "verify_second_input", "relative error"),
    "TOY_STATEFUL": ("wrong_output", "verify_first_input_again", "relative error"),
    "TOY_RAISES": ("failed", "first_run", "this model is tired"),
    "TOY_RAISES_IN_INIT": ("failed", "load", "weights are gone"),
    "TOY_NO_ARRAY": ("failed", "outputs", "expected an array of numbers"),
    "TOY_ARITY": ("failed", "load", "does not accept the inputs from preprocess (1 given)"),
    "TOY_EXIT_CODE": ("crashed", "first_run", "exit code 7"),
    "TOY_FLOODS": ("ok", None, ""),
    "TOY_PRINTS_FOR_EVER": ("failed", "first_run", "printed more than 64 MiB"),
    "TOY_ORPHANS": ("ok", None, ""),
    "TOY_BUSY": ("ok", None, ""),
    "TOY_DRIFTS": ("ok", None, ""),  # counts are fixed here, so trends are not tested
    "TOY_KEEPS_PIPES": ("crashed", "first_run", "SIGABRT"),
    "TOY_NO_CREATE_MODEL": ("failed", "load", "create_model"),
    "TOY_NO_MODULE": ("failed", "import", "nowhere"),
}


@pytest.fixture(scope="module")
def zoo(tmp_path_factory, environment):
    """A run of all models but two. A second run, with a short deadline, adds these two."""
    directory = tmp_path_factory.mktemp("zoo")
    marked = {**environment, "CBS_TEST_MARKER": str(directory)}
    briefly = ("TOY_HANG", "TOY_BUSY")
    others = "|".join(name for name in EXPECTED if name not in briefly)
    run = run_cbs(
        *(*TOYS, "-name", f"models/({others})/.+", "--memory-limit", "0.5G"),
        directory=directory,
        environment=marked,
    )
    run_cbs(
        *(*TOYS, "-name", f"models/({'|'.join(briefly)})/.+", "--deadline", "first_run=2"),
        directory=directory,
        environment=marked,
    )
    return run


@pytest.mark.parametrize("model", EXPECTED)
def test_each_fault_gets_its_status(zoo, model):
    status, phase, reason = EXPECTED[model]
    [record] = [r for r in zoo.document["benchmarks"] if r["definition"]["model"] == model]
    assert record["status"] == status, record.get("reason")
    assert record.get("phase") == phase
    assert reason in (record.get("reason") or "")


def test_every_case_of_the_suite_is_expected(zoo):
    assert {model.name for model in MODELS} == set(EXPECTED)
    assert {r["definition"]["model"] for r in zoo.document["benchmarks"]} == set(EXPECTED)


def test_wrong_output_decides_the_exit_code(zoo):
    assert zoo.code == 2, zoo.err


def test_only_good_results_have_a_speed(zoo):
    for record in zoo.document["benchmarks"]:
        metrics = record["metrics"]["framework_level"]
        assert ("median_latency_ms" in metrics) == (record["status"] == "ok")
        assert ("error" in metrics) == (record["status"] != "ok")


def test_no_process_is_left(zoo):
    assert processes_of(str(zoo.output.parent)) == []


def test_what_a_model_prints_is_in_its_log_and_not_in_the_results(zoo):
    [record] = [r for r in zoo.document["benchmarks"] if r["definition"]["model"] == "TOY_FLOODS"]
    assert Path(record["log_file"]).stat().st_size > 5_000_000
    assert "xxxx" not in zoo.out + zoo.err


def test_of_a_log_that_grows_without_end_the_beginning_is_kept(zoo):
    named = "TOY_PRINTS_FOR_EVER"
    [record] = [r for r in zoo.document["benchmarks"] if r["definition"]["model"] == named]
    assert 0 < Path(record["log_file"]).stat().st_size <= 2**20


def test_failures_say_what_to_type_next(zoo):
    assert "again: cbs run --backend test_numpy:direct -name models/TOY_RAISES/" in zoo.out


def test_traceback_comes_home_whole(zoo):
    [record] = [r for r in zoo.document["benchmarks"] if r["definition"]["model"] == "TOY_RAISES"]
    assert "model.py" in record["traceback"]
    assert "ValueError: this model is tired" in record["traceback"]


def test_document_follows_the_published_schema(zoo):
    jsonschema.validate(zoo.document, json.loads(SCHEMA_FILE.read_text()))


@pytest.mark.parametrize(
    ("model", "status"), [("TOY_RAISES", "failed"), ("TOY_SEGFAULT", "crashed")]
)
def test_a_model_that_can_not_even_make_its_truth_is_reported_as_such(
    cbs_run, tmp_path, model, status
):
    # Alone on a fresh root, a bad model must make the truth itself.
    run = cbs_run(*TOYS, "-name", f"models/{model}/.+", "--root-dir", str(tmp_path / "root"))
    [record] = run.document["benchmarks"]
    assert (record["status"], record["phase"]) == (status, "reference")
    assert run.code == 1


def test_a_model_whose_truth_holds_nan_is_judged_by_position(cbs_run, tmp_path):
    run = cbs_run(*TOYS, "-name", "models/TOY_NAN/.+", "--root-dir", str(tmp_path / "root"))
    [record] = run.document["benchmarks"]
    assert record["status"] == "ok"
