"""Results and tables of models that generate."""

import json
import math
import re

import attrs
import jsonschema
import pytest
from rich.console import Console

from comparative_benchmark.analysis.verification.verification import Divergence, Verification
from comparative_benchmark.engine import checks, messages
from comparative_benchmark.engine.messages import Failure, Generation
from comparative_benchmark.engine.recording import generation_metrics, to_result
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.results import results_file
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.outcome import GenerationTimes, ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import Block, Phase, Status
from comparative_benchmark.results.results_file import SCHEMA_FILE
from comparative_benchmark.terminal.console import generation_remarks, generation_table

GREEDY = "models/GPT2_TINY_GREEDY_FP32_JAX_4X16XI32_8XI32/inputs/INPUT_DATA_MODEL_DEFAULT"
RIGHT = Verification(passed=True, relative_rmse=1e-7)
NEAR_TIE = Divergence(sequence=0, step=1, token=3, due_token=4, margin=1e-8, tolerance=1e-5)


@pytest.fixture
def greedy(make_trial):
    """A trial of a model that gives 8 tokens to each of 4 sequences."""
    return make_trial(GREEDY)


def process(latencies, prefill=(), decode=(), **changes):
    times = GenerationTimes(prefill_ms=list(prefill), decode_ms=list(decode), **changes)
    return ProcessRecord(blocks=[Block(round=0, latencies_ms=tuple(latencies))], generation=times)


def case(trial, outcome):
    return Case(result=to_result(trial, outcome, run_id="r"))


def test_other_models_have_none(make_trial, finished):
    assert generation_metrics(make_trial(), finished()) is None
    result = to_result(make_trial(), finished(), run_id="r")
    assert b"generation" not in results_file.encode(result.metrics)


def test_figures_are_means_of_process_medians(greedy):
    outcome = TrialOutcome(
        processes=[
            process([100.0, 110.0, 90.0], [10.0, 12.0, 11.0], [1.0, 1.0, 4.0]),
            process([98.0, 99.0, 102.0], [20.0, 21.0, 22.0], [3.0, 3.0, 3.0]),
        ]
    )
    found = generation_metrics(greedy, outcome)
    assert (found.batch_size, found.prompt_tokens, found.new_tokens) == (4, 16, 8)
    assert found.prefill_ms == pytest.approx(16)
    assert found.decode_ms_per_token == pytest.approx(2)
    assert found.tokens_per_s == pytest.approx(4 * 8 * 1e3 / 99.5)
    assert found.not_measurable is None
    for name in ("prefill_ms", "decode_ms_per_token", "tokens_per_s"):
        limits = getattr(found, f"{name}_interval")
        assert limits.low < getattr(found, name) < limits.high
        assert limits.processes == 2


def test_a_latency_of_any_size_bounds_a_rate_of_any_size(greedy):
    outcome = TrialOutcome(processes=[process([100.0, 110.0]), process([1.0, 1.1])])
    found = generation_metrics(greedy, outcome)
    limits = found.tokens_per_s_interval
    assert 0 < limits.low < 1e-3 * found.tokens_per_s
    assert 1e3 * found.tokens_per_s < limits.high < math.inf


def test_one_process_has_no_interval(greedy):
    found = generation_metrics(greedy, TrialOutcome(processes=[process([2.0, 2.0], [1.0] * 5)]))
    assert found.tokens_per_s == pytest.approx(16_000)
    assert found.prefill_ms == 1
    assert found.decode_ms_per_token is None
    assert found.tokens_per_s_interval is found.prefill_ms_interval is None


def test_parts_that_failed_in_one_process_have_no_figure(greedy):
    outcome = TrialOutcome(
        processes=[process([2.0, 2.0], [1.0] * 5, [1.0] * 5), process([2.0, 2.0], reason="no")]
    )
    found = generation_metrics(greedy, outcome)
    assert found.prefill_ms is None is found.decode_ms_per_token
    assert found.not_measurable == "no"
    assert found.tokens_per_s > 0


def test_a_wrong_answer_has_no_speed(greedy):
    good = process([2.0, 2.0], [1.0] * 5, [1.0] * 5)
    wrong = process([2.0, 2.0], [1.0] * 5, [1.0] * 5)
    wrong.status, wrong.phase, wrong.reason = Status.WRONG_OUTPUT, "verify_rest", "a reason"
    found = generation_metrics(greedy, TrialOutcome(processes=[good, wrong]))
    assert found.tokens_per_s is found.prefill_ms is found.decode_ms_per_token is None
    assert found.processes == ()


def text_of(table):
    console = Console(width=200, record=True)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_the_table_has_a_row_for_each_record_that_generates(greedy, make_trial, finished):
    whole = finished(generation=GenerationTimes(reason="one program"))
    apart = finished(
        generation=GenerationTimes(prefill_ms=[1.5] * 5, decode_ms=[0.25] * 5, verification=RIGHT)
    )
    wrong = finished(generation=None, phase="verify_first_run", reason="a reason")
    wrong.processes[0].status = Status.WRONG_OUTPUT
    records = [case(greedy, outcome) for outcome in (apart, whole, wrong)]
    text = text_of(generation_table([*records, case(make_trial(), finished())]).table)
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines() if "─" not in line]
    heading, first, second, third = rows
    assert heading[3:6] == ["prefill ms", "ms per token", "tokens/s"]
    label = greedy.workload.label
    # 32 tokens in 2.5 ms.
    assert first == [label, "jax_xla:xla", "jax", "1.5", "0.25", "12800", "ok"]
    # The label stands once.
    assert second[2:] == ["-", "-", "12800", "ok"]
    assert third[2:] == ["-", "-", "-", "wrong_output"]
    assert generation_remarks([*records, records[1]]) == [
        "prefill and decode cannot be timed separately for jax_xla:xla: one program"
    ]


