"""The timed loop, with a backend that only counts."""

import gc
from collections.abc import Callable

import pytest

from comparative_benchmark.backend_api import DeviceTimer
from comparative_benchmark.harness.sampling import measure_block


class FakeTimer(DeviceTimer):
    """Counts its marks."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def start(self) -> None:
        self.events.append("start")

    def stop(self) -> None:
        self.events.append("stop")

    def elapsed_ms(self) -> list[float]:
        return [0.5] * self.events.count("stop")


class FakeBackend:
    """Hands out 1, 2, 3 ... as outputs."""

    def __init__(self, timer: FakeTimer | None = None, fail_at: int = 0) -> None:
        self.timer = timer
        self.fail_at = fail_at
        self.events: list[tuple[str, int]] = []
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


def test_the_devices_own_clock_is_started_and_stopped_around_each_dispatch():
    timer = FakeTimer()
    block = measure_block(FakeBackend(timer), 3)
    assert timer.events == ["start", "stop"] * 3
    assert block.device_ms == [0.5, 0.5, 0.5]


def test_without_a_device_clock_there_are_no_device_times():
    assert measure_block(FakeBackend(), 3).device_ms == []
