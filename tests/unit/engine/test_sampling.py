"""The timed loop, with a backend that only counts."""

import gc
import itertools
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from comparative_benchmark.backends.api import DeviceTimer
from comparative_benchmark.engine.worker import sampling
from comparative_benchmark.engine.worker.executor import Executor
from comparative_benchmark.engine.worker.sampling import measure_block, with_device_times
from openxla.benchmark.devices import HOST_CPU


class FakeTimer(DeviceTimer):
    """Writes its marks into the backend's events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int]] = []
        self.reserved = 0

    def reserve(self, executions: int) -> None:
        self.reserved = executions
        self.events.append(("reserve", executions))

    def start(self) -> None:
        self.events.append(("start", 0))

    def stop(self) -> None:
        self.events.append(("stop", 0))

    def elapsed_ms(self) -> list[float]:
        return [0.5] * sum(name == "stop" for name, _ in self.events)


class FakeBackend:
    """Hands out 1, 2, 3 ... as outputs."""

    def __init__(self, timer: FakeTimer | None = None, fail_at: int = 0) -> None:
        self.timer = timer
        self.fail_at = fail_at
        self.events: list[tuple[str, int]] = timer.events if timer else []
        self.dispatched = 0
        self.collecting: set[bool] = set()

    def dispatch(self) -> int:
        self.dispatched += 1
        self.events.append(("dispatch", self.dispatched))
        self.collecting.add(gc.isenabled())
        if self.dispatched == self.fail_at:
            raise RuntimeError("device lost")
        return self.dispatched

    def synchronize(self, outputs: int) -> None:
        self.events.append(("synchronize", outputs))

    def device_timer(self) -> FakeTimer | None:
        return self.timer

    def retain(self, outputs: int) -> int:
        return outputs


class Overwriting(FakeBackend):
    """Replays a program that writes its output to the same place each time."""

    def __init__(self, timer: FakeTimer) -> None:
        super().__init__(timer)
        self.place = [0]

    def dispatch(self) -> list[int]:
        self.place[0] = super().dispatch()
        return self.place

    def synchronize(self, outputs: list[int]) -> None:
        super().synchronize(outputs[0])

    def retain(self, outputs: list[int]) -> list[int]:
        return list(outputs)


@pytest.fixture(params=[True, False], ids=["collecting", "not collecting"])
def collecting(request):
    """The garbage collector, on or off, as found before the block."""
    before = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("make_timer", [FakeTimer, lambda: None], ids=["timer", "no timer"])
@pytest.mark.parametrize("iterations", [1, 7])
def test_each_iteration_is_one_dispatch_and_one_synchronisation_of_its_outputs(
    iterations: int, make_timer: Callable[[], FakeTimer | None]
):
    backend = FakeBackend(make_timer())
    block = measure_block(backend, iterations)
    assert backend.events == [
        (event, index)
        for index in range(1, iterations + 1)
        for event in ("dispatch", "synchronize")
    ]
    assert block.outputs == iterations
    assert len(block.latencies_ms) == len(block.dispatch_ms) == iterations


def test_outputs_are_freed_before_the_clock_starts(monkeypatch):
    events = []

    class Outputs:
        def __del__(self):
            events.append("freed")

    class Allocating(FakeBackend):
        def dispatch(self):
            events.append("dispatch")
            return Outputs()

        def synchronize(self, outputs):
            pass

    ticks = itertools.count()

    def clock():
        events.append("clock")
        return next(ticks)

    monkeypatch.setattr(sampling, "_CLOCK", clock)
    block = measure_block(Allocating(), 3)
    # The last ones are kept, to be verified.
    assert " ".join(events).count("clock freed clock dispatch") == 2
    assert isinstance(block.outputs, Outputs)


def test_a_model_that_puts_another_clock_into_time_is_not_timed_by_it(monkeypatch):
    monkeypatch.setattr(time, "perf_counter_ns", time.perf_counter_ns)  # put back afterwards

    class Cheating(FakeBackend):
        def dispatch(self):
            time.perf_counter_ns = lambda: 0
            return super().dispatch()

    assert min(measure_block(Cheating(), 3).latencies_ms) > 0


def test_a_refresh_comes_after_the_conditions_are_read_and_is_not_timed(monkeypatch):
    backend, take = FakeBackend(), sampling.conditions.take

    def noted(**arguments):
        backend.events.append(("conditions", 0))
        return take(**arguments)

    monkeypatch.setattr(sampling.conditions, "take", noted)
    block = measure_block(backend, 2, refresh=True)
    names = [name for name, _ in backend.events]
    assert names == ["conditions", *["dispatch", "synchronize"] * 3, "conditions"]
    assert len(block.latencies_ms) == 2


def test_dispatch_is_a_part_of_latency():
    block = measure_block(FakeBackend(), 50)
    assert all(
        0 <= dispatch <= latency
        for dispatch, latency in zip(block.dispatch_ms, block.latencies_ms, strict=True)
    )
    assert sum(block.latencies_ms) <= block.wall_ms
    assert block.cpu_ms >= 0


def test_the_collector_is_off_inside_and_as_before_afterwards(collecting):
    backend = FakeBackend()
    measure_block(backend, 3)
    assert backend.collecting == {False}
    assert gc.isenabled() is collecting


def test_the_collector_is_as_before_after_an_exception(collecting):
    backend = FakeBackend(fail_at=2)
    with pytest.raises(RuntimeError, match="device lost"):
        measure_block(backend, 5)
    assert backend.dispatched == 2
    assert gc.isenabled() is collecting


@pytest.mark.parametrize("iterations", [1, 3, 50])
def test_the_device_is_timed_in_iterations_of_its_own_after_the_timed_ones(iterations):
    timer = FakeTimer()
    backend = FakeBackend(timer)
    block = measure_block(backend, iterations)
    assert {name for name, _ in timer.events} == {"dispatch", "synchronize"}
    timed = len(timer.events)
    found = with_device_times(backend, block)
    extra = min(iterations, sampling.DEVICE_ITERATIONS)
    marks = ["start", "dispatch", "stop", "synchronize"] * extra
    assert [name for name, _ in timer.events[timed:]] == ["reserve", *marks]
    assert timer.reserved == extra
    assert found.device_ms == [0.5] * extra
    assert found.latencies_ms == block.latencies_ms
    assert (found.cpu_ms, found.wall_ms) == (block.cpu_ms, block.wall_ms)


def test_the_outputs_are_those_of_the_last_timed_iteration():
    backend = FakeBackend(FakeTimer())
    assert with_device_times(backend, measure_block(backend, 3)).outputs == 3
    assert backend.dispatched == 6
    backend = Overwriting(FakeTimer())
    assert with_device_times(backend, measure_block(backend, 3)).outputs == [3]
    assert backend.place == [6]


def test_the_collector_is_off_while_the_device_is_timed(collecting):
    backend = FakeBackend(FakeTimer())
    block = measure_block(backend, 2)
    backend.collecting.clear()
    with_device_times(backend, block)
    assert backend.collecting == {False}
    assert gc.isenabled() is collecting


def test_without_a_device_clock_there_are_no_device_times():
    backend = FakeBackend()
    block = measure_block(backend, 3)
    assert with_device_times(backend, block) is block
    assert block.device_ms == []
    assert backend.dispatched == 3


@pytest.mark.parametrize("asked", [True, False])
def test_a_worker_verifies_what_was_timed(asked):
    executor = Executor(announce=lambda _: None)
    backend = Overwriting(FakeTimer())
    backend.context = SimpleNamespace(threads=1, device=HOST_CPU)
    executor._backend = backend
    block = executor._measure(iterations=4, device_times=asked)["block"]
    assert executor._last_outputs == [4]
    assert len(block["latencies_ms"]) == 4
    assert len(block["device_ms"]) == (4 if asked else 0)
