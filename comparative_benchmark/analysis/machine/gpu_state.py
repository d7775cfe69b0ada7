"""NVIDIA GPUs at one moment, and disturbances of the GPU in use over blocks and starts of workers.

A moment has clocks, reasons for low clocks, other users and free memory. The parent measures the
device memory of a race's workers as the decrease at each start.
"""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.analysis.machine import nvml

PROC = Path("/proc")
# Set in the environment of every worker and its children.
SESSION_VARIABLE = "CBS_SESSION"

# nvmlClocksEventReasons; the others are harmless: an idle GPU, or clocks that a user has set.
SLOWDOWNS: Mapping[int, str] = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}

# As for CPUs: a median tolerates disturbances of few blocks.
BLOCKS_LIMIT = 0.05
# A clock under load varies by its steps of 15 MHz, which is less than 1 % of it.
CLOCK_FALL_LIMIT = 0.05
# Reasons that a program does not cause in normal operation. A power cap is the normal state of a
# program that works hard; if it comes and goes, the clock shows it.
THROTTLING = frozenset({"hardware slowdown", "heat (software)", "heat (hardware)", "power brake"})

# Whether there was a disturbance (None if unknown), and its description.
Finding = tuple[bool | None, str]


def foreign(pids: Sequence[int] | None, proc: Path = PROC) -> tuple[int, ...] | None:
    """Returns the processes that do not belong to the run of this worker.

    Workers of the same run are stopped while another is measured, but keep their contexts.

    Args:
      pids: all processes with a context, including this one; None if unknown.
      proc: replaces `/proc`.

    Returns:
      None if no process is known to be foreign, and some are unknown.
    """
    if pids is None or os.getpid() not in pids:
        return None
    ours = {pid: _is_ours(pid, proc) for pid in pids}
    others = tuple(pid for pid, answer in ours.items() if answer is False)
    return None if not others and None in ours.values() else others


def _is_ours(pid: int, proc: Path) -> bool | None:
    """Returns whether a process is this one, or belongs to a worker with our parent."""
    if pid == os.getpid():
        return True
    fields = _status(pid, proc)
    return _descends(pid, fields[19], os.getppid(), proc) if fields else None


@lru_cache(maxsize=256)
def _descends(pid: int, _started: str, parent: int, proc: Path) -> bool | None:
    """Returns whether a process is ours; its start time distinguishes reused pids in the cache."""
    mark = f"{SESSION_VARIABLE}=".encode()
    try:
        environment = (proc / str(pid) / "environ").read_bytes()
    except PermissionError:
        if _owner(pid, proc) not in (None, os.getuid()):
            return False
        # Isolated workers are in other user namespaces: only their ancestors show it.
        environment = mark
    except OSError:
        return None
    if not environment:  # a process that is just ending, or a kernel thread
        return None
    if not any(variable.startswith(mark) for variable in environment.split(b"\0")):
        return False
    above = list(_ancestors(pid, proc))
    if parent in above:
        return True
    # Marked, and of another run; or an orphan of a worker, whose run is unknown.
    return False if above and above[0] > 1 else None


def _ancestors(pid: int, proc: Path) -> Iterator[int]:
    """Yields the parent, its parent, and so on, to the first process."""
    while pid > 1 and (fields := _status(pid, proc)):
        pid = int(fields[1])
        yield pid


