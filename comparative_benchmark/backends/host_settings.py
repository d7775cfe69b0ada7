"""Facts about this process's host and GPU: CPUs, free memory, and TF32 products."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs
import psutil

_PAGE_CACHE = ("active_file", "inactive_file")
_TOPOLOGY = "sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"


def usable_cpus() -> list[int]:
    """Returns the CPUs that this process may run on, in order."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cores(cpus: Iterable[int], root: Path = Path("/")) -> list[list[int]] | None:
    """Groups CPUs by physical core, each list in order.

    None if the system does not report the core of each CPU.

    Args:
      cpus: CPUs to group; their siblings that are not included are left out.
      root: directory that contains `sys`.
    """
    groups: dict[str, list[int]] = {}
    for cpu in sorted(cpus):
        try:
            siblings = (root / _TOPOLOGY.format(cpu=cpu)).read_text(encoding="ascii").strip()
        except OSError:
            return None
        groups.setdefault(siblings, []).append(cpu)
    return list(groups.values())


def spread(cpus: Iterable[int], root: Path = Path("/")) -> list[int]:
    """Orders CPUs so that one thread of each core comes before the second of any."""
    known = sorted(cpus)
    by_core = cores(known, root) or [[cpu] for cpu in known]
    turns = [(turn, cpu) for core in by_core for turn, cpu in enumerate(core)]
    return [cpu for _, cpu in sorted(turns)]


def free_bytes() -> int:
    """Returns the available memory of the machine, or of the container's limit if lower."""
    free: int = psutil.virtual_memory().available
    room = container_free_bytes()
    return free if room is None else min(free, room)


def container_free_bytes(root: Path = Path("/")) -> int | None:
    """Returns the available memory of the container; None without a limit or cgroups version 2.

    This is the smallest of the process's control group and the enclosing ones. The kernel counts
    the page cache as used, but frees it when memory is needed.

    Args:
      root: directory that contains `proc` and `sys`.
    """
    own = Path()
    with contextlib.suppress(OSError):
        lines = (root / "proc/self/cgroup").read_text().splitlines()
        own = next((Path(line[3:].lstrip("/")) for line in lines if line.startswith("0::")), own)
    free = []
    for relative in (own, *own.parents):
        group = root / "sys/fs/cgroup" / relative
        with contextlib.suppress(OSError, ValueError):
            sizes = [int((group / f"memory.{name}").read_text()) for name in ("max", "current")]
            rows = map(str.split, (group / "memory.stat").read_text().splitlines())
            cached = sum(int(size) for name, size in rows if name in _PAGE_CACHE)
            free.append(sizes[0] - sizes[1] + cached)
    return min(free, default=None)


# Users override NVIDIA's libraries with it, whatever a program requests: 1 allows TF32, 0 forbids
# it.
_OVERRIDE = "NVIDIA_TF32_OVERRIDE"


def note(*, on_gpu: bool, types: Iterable[str], allowed: bool | None) -> bool | None:
    """Returns whether factors of float32 products may be rounded to TF32.

    Args:
      on_gpu: whether the program runs on a GPU.
      types: NumPy names of the element types of weights and inputs.
      allowed: whether the stack allows TF32; None if it does not report this.

    Returns:
      None without a GPU, without float32, or if unknown.
    """
    if not on_gpu or "float32" not in types:
        return None
    return True if os.environ.get(_OVERRIDE) == "1" else allowed


def is_float32(types: Iterable[str]) -> bool:
    """Returns whether these element types contain no floating-point type except float32.

    A model may hide all of its types, e.g. in a closure, so none of them counts as float32.
    """
    return {name for name in types if "float" in name} <= {"float32"}


@attrs.frozen(kw_only=True)
class HostSettings:
    """Effective settings of a stack on the host; None for unknown values.

    Attributes:
      threads: number of threads that share one operator.
      inter_op_threads: number of threads that run independent operators.
      threads_told_by: source of these counts.
      blas: the library for matrix products, with the kernels that it chose.
    """

    threads: int | None = None
    inter_op_threads: int | None = None
    threads_told_by: str | None = None
    blas: str | None = None


def threads_by_name(root: Path = Path("/")) -> Mapping[str, int]:
    """Returns the number of threads of this process by name; names are cut to 15 characters.

    For stacks that report their threads only through the names of their pool.
    """
    counts: Counter[str] = Counter()
    for task in (root / "proc/self/task").glob("*/comm"):
        try:
            counts[task.read_text(encoding="utf-8", errors="replace").rstrip("\n")] += 1
        except OSError:  # the thread has ended
            continue
    return counts


def pool_size(name: str, root: Path = Path("/")) -> int | None:
    """Returns the number of threads whose names start with `name`; None if there are none."""
    return sum(n for told, n in threads_by_name(root).items() if told.startswith(name)) or None
