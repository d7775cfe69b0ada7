"""Parts of a training step: their measurement, and their place in results and tables."""

import time
from types import SimpleNamespace

import pytest

from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.backends.api import backends
from comparative_benchmark.backends.model_protocols import StepParts
from comparative_benchmark.engine import checks
from comparative_benchmark.engine.messages import Failure
from comparative_benchmark.engine.recording import to_result, training_metrics
from comparative_benchmark.engine.runner import plan
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.trial import competitors_of
from comparative_benchmark.engine.worker.sampling import measure_step
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import Block, Status, StepTimes
from comparative_benchmark.terminal.console import training_remarks, training_table
from openxla.benchmark import devices
from openxla.benchmark.comparative_suite import training_cases

CPU = next(device for device in devices.ALL_DEVICES if device.name == "host-cpu")
CALLS = StepTimes(how="calls", forward_ms=(1.0, 3.0, 2.0), backward_ms=(4.0,), update_ms=(2.0,))
PROGRAMS = StepTimes(
    how="programs", forward_ms=(1.0,), forward_backward_ms=(3.0,), update_ms=(1.0,)
)


def trial_of(batch):
    case = training_cases.named(f"BERT_TINY_TRAIN_SGD_FP32_JAX_32XI32_BATCH{batch}")
    [found] = plan([case], competitors_of(backends()["jax_xla"], [], "cpu"), CPU).trials
    return found


@pytest.fixture
def trial():
    return trial_of(4)


def outcome(*processes):
    blocks = [Block(round=0, latencies_ms=(8.0, 8.0))]
    right = Verification(passed=True, relative_rmse=1e-7)
    return TrialOutcome(
        processes=[
            ProcessRecord(blocks=blocks, verification=right, final_verification=right, **parts)
            for parts in processes
        ]
    )


def test_parts_run_in_the_order_of_a_step_and_are_waited_for():
    log = []

    def part(name):
        def run():
            log.append(name)
            return name

        return name, run

    parts = StepParts(
        how="calls",
        parts=[part(name) for name in ("forward", "backward", "update")],
        wait=lambda handle: log.append(f"waited for {handle}"),
    )
    times = measure_step(parts, 5)
    assert times.pop("how") == "calls"
    assert {name: len(values) for name, values in times.items()} == {
        "forward_ms": 5,
        "backward_ms": 5,
        "update_ms": 5,
    }
    assert all(value > 0 for values in times.values() for value in values)
    step = [
        text for name in ("forward", "backward", "update") for text in (name, f"waited for {name}")
    ]
    assert log == step * 7  # two of them to warm up


def test_a_part_does_not_pay_for_the_results_of_another():
    class Gradients:
        def __del__(self):
            time.sleep(0.02)

    parts = StepParts(
        how="calls",
        parts=[("forward_backward", Gradients), ("update", lambda: None)],
        wait=lambda _: None,
    )
    times = measure_step(parts, 3)
    assert max(times["forward_backward_ms"] + times["update_ms"]) < 15


def test_calls_and_programs_have_a_share_of_the_optimizer(trial):
    found = training_metrics(trial, outcome({"step_times": CALLS}))
    assert (found.forward_ms, found.backward_ms, found.update_ms) == (2.0, 4.0, 2.0)
    assert found.optimizer_share == pytest.approx(0.25)
    found = training_metrics(trial, outcome({"step_times": PROGRAMS}, {"step_times": PROGRAMS}))
    assert (found.forward_backward_ms, found.backward_ms) == (3.0, None)
    assert found.optimizer_share == pytest.approx(0.25)
    assert len(found.processes) == 2


def test_a_process_without_parts_leaves_none_and_the_rates_stand(trial):
    found = training_metrics(
        trial, outcome({"step_times": PROGRAMS}, {"without_step_times": "no such calls"})
    )
    assert found.optimizer_share is found.forward_ms is None
    assert found.parts_not_measurable == "no such calls"
    assert found.samples_per_s == pytest.approx(500)


def test_a_table_marks_the_share_of_programs_or_gives_the_reason(trial):
    told = []
    for processes in ({"step_times": PROGRAMS}, {"without_step_times": "no such calls"}):
        result = to_result(trial, outcome(processes), run_id="r")
        case = Case(result=result)
        column = next(c for c in training_table([case]).table.columns if c.header == "optimizer")
        told.append(([*column.cells], training_remarks([case])))
    [(share, [of_programs]), (none, [why])] = told
    assert share == ["~25 %"]
    assert "separately compiled programs" in of_programs
    assert none == ["-"]
    assert why == "the parts of a step cannot be timed separately for jax_xla:xla: no such calls"


def test_batches_of_one_network_scale_from_the_smallest():
    cases = [
        Case(result=to_result(trial_of(batch), outcome({"step_times": PROGRAMS}), run_id="r"))
        for batch in (4, 1, 16)
    ]
    column = next(c for c in training_table(cases).table.columns if c.header == "scaling")
    assert [*column.cells] == ["4.00x", "1.00x", "16.00x"]  # steps of one latency
    assert "scaling" not in [c.header for c in training_table(cases[:1]).table.columns]


@pytest.mark.parametrize(
    ("status", "reason"), [(Status.UNSUPPORTED, "no"), (Status.CRASHED, "crashed: no")]
)
def test_what_goes_wrong_with_parts_is_a_reason(status, reason):
    def call(*_, **__):
        raise SessionEnded(status, "step_parts", "no")

    found, ended = checks.take_step_times(SimpleNamespace(call=call), [1.0])
    assert found == reason
    assert ended.status is status


@pytest.mark.parametrize(
    ("end", "lives"),
    [
        (SessionEnded.by(Failure(id=1, kind="failed", phase="step_parts", message="no")), True),
        # The parent ends a worker in these cases.
        (SessionEnded(Status.OUT_OF_MEMORY, "step_parts", "no"), False),
        (SessionEnded(Status.FAILED, "step_parts", "its log is too long"), False),
    ],
)
def test_only_a_worker_that_reports_its_failure_lives(monkeypatch, end, lives):
    monkeypatch.setattr(checks, "take_step_times", lambda *_: ("no", end))
    track = SimpleNamespace(note=lambda **_: None)
    of = SimpleNamespace(
        _judge=SimpleNamespace(trains=True),
        _plan=SimpleNamespace(track=track),
        _session=None,
        _record=ProcessRecord(),
    )
    assert checks.OutputChecks.measure_parts(of) is lives
