"""Runs on inputs that a program has not seen: as many as it takes, or the reason for none."""

import time

import ml_dtypes
import numpy as np
import pytest

from comparative_benchmark.analysis.verification.plausibility import is_machine_slow
from comparative_benchmark.engine.worker.executor import Executor, _rotated
from comparative_benchmark.engine.worker.sampling import fresh_run


class Fake:
    """A backend that notes its inputs, and may refuse them."""

    def __init__(self, refuses=None):
        self.inputs, self.refuses = [], refuses

    def replace_inputs(self, inputs):
        if isinstance(self.refuses, Exception) and len(self.inputs) == 0:
            self.inputs.append(None)
            raise self.refuses
        self.inputs.append(inputs)
        return self.refuses is None

    def dispatch(self):
        return self.inputs[-1]

    def synchronize(self, outputs):
        pass

    def complete(self, outputs):
        return outputs

    def fetch(self, outputs):
        return outputs


@pytest.fixture
def run(tmp_path):
    def run(backend, values, enough_ms=1e9):
        np.save(tmp_path / "input_0.npy", values)
        executor = Executor(announce=lambda _: None)
        executor._backend = backend
        paths = [str(tmp_path / "input_0.npy")]
        return executor._fresh_runs(inputs=paths, enough_ms=enough_ms, restored=paths)

    return run


def test_one_short_run_is_enough_and_the_inputs_come_back(run):
    backend = Fake()
    values = np.arange(12).reshape(3, 4)
    answer = run(backend, values)
    assert len(answer["runs_ms"]) == 1
    assert answer["seen_ms"] == []
    assert answer["without"] is None
    (new,), (restored,) = backend.inputs
    assert not np.array_equal(new, values)
    np.testing.assert_array_equal(restored, values)


def test_every_run_gets_another_input(run):
    backend = Fake()
    answer = run(backend, np.arange(12).reshape(3, 4), enough_ms=-1.0)
    seen = {inputs[0].tobytes() for inputs in backend.inputs}
    assert len(seen) == len(answer["runs_ms"]) + 1 > 5
    # Each run that is too long is followed by one on the same inputs.
    assert len(answer["seen_ms"]) == len(answer["runs_ms"])


@pytest.mark.parametrize(
    ("backend", "values", "reason"),
    [
        (Fake(ValueError("ids are sorted")), np.arange(12), "ValueError: ids are sorted"),
        (Fake(), np.zeros((3, 4)), "rotating the inputs does not change them"),
        (Fake(), np.full((2, 1), 7), "rotating the inputs does not change them"),
        (Fake(), np.float32(1), "rotating the inputs does not change them"),
    ],
)
def test_without_any_run_there_is_a_reason(run, backend, values, reason):
    answer = run(backend, values)
    assert answer["runs_ms"] == []
    assert answer["without"] == reason
    assert len(answer["seen_ms"]) == 3


@pytest.mark.parametrize("kind", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_equal_numbers_become_smaller(kind):
    values = np.full((2, 1), 3.0, kind)
    moved = {float(_rotated(values, places)[0, 0]) for places in range(1, 21)}
    assert len(moved) == 20
    assert 2 < min(moved) < max(moved) < 3
    assert _rotated(values, 1).dtype == kind


def test_a_single_column_is_rotated():
    values = np.arange(5.0).reshape(5, 1)
    assert _rotated(values, 2)[:, 0].tolist() == [3, 4, 0, 1, 2]
    ids = np.arange(6).reshape(2, 3)
    assert len({_rotated(ids, places).tobytes() for places in range(6)}) == 6


class Keeper(Fake):
    """Computes once for each input, when its outputs are fetched, and keeps them."""

    def __init__(self):
        super().__init__()
        self.kept = None

    def fetch(self, outputs):
        if self.kept is not outputs:
            time.sleep(0.01)
            self.kept = outputs
        return outputs


def test_a_program_that_keeps_its_outputs_is_fast_on_inputs_that_it_has_seen(run):
    answer = run(Keeper(), np.arange(12).reshape(3, 4), enough_ms=1.0)
    assert min(answer["runs_ms"]) > 5
    assert not is_machine_slow(answer["runs_ms"], answer["seen_ms"])


class Eager(Fake):
    """Computes when its inputs are replaced."""

    def replace_inputs(self, inputs):
        time.sleep(0.01)
        return super().replace_inputs(inputs)


def test_work_while_inputs_are_replaced_counts(run):
    answer = run(Eager(), np.arange(12).reshape(3, 4), enough_ms=1.0)
    assert min(answer["runs_ms"]) > 5
    assert not is_machine_slow(answer["runs_ms"], answer["seen_ms"])


class Copying(Fake):
    """Needs a while to copy its outputs, whatever they are."""

    def fetch(self, outputs):
        time.sleep(0.01)
        return outputs


def test_copying_outputs_does_not_count():
    outputs, values, run_ms = fresh_run(Copying(), [np.arange(12)])
    assert run_ms < 8
    assert outputs[0] is values[0]


class Waiting(Fake):
    """Needs a CPU that is busy: each run after a pause waits for it."""

    def dispatch(self):
        time.sleep(0.01)
        return super().dispatch()


def test_a_program_on_a_busy_machine_is_slow_on_all_inputs(run):
    answer = run(Waiting(), np.arange(12).reshape(3, 4), enough_ms=1.0)
    assert min(answer["runs_ms"]) > 5
    assert is_machine_slow(answer["runs_ms"], answer["seen_ms"])
