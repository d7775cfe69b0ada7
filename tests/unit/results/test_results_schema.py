"""The published JSON Schema of results files."""

import json

import jsonschema
import pytest

from comparative_benchmark.analysis.machine.host import describe, python_environment
from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import SCHEMA_VERSION, ExecutionEnvironment, Status
from comparative_benchmark.results.results_file import (
    SCHEMA_FILE,
    ResultsFile,
    ResultsFileError,
    converted,
    decode_document,
)

EXAMPLE = "models/EXAMPLE_FP32_PT_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    validator_class = jsonschema.validators.validator_for(schema)
    assert validator_class is jsonschema.Draft202012Validator
    validator_class.check_schema(schema)
    return validator_class(schema)


@pytest.fixture(scope="module")
def environment():
    """A run's description of its machine."""
    found = {
        "python_environment": python_environment(),
        "host": describe(threads=2),
        "git_revision": None,
    }
    return converted(found, ExecutionEnvironment)


@pytest.fixture(scope="module")
def written(tmp_path_factory, make_trial, finished, environment):
    """A results file with a record of each status, as the program writes it."""
    file = ResultsFile(tmp_path_factory.mktemp("results") / "results.json")
    run_id = file.start_run(execution_environment=environment, command=["cbs", "run"])
    wrong = Verification(passed=False, reason="output 0 holds NaN or infinity")
    ends = {
        Status.WRONG_OUTPUT: finished(verification=wrong, final_verification=None),
        Status.UNSUPPORTED: TrialOutcome(processes=[ProcessRecord()]),
        Status.CRASHED: finished(
            blocks=[], warmup_latencies_ms=[], verification=None, traceback="T"
        ),
    }
    for status in Status:
        outcome = ends.get(status) or finished()
        [process] = outcome.processes
        if status is not Status.OK:
            process.status, process.phase, process.reason = status, "verify", "a reason"
        file.append(to_result(make_trial(), outcome, run_id=run_id))
    for name, competitor in (
        (EXAMPLE, "pt_inductor:eager"),
        (make_trial().case.name, "iree:llvm-cpu"),
    ):
        trial = make_trial(name, competitor)
        file.append(to_result(trial, finished(), run_id=run_id))
        file.append(to_result(trial, finished(warmup_latencies_ms=[]), run_id=run_id))
    return file.path.read_text(encoding="utf-8")


@pytest.fixture
def document(written):
    """That file's content, to be changed at will."""
    return json.loads(written)


def test_the_schema_says_its_version(validator):
    kinds = validator.schema["$defs"]
    assert kinds["Document"]["properties"]["schema_version"]["enum"] == [SCHEMA_VERSION]
    statuses = kinds["Status"]["enum"]
    assert statuses == [status.value for status in Status]


def test_a_document_with_every_status_is_valid(validator, document):
    assert len({record["status"] for record in document["benchmarks"]}) == len(Status)
    validator.validate(document)


def test_a_document_without_records_is_valid(validator, document):
    validator.validate({**document, "benchmarks": []})


def test_records_are_open_to_further_properties(validator, document):
    record = document["benchmarks"][0]
    for value in (record, record["definition"], record["metrics"]["framework_level"]):
        value["from_the_future"] = {"x": 1}
    validator.validate(document)


REMOVALS = [
    *(
        [key]
        for key in ("schema_version", "trigger", "execution_environment", "runs", "benchmarks")
    ),
    ["trigger", "timestamp"],
    ["execution_environment", "python_environment"],
    ["execution_environment", "host"],
    ["runs", 0, "run_id"],
    *(
        ["benchmarks", 0, key]
        for key in ("run_id", "definition", "status", "metrics", "wall_s", "log_file", "versions")
    ),
    *(
        ["benchmarks", 0, "definition", key]
        for key in (
            *("benchmark_name", "framework", "data_type", "batch_size", "compiler", "device"),
            *("tags", "backend", "level", "options", "model", "model_parameters", "workload"),
        )
    ),
    ["benchmarks", 0, "definition", "workload", "digest"],
    *(
        ["benchmarks", 0, "metrics", "framework_level", key]
        for key in (
            *("latencies_ms", "median_latency_ms", "stddev_latency_ms", "benchmark_iterations"),
            *("compile_time_ms", "phases", "verification", "program"),
        )
    ),
    ["benchmarks", 0, "metrics", "framework_level", "verification", "passed"],
    ["benchmarks", 0, "metrics", "framework_level", "phases", "compile", "ms"],
    ["benchmarks", 2, "phase"],
    ["benchmarks", 2, "reason"],
    ["benchmarks", 2, "metrics", "framework_level", "error"],
]


def at(document, path):
    for step in path:
        document = document[step]
    return document


@pytest.mark.parametrize("path", REMOVALS, ids=lambda path: ".".join(map(str, path)))
def test_a_document_without_a_required_key_is_refused(validator, document, path):
    del at(document, path[:-1])[path[-1]]
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(document)
    with pytest.raises(ResultsFileError, match=r"\$|schema_version|Object"):
        decode_document(json.dumps(document).encode(), "it")


LEVEL = ["benchmarks", 0, "metrics", "framework_level"]
CHANGES = [
    (["schema_version"], 2),
    (["schema_version"], "1"),
    (["runs"], []),
    (["benchmarks"], {}),
    (["trigger", "timestamp"], "yesterday"),
    (["execution_environment", "python_environment"], ["numpy"]),
    (["execution_environment", "host", "threads"], 0),
    (["benchmarks", 0, "status"], "good"),
    (["benchmarks", 0, "status"], "failed"),
    (["benchmarks", 2, "status"], "ok"),
    (["benchmarks", 0, "wall_s"], -1),
    (["benchmarks", 0, "definition", "framework"], "jax"),
    (["benchmarks", 0, "definition", "batch_size"], "1"),
    (["benchmarks", 0, "definition", "tags"], "bert"),
    (["benchmarks", 0, "definition", "model_parameters"], {"shape": [[1]]}),
    (["benchmarks", 0, "definition", "workload", "digest"], "abc"),
    (["benchmarks", 0, "metrics"], {}),
    (["benchmarks", 0, "metrics"], {"other_level": {}}),
    ([*LEVEL, "latencies_ms"], []),
    ([*LEVEL, "latencies_ms"], ["1.0"]),
    ([*LEVEL, "median_latency_ms"], None),
    ([*LEVEL, "compile_time_ms"], -1.0),
    ([*LEVEL, "error"], "failed"),
    ([*LEVEL, "verification"], None),
    ([*LEVEL, "phases", "compile"], -1.0),
    ([*LEVEL, "phases", "compile"], "unknown"),
    ([*LEVEL, "program", "weights"], "folded"),
    (["benchmarks", 2, "metrics", "framework_level", "latencies_ms"], [1.0]),
    (["benchmarks", 2, "reason"], None),
]


@pytest.mark.parametrize(
    ("path", "value"),
    CHANGES,
    ids=lambda item: ".".join(map(str, item)) if isinstance(item, list) else None,
)
def test_a_document_with_a_wrong_value_is_refused(validator, document, path, value):
    at(document, path[:-1])[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(document)
    with pytest.raises(ResultsFileError):
        decode_document(json.dumps(document).encode(), "it")
