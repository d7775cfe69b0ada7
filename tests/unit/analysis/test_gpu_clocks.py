"""Clocks and users of GPUs, from a library that answers as NVML does."""

import os

import pytest
from nvml_double import Gpu, Nvml

from comparative_benchmark.analysis.machine import conditions, gpu_state, nvml
from comparative_benchmark.analysis.machine.gpu_state import GpuClocks
from comparative_benchmark.maintenance.doctor import _nvidia

GIB = 1 << 30
ME = os.getpid()


@pytest.fixture(autouse=True)
def _all_visible(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("new", [True, False])
def test_clocks_and_what_holds_them_back(new):
    gpus = (Gpu(mhz=1200, reasons=0x64), Gpu(mhz=345, reasons=0x1), Gpu(mhz=None, reasons=None))
    found = gpu_state.read_gpus(Nvml(*gpus, new=new))
    assert [(gpu.index, gpu.sm_mhz, gpu.held_back_by) for gpu in found] == [
        (0, 1200, ("power cap", "heat (software)", "heat (hardware)")),
        (1, 345, ()),
        (2, None, None),
    ]


def test_the_gpu_that_is_used_is_told_of_in_full():
    used = Gpu(memory=(3 * GIB, 80 * GIB), busy=97, pids=(ME,), mig=False)
    first, second = gpu_state.read_gpus(Nvml(used, Gpu(memory=(GIB, 80 * GIB), pids=(1,))))
    assert first == GpuClocks(
        index=0,
        sm_mhz=1980,
        held_back_by=(),
        used=True,
        mig=False,
        memory_used_bytes=3 * GIB,
        memory_total_bytes=80 * GIB,
        busy_percent=97,
        foreign_pids=(),
    )
    assert second == GpuClocks(index=1, sm_mhz=1980, held_back_by=(), used=False)
    assert gpu_state.used([second, first]) is first
    assert gpu_state.used([second]) is None


def test_what_a_driver_does_not_tell_is_not_known():
    [found] = gpu_state.read_gpus(Nvml(Gpu(mhz=None, reasons=None), versions=()))
    assert found == GpuClocks(index=0, sm_mhz=None, held_back_by=None, used=True)


DIFFERENT = (Gpu(name="H100", uuid="GPU-aa1"), Gpu(name="T4", uuid="GPU-aa2"))
ALIKE = (Gpu(uuid="GPU-aa1"), Gpu(uuid="GPU-aa2"))


@pytest.mark.parametrize(
    ("gpus", "visible", "order", "used"),
    [
        (ALIKE, None, None, 0),
        (ALIKE, "1", None, 1),
        (ALIKE, "1,0", None, 1),
        (ALIKE, "GPU-aa2,GPU-aa1", None, 1),
        (ALIKE[:1], "0", None, 0),
        # A prefix that fits both, numbers that CUDA may count differently, and missing devices.
        (ALIKE, "GPU-aa", None, None),
        (DIFFERENT, "1", None, None),
        (DIFFERENT, None, None, None),
        ((Gpu(name=None), Gpu(name=None)), "1", None, None),
        (ALIKE, "2", None, None),
        (ALIKE, "-1", None, None),
        (ALIKE, "", None, None),
        (ALIKE, "MIG-unknown", None, None),
        (DIFFERENT, "1", "PCI_BUS_ID", 1),
        (DIFFERENT, "GPU-aa2", None, 1),
    ],
)
def test_the_gpu_that_is_used_is_the_first_that_cuda_shows(gpus, visible, order, used, monkeypatch):
    for name, value in (("VISIBLE_DEVICES", visible), ("DEVICE_ORDER", order)):
        if value is not None:
            monkeypatch.setenv(f"CUDA_{name}", value)
    found = gpu_state.read_gpus(Nvml(*gpus))
    due = [None] * len(gpus) if used is None else [i == used for i in range(len(gpus))]
    assert [gpu.used for gpu in found] == due


@pytest.mark.parametrize(
    ("visible", "used", "memory"), [(None, 0, 1), ("MIG-b", 0, 2), ("MIG-c", 1, 3), ("GPU-2", 1, 3)]
)
def test_of_a_divided_gpu_the_part_that_is_used_counts(visible, used, memory, monkeypatch):
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    parts = [
        Gpu(uuid=f"MIG-{name}", memory=(size, 10), pids=(ME,))
        for name, size in (("a", 1), ("b", 2), ("c", 3))
    ]
    first = Gpu(uuid="GPU-1", mhz=1500, mig=True, parts=tuple(parts[:2]), memory=(9, 80), pids=(1,))
    second = Gpu(uuid="GPU-2", mig=True, parts=tuple(parts[2:]), memory=(9, 80), pids=(1,))
    found = gpu_state.used(gpu_state.read_gpus(Nvml(first, second)))
    assert (found.index, found.mig) == (used, True)
    assert (found.memory_used_bytes, found.foreign_pids) == (memory, ())
    assert found.sm_mhz == (1500, 1980)[used]


@pytest.mark.parametrize("versions", [("_v3", "_v2", ""), ("_v2", ""), ("",)])
def test_processes_are_asked_by_the_newest_name_that_the_driver_has(versions):
    library = Nvml(Gpu(pids=(3, 2, 2)), versions=versions)
    assert nvml.processes(library, nvml.device(library, 0)) == (2, 3)
    assert library.asked == ["processes"]


def test_more_processes_than_there_was_room_for():
    library = Nvml(Gpu(pids=tuple(range(1000))))
    assert nvml.processes(library, nvml.device(library, 0)) == tuple(range(1000))
    assert library.asked == ["processes"] * 2


def test_a_driver_that_knows_a_name_and_does_not_answer_is_asked_by_the_older_ones():
    library = Nvml(Gpu(pids=None))
    assert nvml.processes(library, nvml.device(library, 0)) is None
    assert library.asked == ["processes"] * 3


def test_what_does_not_change_is_asked_once():
    library = Nvml(Gpu())
    for _ in range(3):
        gpu_state.read_gpus(library)
    assert library.asked.count("count") == 1
    assert library.asked.count("processes") == 9


def test_without_the_library_there_is_no_gpu(monkeypatch):
    monkeypatch.setattr(nvml, "library", lambda: None)
    assert gpu_state.read_gpus() == ()


def test_a_block_has_the_clocks_of_both_ends(monkeypatch):
    answers = iter([Nvml(Gpu(mhz=1980)), Nvml(Gpu(mhz=1200, reasons=0x4))])
    monkeypatch.setattr(nvml, "library", lambda: next(answers))
    before, after = conditions.take(gpu=True), conditions.take(gpu=True)
    found = conditions.between(before, after, own_cpu_ms=1.0, wall_ms=1.0, threads=1)
    assert [gpu.sm_mhz for gpu in found.gpus_at_start] == [1980]
    assert [gpu.sm_mhz for gpu in found.gpus_at_end] == [1200]
    assert found.gpus_at_end[0].held_back_by == ("power cap",)
    assert found.contended is True
    assert "the GPU's clocks were held back: power cap" in found.reasons


def test_a_gpu_without_the_library_is_one_that_nothing_is_known_of(monkeypatch):
    monkeypatch.setattr(nvml, "library", lambda: None)
    before, after = conditions.take(gpu=True), conditions.take(gpu=True)
    found = conditions.between(before, after, own_cpu_ms=1.0, wall_ms=1.0, threads=1)
    assert found.gpus_at_end == (gpu_state.UNKNOWN,)
    assert found.contended is not False
    assert any(
        reason.startswith("unknown whether other processes use the GPU") for reason in found.reasons
    )


def test_the_driver_is_not_asked_where_no_gpu_is_used(monkeypatch):
    monkeypatch.setattr(gpu_state, "read_gpus", lambda: pytest.fail("asked"))
    assert conditions.take().gpus == ()


def test_the_doctor_gives_the_same_names():
    for bit, name in gpu_state.SLOWDOWNS.items():
        assert _nvidia.throttle_reasons(hex(bit)) == (bit, (name,))
