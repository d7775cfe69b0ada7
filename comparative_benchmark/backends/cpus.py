"""Which CPUs this process may use, and which of them are threads of one core."""

import os
from collections.abc import Iterable
from pathlib import Path

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
