"""Allocation of outputs does not change the measured times, by a clock with known costs."""

from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from comparative_benchmark.backends.api import (
    ALLOCATED_ONLY,
    BackendContext,
    BackendFacts,
    OutputRule,
    UnsupportedError,
)
from comparative_benchmark.backends.resident_programs import ResidentBackend
from comparative_benchmark.engine.worker import sampling
from comparative_benchmark.engine.worker.executor import Executor
from openxla.benchmark.devices import HOST_CPU

RUN, ALLOCATE, FREE, POISON, TAKE = 5_000_000, 1_000_000, 10**12, 10**13, 10**14
BOTH = OutputRule(modes=("bound", "allocated"))


class Clock:
    """Stands still unless something is done."""

    def __init__(self):
        self.now = 0

    def perf_counter_ns(self):
        return self.now

    process_time_ns = perf_counter_ns


class Memory:
    """Outputs, whose memory takes very long to be given back."""

    def __init__(self, clock):
        self.clock, self.array = clock, np.zeros(3, np.float32)
        self.shape, self.dtype = self.array.shape, self.array.dtype

    def write(self, values):
        self.clock.now += POISON
        self.array[...] = values

    def copy_to(self, target):
        target[...] = self.array

    def __del__(self):
        self.clock.now += FREE


class Doubling:
    """A program of known cost: twice its input."""

    def __init__(self, clock):
        self.clock = clock

    def inputs(self):
        return [Memory(self.clock)]

    outputs = inputs

    def _run(self, given, made):
        self.clock.now += RUN
        made[0].array[...] = given[0].array * 2
        return made

    def bind(self, inputs, outputs):
        return lambda: self._run(inputs, outputs)

    def bind_inputs(self, inputs):
        def run():
            self.clock.now += ALLOCATE
            return self._run(inputs, [Memory(self.clock)])

        return run

    def take(self, allocated, outputs):
        self.clock.now += TAKE
        outputs[0].array[...] = allocated[0].array


class Backend(ResidentBackend):
    """Runs `Doubling`."""

    rule: OutputRule | None = BOTH
    clock: Clock

    def output_rule(self):
        return self.rule

    def compile(self):
        self._bind([Doubling(self.clock)], None)

    def facts(self):
        return BackendFacts()


def context(tmp_path, outputs):
    return {
        "compiler": "c",
        "options": [],
        "device": attrs.asdict(HOST_CPU),
        "threads": 1,
        "work_dir": str(tmp_path),
        "outputs": outputs,
    }


def load(tmp_path, outputs):
    np.save(tmp_path / "input_0.npy", np.arange(3, dtype=np.float32))
    executor = Executor(announce=lambda _: None)
    answer = executor.handle(
        {
            "command": "load",
            "id": 0,
            "arguments": {
                "implementation": f"{__name__}:Backend",
                "context": context(tmp_path, outputs),
                "module_path": "cbs_test_plugin.model",
                "parameters": {"size": 3},
                "inputs": [str(tmp_path / "input_0.npy")],
            },
        }
    )
    return executor, answer


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(Backend, "clock", made, raising=False)
    # No model is needed, nor could this one be made.
    monkeypatch.setattr(Executor, "_model", lambda *_: None)
    return made


@pytest.mark.parametrize(
    ("asked", "done", "cost"),
    [(None, "bound", RUN), ("bound", "bound", RUN), ("allocated", "allocated", RUN + ALLOCATE)],
)
@pytest.mark.parametrize("refresh", [False, True])
def test_a_sample_is_the_run_and_what_it_allocates_and_nothing_else(
    clock, tmp_path, monkeypatch, asked, done, cost, refresh
):
    executor, loaded = load(tmp_path, asked)
    assert loaded["type"] != "error", loaded
    executor.handle({"command": "compile", "id": 0, "arguments": {}})
    monkeypatch.setattr(sampling, "_CLOCK", clock.perf_counter_ns)
    monkeypatch.setattr(sampling, "_CPU_CLOCK", clock.process_time_ns)
    for _ in range(2):
        measured = executor._measure(iterations=4, refresh=refresh)["block"]
        assert measured["latencies_ms"] == [cost / 1e6] * 4
        assert measured["dispatch_ms"] == [cost / 1e6] * 4
    told = executor._outputs(directory=str(tmp_path / "out"))
    assert told["facts"]["outputs"] == done
    assert np.load(tmp_path / "out" / told["files"][0]["file"]).tolist() == [0.0, 2.0, 4.0]
    # Costs that must not be in a sample were paid outside it.
    assert clock.now > POISON


@pytest.mark.parametrize(
    ("rule", "asked", "words"),
    [
        (OutputRule(modes=("allocated",), reason=ALLOCATED_ONLY), "bound", ALLOCATED_ONLY),
        (None, "allocated", "does not declare"),
    ],
)
def test_what_a_stack_cannot_do_is_unsupported_with_its_reason(
    clock, tmp_path, monkeypatch, rule, asked, words
):
    monkeypatch.setattr(Backend, "rule", rule)
    _, answer = load(tmp_path, asked)
    assert answer["kind"] == "unsupported"
    assert words in answer["message"]
    assert load(tmp_path, None)[1]["type"] != "error"


def test_a_model_that_generates_has_its_state_in_bound_buffers(tmp_path):
    made = BackendContext.read(context(tmp_path, "allocated"), lambda _: None)
    backend = Backend(made)
    with pytest.raises(UnsupportedError, match="two sets of bound buffers"):
        backend._bind([], SimpleNamespace(steps=1))