def test_there_is_no_table_of_nothing(make_trial, finished):
    assert generation_table([case(make_trial(), finished())]) is None
    assert generation_table([]) is None


@pytest.mark.parametrize(
    ("latencies", "iterations"),
    [([], 5), ([1e-9], 50), ([0.1] * 3, 50), ([20.0], 20), ([400.0], 5), ([1e6], 5)],
)
def test_parts_are_run_for_some_tenths_of_a_second(latencies, iterations):
    assert checks.generation_iterations(latencies) == iterations


class Worker:
    """Answers as a worker would, or ends."""

    def __init__(self, answer):
        self._answer = answer

    def call(self, command, **arguments):
        assert command is Generation
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


ANSWER = messages.converted(
    {
        "type": "generation",
        "files": [
            {"file": "output_0.npy", "shape": [1], "dtype": "i32"},
            {"file": "output_1.npy", "shape": [1], "dtype": "f32"},
        ],
        "times": {"prefill_ms": [1.0], "decode_ms": [0.5, 0.5]},
        "phases": {"generation": {"ms": 2.0, "host_memory_peak_bytes": None}},
    },
    Generation,
)


def test_times_are_taken_from_a_worker_whose_output_is_right(tmp_path):
    judged = []

    def judge(files):
        judged.extend(files)
        return RIGHT

    found, ended = checks.take_generation_times(Worker(ANSWER), tmp_path, [1.0], judge)
    assert ended is None
    assert (found.prefill_ms, found.decode_ms, found.reason) == ([1.0], [0.5, 0.5], None)
    assert judged == [tmp_path / "output_0.npy", tmp_path / "output_1.npy"]
    assert found.phases == {"generation": Phase(ms=2.0, host_memory_peak_bytes=None)}


def test_times_of_a_wrong_output_are_not_taken(tmp_path):
    wrong = Verification(passed=False, reason="sequence 0, step 1: wrong")
    found, ended = checks.take_generation_times(Worker(ANSWER), tmp_path, [1.0], lambda _: wrong)
    assert ended is None
    assert found.prefill_ms == found.decode_ms == []
    assert "separately: sequence 0, step 1: wrong" in found.reason


def test_how_a_worker_ended_is_reported_with_its_reason(tmp_path):
    for status, reason in (
        (Status.UNSUPPORTED, "one program"),
        (Status.FAILED, "failed: UnsupportedError: one program"),
    ):
        failure = SessionEnded.by(
            Failure(
                id=1,
                kind=status.value,
                phase="generation_compile",
                message="UnsupportedError: one program",
                explanation="one program",
            )
        )
        found, ended = checks.take_generation_times(
            Worker(failure), tmp_path, [1.0], lambda _: RIGHT
        )
        assert ended is failure
        assert found.reason == reason


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    parts = {name: schema[name] for name in ("$schema", "$defs")}
    return jsonschema.Draft202012Validator({**parts, "$ref": "#/$defs/Generation"})


def generation_of(greedy):
    times = GenerationTimes(
        prefill_ms=[1.5] * 5,
        decode_ms=[0.25] * 5,
        verification=attrs.evolve(RIGHT, divergences=(NEAR_TIE,), tokens_fed="own"),
    )
    processes = [process([2.5, 2.0]), process([2.0, 3.0])]
    for item in processes:
        item.generation = times
    return generation_metrics(greedy, TrialOutcome(processes=processes))


CHANGES = {
    "tokens_per_s": [0, "fast"],
    "prefill_ms": [-1.0],
    "new_tokens": [0, 1.5],
    "not_measurable": [5],
    "prefill_ms_interval": [{"low": 1.0}, 1.0],
    "processes": [{}, [{"prefill_ms": [1.0]}], [{"prefill_ms": [0], "decode_ms": []}]],
    "verification": [{"reason": None}, {"passed": "yes"}],
}


def test_the_schema_takes_what_is_written(validator, greedy):
    found = json.loads(results_file.encode(generation_of(greedy)))
    assert found["verification"]["divergences"][0]["due_token"] == 4
    validator.validate(found)


@pytest.mark.parametrize(("name", "value"), [(n, v) for n in CHANGES for v in CHANGES[n]])
def test_the_schema_refuses_other_values(validator, greedy, name, value):
    found = json.loads(results_file.encode(generation_of(greedy)))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**found, name: value})


@pytest.mark.parametrize("name", ["tokens_per_s", "prefill_ms", "not_measurable", "processes"])
def test_the_schema_asks_for_what_readers_rely_on(validator, greedy, name):
    found = json.loads(results_file.encode(generation_of(greedy)))
    del found[name]
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(found)
