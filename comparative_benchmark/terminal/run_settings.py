"""Settings of a run: limits and threads that the user chose, or the usual ones."""

from collections.abc import Iterable
from typing import Any

from comparative_benchmark.machine.host import ASKED, Threads, default_threads
from comparative_benchmark.machine.memory import default_limit_bytes
from comparative_benchmark.runs.session import Limits
from comparative_benchmark.runs.settings import RunSettings
from openxla.benchmark.def_types import DeviceSpec


def settings_of(
    device: DeviceSpec,
    *,
    timeout_s: float,
    memory_bytes: int | None,
    threads: int | None = None,
    phase_deadlines_s: Iterable[tuple[str, float]] = (),
    processes: int = 1,
    **others: Any,
) -> RunSettings:
    """Returns settings with these limits.

    Args:
      device: where to run.
      timeout_s: time limit of a worker.
      memory_bytes: memory limit of a worker; None for the memory that is available.
      threads: of each backend; None for the usual number.
      phase_deadlines_s: time limit of phases.
      processes: that run at a time, and share the memory if no limit is given.
      others: further fields of `RunSettings`.
    """
    limits = Limits(
        deadline_s=timeout_s,
        phase_deadlines_s=dict(phase_deadlines_s),
        memory_bytes=memory_bytes or default_limit_bytes() // processes,
    )
    chosen = Threads(threads, ASKED) if threads else default_threads(others.get("cpus", ()))
    return RunSettings(
        device=device,
        threads=chosen.number,
        threads_from=chosen.rule,
        limits=limits,
        **others,
    )
