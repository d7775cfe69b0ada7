"""Facts about this process's host and GPU: CPUs, free memory, and the precision of products."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs
import psutil

_TOPOLOGY = "sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"


def usable_cpus() -> list[int]:
    """Returns the CPUs that this process may run on, in order."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def cores(cpus: Iterable[int], root: Path = Path("/")) -> list[list[int]] | None:
    """Returns CPUs by the core that they are threads of, each list in order.

    None where the system does not tell of each CPU.

    Args:
      cpus: what is asked about; their siblings outside of it are left out.
      root: where `sys` is.
    """
    found: dict[str, list[int]] = {}
    for cpu in sorted(cpus):
        try:
            siblings = (root / _TOPOLOGY.format(cpu=cpu)).read_text(encoding="ascii").strip()
        except OSError:
            return None
        found.setdefault(siblings, []).append(cpu)
    return list(found.values())


def spread(cpus: Iterable[int], root: Path = Path("/")) -> list[int]:
    """Returns CPUs in the order to take them in: one of each core before a second of any."""
    known = sorted(cpus)
    by_core = cores(known, root) or [[cpu] for cpu in known]
    turns = [(turn, cpu) for core in by_core for turn, cpu in enumerate(core)]
    return [cpu for _, cpu in sorted(turns)]


def free_bytes() -> int:
    """Returns what is available now: on the machine, and within the container's limit."""
    free: int = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):  # no cgroups of version 2, or no limit
        maximum = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii"))
        free = min(free, int(maximum) - used)
    return free


# By it NVIDIA's libraries follow a user, whatever a program asks of them: 1 allows, 0 forbids.
_OVERRIDE = "NVIDIA_TF32_OVERRIDE"


def note(*, on_gpu: bool, types: Iterable[str], allowed: bool | None) -> bool | None:
    """Returns what a backend notes: whether factors of float32 may be rounded to TF32.

    Args:
      on_gpu: whether the program runs on a GPU.
      types: names of the element types of weights and inputs, as NumPy has them.
      allowed: whether the stack was left free to do so; None where it does not tell.

    Returns:
      None where there is no GPU, nothing of float32, or nobody knows.
    """
    if not on_gpu or "float32" not in types:
        return None
    return True if os.environ.get(_OVERRIDE) == "1" else allowed


def is_float32(types: Iterable[str]) -> bool:
    """Tells whether float32 is the only floating-point type among names of element types."""
    return {name for name in types if "float" in name} == {"float32"}


@attrs.frozen(kw_only=True)
class HostSettings:
    """Effective settings of a stack on the host; None where it does not tell.

    Attributes:
      threads: that one operator is shared among.
      inter_op_threads: that independent operators run on.
      threads_told_by: what was asked for these counts.
      blas: the library of its products, with the kernels that it chose.
    """

    threads: int | None = None
    inter_op_threads: int | None = None
    threads_told_by: str | None = None
    blas: str | None = None


def threads_by_name(root: Path = Path("/")) -> Mapping[str, int]:
    """Returns how many threads of this process have each name; names are cut to 15 characters.

    A stack that has no other answer names the threads of its pool.
    """
    found: Counter[str] = Counter()
    for task in (root / "proc/self/task").glob("*/comm"):
        try:
            found[task.read_text(encoding="utf-8", errors="replace").rstrip("\n")] += 1
        except OSError:  # it has ended
            continue
    return found


def pool_size(name: str, root: Path = Path("/")) -> int | None:
    """Returns how many threads there are whose names begin so; None without any."""
    return sum(n for told, n in threads_by_name(root).items() if told.startswith(name)) or None
