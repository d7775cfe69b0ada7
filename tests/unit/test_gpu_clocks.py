"""Clocks of GPUs, from a library that answers as NVML does."""

import pytest

from comparative_benchmark.doctor import checks
from comparative_benchmark.harness import conditions, gpu_clocks
from comparative_benchmark.harness.gpu_clocks import GpuClocks


class Nvml:
    """Answers through pointers; 0 is success, 3 is `not supported`."""

    def __init__(self, *gpus, new=True):
        self._gpus = gpus
        name = "Event" if new else "Throttle"
        setattr(self, f"nvmlDeviceGetCurrentClocks{name}Reasons", self._reasons)

    def nvmlDeviceGetCount_v2(self, count):  # noqa: N802
        count._obj.value = len(self._gpus)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, device):  # noqa: N802
        device._obj.value = index.value + 1  # a null pointer is no handle
        return 0

    def nvmlDeviceGetClockInfo(self, device, kind, mhz):  # noqa: N802
        assert kind == 1
        return self._answer(self._gpus[device.value - 1][0], mhz)

    def _reasons(self, device, bits):
        return self._answer(self._gpus[device.value - 1][1], bits)

    @staticmethod
    def _answer(value, pointer):
        pointer._obj.value = value or 0
        return 3 if value is None else 0


@pytest.mark.parametrize("new", [True, False])
def test_clocks_and_what_holds_them_back(new):
    assert gpu_clocks.read(Nvml((1200, 0x64), (345, 0x1), (None, None), new=new)) == (
        GpuClocks(
            index=0,
            sm_mhz=1200,
            held_back_by=("power cap", "heat (software)", "heat (hardware)"),
        ),
        GpuClocks(index=1, sm_mhz=345, held_back_by=()),
        GpuClocks(index=2, sm_mhz=None, held_back_by=None),
    )


def test_without_the_library_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(gpu_clocks, "_nvml", lambda: None)
    assert gpu_clocks.read() == ()


def test_a_block_has_the_clocks_of_both_ends(monkeypatch):
    answers = iter([Nvml((1980, 0)), Nvml((1200, 0x4))])
    monkeypatch.setattr(gpu_clocks, "_nvml", lambda: next(answers))
    before, after = conditions.take(gpu=True), conditions.take(gpu=True)
    found = conditions.between(before, after, own_cpu_ms=1.0, wall_ms=1.0, threads=1)
    assert [gpu.sm_mhz for gpu in found.gpus_at_start] == [1980]
    assert [gpu.sm_mhz for gpu in found.gpus_at_end] == [1200]
    assert found.gpus_at_end[0].held_back_by == ("power cap",)


def test_the_driver_is_not_asked_where_no_gpu_is_used(monkeypatch):
    monkeypatch.setattr(gpu_clocks, "read", lambda: pytest.fail("asked"))
    assert conditions.take().gpus == ()


def test_the_doctor_gives_the_same_names():
    for bit, name in gpu_clocks.SLOWDOWNS.items():
        assert checks.throttle_reasons(hex(bit)) == (bit, (name,))
