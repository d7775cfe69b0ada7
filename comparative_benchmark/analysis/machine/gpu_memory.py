"""Device memory of a race's workers, measured by the parent as the decrease at each start."""

import itertools
from collections.abc import Callable, Sequence

from comparative_benchmark.analysis.machine import gpu_clocks
from comparative_benchmark.analysis.machine.gpu_clocks import GpuClocks

Read = Callable[[], Sequence[GpuClocks]]


class GpuMemory:
    """Watches the memory of the GPU in use while workers are started, one after the other.

    Few containers report the memory of a process; all report the total.
    """

    def __init__(self, read: Read | None = None) -> None:
        self._read = read or gpu_clocks.read
        self._free_bytes = [self._free_now()]

    def has_room(self, margin: float) -> bool:
        """Returns whether one more worker would fit; called after each start.

        Args:
          margin: how many times its memory a worker may come to need.

        Returns:
          Whether free memory exceeds `margin` times the largest worker's; True if the driver does
            not
          report it.
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
        found = gpu_clocks.used(self._read())
        if found is None or found.memory_total_bytes is None or found.memory_used_bytes is None:
            return None
        return found.memory_total_bytes - found.memory_used_bytes