def _status(pid: int, proc: Path) -> list[str] | None:
    """Returns the fields after the name, which may hold spaces and brackets: state, parent, ..."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _owner(pid: int, proc: Path) -> int | None:
    try:
        return (proc / str(pid)).stat().st_uid
    except OSError:
        return None


@attrs.frozen(kw_only=True)
class GpuClocks:
    """State of one GPU at one moment; None for values that the driver does not report.

    Attributes:
      index: index in nvidia-smi, which `CUDA_VISIBLE_DEVICES` does not change.
      sm_mhz: clock frequency of the multiprocessors.
      held_back_by: reasons why this frequency is not higher; empty without a relevant reason.
      used: whether this is the first GPU that is visible to the process. The attributes below are
        set only for this GPU; if it is divided, they describe the part in use.
      mig: whether the GPU is divided into MIG instances.
      memory_used_bytes, memory_total_bytes: memory used by all processes, and total memory.
      busy_percent: percentage of the last second during which a kernel was running.
      foreign_pids: IDs of processes that have a CUDA context but do not belong to this run.
    """

    index: int
    sm_mhz: int | None
    held_back_by: tuple[str, ...] | None
    used: bool | None = None
    mig: bool | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    busy_percent: int | None = None
    foreign_pids: tuple[int, ...] | None = None


# Placeholder for the GPU in use if nothing is known.
UNKNOWN = GpuClocks(index=0, sm_mhz=None, held_back_by=None)


def slowdowns(bits: int) -> tuple[str, ...]:
    """Returns the names of the reasons in a mask that slow a GPU down."""
    return tuple(name for bit, name in SLOWDOWNS.items() if bits & bit)


def read_gpus(library: Any = None) -> tuple[GpuClocks, ...]:
    """Returns the clocks of all GPUs; empty without NVML."""
    source = library or nvml.library()
    if source is None:
        return ()
    visible, order = (
        os.environ.get(f"CUDA_{name}") for name in ("VISIBLE_DEVICES", "DEVICE_ORDER")
    )
    return tuple(_read(source, gpu) for gpu in _visible_gpus(source, visible, order))


def used(gpus: Sequence[GpuClocks]) -> GpuClocks | None:
    """Returns the GPU in use; None if unknown."""
    return next((gpu for gpu in gpus if gpu.used), None)


@attrs.frozen(kw_only=True)
class _Gpu:
    """The constant facts about a GPU.

    Attributes:
      handle: handle of the whole GPU, which reports clocks.
      part: handle of the part in use; None if it is not used, or if that is unknown.
    """

    index: int
    handle: Any
    used: bool | None
    mig: bool | None
    part: Any


def _read(source: Any, gpu: _Gpu) -> GpuClocks:
    if gpu.handle is None:
        return attrs.evolve(UNKNOWN, index=gpu.index, used=gpu.used)
    reasons = nvml.clock_reasons(source, gpu.handle)
    clocks = GpuClocks(
        index=gpu.index,
        sm_mhz=nvml.sm_mhz(source, gpu.handle),
        held_back_by=None if reasons is None else slowdowns(reasons),
        used=gpu.used,
    )
    if gpu.part is None:
        return clocks
    memory = nvml.memory(source, gpu.part)
    return attrs.evolve(
        clocks,
        mig=gpu.mig,
        memory_used_bytes=memory[0] if memory else None,
        memory_total_bytes=memory[1] if memory else None,
        busy_percent=nvml.busy_percent(source, gpu.part),
        foreign_pids=foreign(nvml.processes(source, gpu.part)),
    )


@lru_cache(maxsize=4)
def _visible_gpus(source: Any, visible: str | None, order: str | None) -> tuple[_Gpu, ...]:
    """Returns all GPUs, looked up once: handles stay valid."""
    handles = [nvml.device(source, index) for index in range(nvml.count(source))]
    uuids = [nvml.uuid(source, handle) for handle in handles]
    first = "0" if visible is None else visible.split(",")[0].strip()
    chosen = index = None
    if first.startswith("MIG-"):
        chosen = nvml.device_of_uuid(source, first)
        if chosen is not None and (whole := nvml.whole(source, chosen)) is not None:
            first = nvml.uuid(source, whole) or ""
    if first.startswith("GPU-"):
        matches = [i for i, uuid in enumerate(uuids) if uuid and uuid.startswith(first)]
        index = matches[0] if len(matches) == 1 else None
    elif first.isdecimal() and int(first) < len(handles):
        # CUDA numbers the fastest GPU first; this equals NVML's order if all are the same model,
        # or if CUDA_DEVICE_ORDER is PCI_BUS_ID.
        names = {nvml.name(source, handle) for handle in handles}
        alike = len(names) == 1 and None not in names
        if len(handles) == 1 or alike or order == "PCI_BUS_ID":
            index = int(first)
    gpus = []
    for number, handle in enumerate(handles):
        is_used = None if index is None else number == index
        mig = nvml.has_parts(source, handle) if is_used else None
        part = handle if is_used else None
        if is_used and mig:
            part = chosen or nvml.part(source, handle, 0)
        gpus.append(_Gpu(index=number, handle=handle, used=is_used, mig=mig, part=part))
    return tuple(gpus)


@attrs.frozen
class Ends:
    """GPUs at the start and at the end of a block; empty without GPUs."""

    start: Sequence[GpuClocks]
    end: Sequence[GpuClocks]


def of_block(ends: Ends) -> list[Finding]:
    """Returns disturbances of one block; empty for a block without a GPU."""
    if not ends.end:
        return []
    pids, known = _foreign(ends)
    slow = _held_back(ends)
    return [
        (
            True if pids else False if known else None,
            f"{_processes(pids)} the GPU"
            if pids
            else "unknown whether other processes use the GPU: the driver does not report them",
        ),
        (
            None if slow is None else bool(slow),
            f"the GPU's clocks were held back: {', '.join(slow)}"
            if slow
            else "unknown whether the GPU's clocks were held back: the driver does not report it",
        ),
    ]


def of_blocks(blocks: Iterable[Ends]) -> list[Finding]:
    """Returns disturbances of a series of blocks, given in the order of measurement."""
    every = [ends for ends in blocks if ends.end]
    if not every:
        return []
    pids = sorted({pid for ends in every for pid in _foreign(ends)[0]})
    reasons = sorted({reason for ends in every for reason in _held_back(ends) or ()})
    return [
        _series(
            [bool(pids) if pids or known else None for pids, known in map(_foreign, every)],
            lambda often: f"{_processes(pids)} the GPU in {often}",
            "other processes use the GPU: the driver does not report them",
        ),
        _series(
            [None if causes is None else bool(causes) for causes in map(_held_back, every)],
            lambda often: f"the GPU's clocks were held back in {often}: {', '.join(reasons)}",
            "the GPU's clocks are held back: the driver does not report it",
        ),
        _clock_fell(every),
    ]


def why_void(blocks: Iterable[Ends]) -> list[str | None]:
    """Returns for each block of one program why it is discarded; None if it counts.

    A block is discarded if heat or the hardware slowed the GPU down, or if its clock at the end of
    the block, right after the work, is below the clock of the program's fastest block.
    """
    every = list(blocks)
    clocks = [_mhz(ends) for ends in every]
    highest = _highest(clocks)
    reasons: list[str | None] = []
    for ends, mhz in zip(every, clocks, strict=True):
        throttled = sorted(THROTTLING.intersection(_held_back(ends) or ()))
        if throttled:
            reasons.append(f"the GPU was throttled: {', '.join(throttled)}")
        elif _has_fallen(mhz, highest):
            reasons.append(f"the GPU's clock was {mhz} MHz, but {highest} MHz in other blocks")
        else:
            reasons.append(None)
    return reasons


def _clock_fell(every: Sequence[Ends]) -> Finding:
    """Compares clocks at the ends of blocks with the highest."""
    clocks = [_mhz(ends) for ends in every]
    highest = _highest(clocks)
    slowest = min((mhz for mhz in clocks if mhz is not None), default=0)
    return _series(
        [_has_fallen(mhz, highest) for mhz in clocks],
        lambda often: f"the GPU's clock fell from {highest} to {slowest} MHz in {often}",
        "the GPU's clock fell: the driver does not report it",
    )


def _mhz(ends: Ends) -> int | None:
    gpu = used(ends.end)
    return gpu.sm_mhz if gpu else None


def _highest(clocks: Iterable[int | None]) -> int:
    return max((mhz for mhz in clocks if mhz is not None), default=0)


def _has_fallen(mhz: int | None, highest: int) -> bool | None:
    return None if mhz is None else mhz < highest * (1 - CLOCK_FALL_LIMIT)


def _series(answers: Sequence[bool | None], says: Callable[[str], str], not_known: str) -> Finding:
    """Judges a series by the number of blocks that were, or may have been, disturbed."""
    yes, unknown = answers.count(True), answers.count(None)
    limit = BLOCKS_LIMIT * len(answers)
    if yes > limit:
        return True, says(f"{yes} of {len(answers)} blocks")
    return (None, f"unknown whether {not_known}") if yes + unknown > limit else (False, "")


def reports_users(ends: Ends) -> bool:
    """Returns whether the driver reports the processes on the GPU, at both ends of a block."""
    return _foreign(ends)[1]


def _foreign(ends: Ends) -> tuple[tuple[int, ...], bool]:
    """Returns foreign processes at either end, and whether they are known at both ends."""
    reported = [gpu.foreign_pids if gpu else None for gpu in map(used, (ends.start, ends.end))]
    pids = sorted({pid for seen in reported for pid in seen or ()})
    return tuple(pids), None not in reported


def _held_back(ends: Ends) -> tuple[str, ...] | None:
    gpu = used(ends.end)
    return gpu.held_back_by if gpu else None


def _processes(pids: Sequence[int]) -> str:
    """Returns the subject of a sentence, with `uses` or `use`."""
    if len(pids) == 1:
        return f"another process (pid {pids[0]}) uses"
    return f"other processes (pids {', '.join(map(str, pids))}) use"


Read = Callable[[], Sequence[GpuClocks]]


class GpuMemory:
    """Watches the memory of the GPU in use while workers are started, one after the other.

    Few containers report the memory of a process; all report the total.
    """

    def __init__(self, read: Read | None = None) -> None:
        self._read = read or read_gpus
        self._free_bytes = [self._free_now()]

    def has_room(self, margin: float) -> bool:
        """Returns whether one more worker would fit; called after each start.

        Args:
          margin: how many times its memory a worker may come to need.

        Returns:
          Whether free memory exceeds `margin` times the largest worker's; True if the driver does
            not report it.
        """
        self._free_bytes.append(self._free_now())
        free = self._free_bytes[-1]
        if free is None:
            return True
        taken = (
            before - after
            for before, after in itertools.pairwise(self._free_bytes)
            if before is not None and after is not None
        )
        return max(taken, default=0) * margin < free

    def _free_now(self) -> int | None:
        gpu = used(self._read())
        if gpu is None or gpu.memory_total_bytes is None or gpu.memory_used_bytes is None:
            return None
        return gpu.memory_total_bytes - gpu.memory_used_bytes
