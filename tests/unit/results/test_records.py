"""Results of trials: the OpenXLA suite's shape, and more."""

import json

import pytest

from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.results import results_file
from comparative_benchmark.results.record import Phase, Program, Result, Status

OPENXLA_DEFINITION = {
    "benchmark_name": "models/BERT_TINY_FP32_JAX_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT",
    "framework": "ModelFrameworkType.JAX",
    "data_type": "fp32",
    "batch_size": 1,
    "compiler": "xla",
    "device": "host-cpu",
    "tags": ["transformer-encoder", "bert", "batch-1", "tiny", "tiny-zoo"],
}
OPENXLA_METRICS = [
    *(f"{s}_warmup_latency_ms" for s in ("min", "max", "mean", "median", "stddev")),
    *(f"{s}_latency_ms" for s in ("min", "max", "mean", "median", "stddev")),
    *("warmup_iterations", "benchmark_iterations", "compile_time_ms", "input_data_transfer_ms"),
    *("output_data_transfer_ms", "autotuning_enabled", "device_memory_peak_mb"),
]
BAD = [status for status in Status if status not in (Status.OK, Status.UNSTEADY)]


def to_record(*arguments, **named):
    """Returns a result as the file has it."""
    result = to_result(*arguments, **named)
    return json.loads(results_file.encode(result))


def test_the_definition_holds_what_the_openxla_suites_readers_read(make_trial, finished):
    record = to_record(make_trial(), finished(), run_id="r")
    assert {key: record["definition"][key] for key in OPENXLA_DEFINITION} == OPENXLA_DEFINITION


def test_the_metrics_hold_what_the_openxla_suites_readers_read(make_trial, finished):
    record = to_record(make_trial(), finished(), run_id="r")
    (metrics,) = record["metrics"].values()
    assert set(OPENXLA_METRICS) <= set(metrics)
    assert "error" not in metrics


@pytest.mark.parametrize(
    ("competitor", "level"),
    [("jax_xla:xla", "framework_level"), ("iree:llvm-cpu", "compiler_level")],
)
def test_metrics_stand_under_the_level_of_the_backend(make_trial, finished, competitor, level):
    record = to_record(make_trial(competitor=competitor), finished(), run_id="r")
    assert list(record["metrics"]) == [level]
    assert record["definition"]["level"] == level


def test_samples_and_summaries_agree(make_trial, finished):
    record = to_record(make_trial(), finished(), run_id="r")
    metrics = record["metrics"]["framework_level"]
    assert metrics["warmup_latencies_ms"] == [9.0, 7.0]
    assert metrics["benchmark_iterations"] == 4
    assert metrics["median_latency_ms"] == 2.5
    assert metrics["warmup_latencies_ms"] == [9.0, 7.0]
    assert metrics["warmup_iterations"] == 2
    assert metrics["mean_warmup_latency_ms"] == 8.0
    assert metrics["cpu_wall_ratio"] == 0.8


def test_compile_time_is_the_sum_of_its_phases(make_trial, finished):
    metrics = to_record(make_trial(), finished(), run_id="r")["metrics"]["framework_level"]
    assert metrics["phases"]["trace"] == "not_measurable"
    assert metrics["compile_time_ms"] == 4.0
    assert metrics["input_data_transfer_ms"] == metrics["output_data_transfer_ms"] == 2.0


def test_a_phase_that_cannot_be_separated_counts_in_the_sum(make_trial, finished):
    phases = {
        name: Phase(ms=ms, host_memory_peak_bytes=None)
        for name, ms in (("trace", 5.0), ("lower", 1.0), ("compile", 3.0))
    }
    program = Program(not_measurable=("trace",))
    record = to_record(make_trial(), finished(phases=phases, program=program), run_id="r")
    metrics = record["metrics"]["framework_level"]
    assert metrics["phases"]["trace"] == "not_measurable"
    assert metrics["compile_time_ms"] == 9.0


def test_phases_come_in_the_order_of_a_trial_and_unknown_ones_last(make_trial, finished):
    phase = Phase(ms=1.0, host_memory_peak_bytes=None)
    phases = dict.fromkeys(("zeta", "d2h", "own", "compile", "import"), phase)
    record = to_record(make_trial(), finished(phases=phases, program=Program()), run_id="r")
    assert list(record["metrics"]["framework_level"]["phases"]) == [
        *("import", "compile", "d2h", "own", "zeta")
    ]


def test_what_is_not_known_is_null_never_a_guess(make_trial, finished):
    outcome = finished(phases={}, program=Program(), host_memory_peak_bytes=None)
    metrics = to_record(make_trial(), outcome, run_id="r")["metrics"]["framework_level"]
    for key in (
        *("compile_time_ms", "input_data_transfer_ms", "output_data_transfer_ms"),
        *("host_memory_peak_mb", "device_memory_peak_mb"),
    ):
        assert metrics[key] is None


def test_a_run_without_warm_up_has_no_warm_up_summary(make_trial, finished):
    metrics = to_record(make_trial(), finished(warmup_latencies_ms=[]), run_id="r")["metrics"]
    assert metrics["framework_level"]["warmup_iterations"] == 0
    assert "mean_warmup_latency_ms" not in metrics["framework_level"]


def test_an_unsteady_trial_keeps_its_samples_and_has_no_speed(make_trial, finished):
    outcome = finished(status=Status.UNSTEADY, phase="warm_up", reason="the second half is slower")
    record = to_record(make_trial(), outcome, run_id="r")
    assert record["status"] == "unsteady"
    assert "the second half is slower" in record["reason"]
    (metrics,) = record["metrics"].values()
    assert metrics["warmup_latencies_ms"] == [9.0, 7.0]
    assert "median_latency_ms" not in metrics


@pytest.mark.parametrize("status", BAD)
def test_a_trial_that_is_not_ok_has_a_reason_and_no_speed(make_trial, finished, status):
    outcome = finished(status=status, phase="verify", reason="it broke", traceback="Traceback ...")
    record = to_record(make_trial(), outcome, run_id="r")
    assert record["status"] == status.value
    assert (record["phase"], record["reason"]) == ("verify", "it broke")
    assert record["traceback"] == "Traceback ..."
    (metrics,) = record["metrics"].values()
    assert metrics["error"] == f"{status.value} in verify: it broke"
    assert not [key for key in metrics if "latenc" in key or "dispatch" in key]


def test_the_key_of_a_record_is_that_of_its_trial(make_trial, finished):
    trial = make_trial(
        "models/EXAMPLE_FP32_PT_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT",
        "pt_inductor:inductor+freezing+max-autotune",
    )
    result = to_result(trial, finished(), run_id="r")
    assert result.key == trial.key
    assert result.definition.compiler == "inductor+freezing+max-autotune"
    assert result.definition.options == ("freezing", "max-autotune")


def test_a_result_is_the_same_after_the_file(make_trial, finished):
    for outcome in (finished(), finished(status=Status.FAILED, phase="load", reason="r")):
        result = to_result(make_trial(), outcome, run_id="r")
        assert results_file.validated(results_file.encode(result), Result, "it") == result
