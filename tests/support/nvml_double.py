"""A library that answers as NVML does: through pointers, 0 for success, 3 for `not supported`."""

import ctypes

import attrs

NOT_SUPPORTED, NOT_FOUND, TOO_SMALL = 3, 6, 7


@attrs.define(kw_only=True)
class Gpu:
    """One GPU; None is what it does not support."""

    mhz: int | None = 1980
    reasons: int | None = 0
    uuid: str | None = None
    name: str | None = "NVIDIA H100"
    memory: tuple[int, int] | None = None
    busy: int | None = None
    pids: tuple[int, ...] | None = None
    mig: bool | None = None
    parts: tuple["Gpu", ...] = ()


class Nvml:
    """NVML of a machine with these GPUs.

    Args:
      new: whether the driver has the newer names of its functions.
      versions: of the question for processes, `""` for the first.
    """

    def __init__(self, *gpus, new=True, versions=("_v3", "_v2", "")):
        self._gpus = gpus
        self._devices = [*gpus, *(part for gpu in gpus for part in gpu.parts)]
        self.asked = []
        name = "Event" if new else "Throttle"
        setattr(self, f"nvmlDeviceGetCurrentClocks{name}Reasons", self._reasons)
        for version in versions:
            setattr(self, f"nvmlDeviceGetComputeRunningProcesses{version}", self._processes)

    def _gpu(self, handle):
        return self._devices[handle.value - 1]  # a null pointer is not a handle

    def _give(self, gpu, pointer):
        pointer._obj.value = self._devices.index(gpu) + 1
        return 0

    def nvmlDeviceGetCount_v2(self, count):  # noqa: N802
        self.asked.append("count")
        count._obj.value = len(self._gpus)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, device):  # noqa: N802
        return self._give(self._gpus[index.value], device)

    def nvmlDeviceGetHandleByUUID(self, uuid, device):  # noqa: N802
        for gpu in self._devices:
            if gpu.uuid is not None and gpu.uuid.encode() == uuid.value:
                return self._give(gpu, device)
        return NOT_FOUND

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device, index, part):  # noqa: N802
        parts = self._gpu(device).parts
        return self._give(parts[index.value], part) if index.value < len(parts) else NOT_FOUND

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part, device):  # noqa: N802
        for gpu in self._gpus:
            if self._gpu(part) in gpu.parts:
                return self._give(gpu, device)
        return NOT_FOUND

    def nvmlDeviceGetUUID(self, device, text, size):  # noqa: N802
        return self._text(self._gpu(device).uuid, text, size)

    def nvmlDeviceGetName(self, device, text, size):  # noqa: N802
        return self._text(self._gpu(device).name, text, size)

    def nvmlDeviceGetMigMode(self, device, now, later):  # noqa: N802
        return self._answer(self._gpu(device).mig, now)

    def nvmlDeviceGetClockInfo(self, device, kind, mhz):  # noqa: N802
        assert kind == 1
        return self._answer(self._gpu(device).mhz, mhz)

    def nvmlDeviceGetMemoryInfo(self, device, memory):  # noqa: N802
        if (found := self._gpu(device).memory) is None:
            return NOT_SUPPORTED
        memory._obj.used, memory._obj.total = found
        memory._obj.free = found[1] - found[0]
        return 0

    def nvmlDeviceGetUtilizationRates(self, device, utilization):  # noqa: N802
        if (found := self._gpu(device).busy) is None:
            return NOT_SUPPORTED
        utilization._obj.gpu = found
        return 0

    def _processes(self, device, number, infos):
        self.asked.append("processes")
        if (pids := self._gpu(device).pids) is None:
            return NOT_SUPPORTED
        room, number._obj.value = number._obj.value, len(pids)
        if room < len(pids):
            return TOO_SMALL
        for info, pid in zip(infos, pids, strict=False):
            info.pid = pid
        return 0

    def _reasons(self, device, bits):
        return self._answer(self._gpu(device).reasons, bits)

    @staticmethod
    def _answer(value, pointer):
        pointer._obj.value = value or 0
        return NOT_SUPPORTED if value is None else 0

    @staticmethod
    def _text(value, buffer, size):
        if value is None:
            return NOT_SUPPORTED
        assert size.value == ctypes.sizeof(buffer)
        buffer.value = value.encode()
        return 0
