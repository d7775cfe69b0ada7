"""`--auto-batch`: finds the largest batch size that a model folder can run here, by doubling."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from comparative_benchmark.engine.details import call_once
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.settings import settings_of
from comparative_benchmark.request import RunRequest
from comparative_benchmark.results.record import Status
from comparative_benchmark.sources.selection import find_device
from comparative_benchmark.sources.torchbench.folders import Folder

_PROBE = "comparative_benchmark.sources.torchbench.probing:probe"
_MOST = 1 << 16
# Statuses that end the search with the previous size.
_TOO_MUCH = (Status.OUT_OF_MEMORY, Status.TIMEOUT)


def largest(try_out: Callable[[int], int]) -> tuple[int | None, str]:
    """Returns the largest power of two that a folder runs with, or None, and the reason.

    None means the folder's default batch size.

    Args:
      try_out: runs the folder with a batch size in a fresh process and returns the number of
        elements in its inputs. Raises `SessionEnded` if it does not run.
    """
    size, found, held = 1, None, 0
    while size <= _MOST:
        try:
            elements = try_out(size)
        except SessionEnded as ended:
            if found is None:
                return None, f"unchanged: {ended.reason}"
            if ended.status not in _TOO_MUCH:
                return found, f"{found}; {size} ended with {ended.status.value}: {ended.reason}"
            return found, f"{found}; {size} ended with {ended.status.value}"
        if found is not None and elements == held:
            return None, "unchanged: the inputs do not grow with the batch size"
        found, held, size = size, elements, size * 2
    return found, f"{found}, the largest size that is tested"


def of_folder(
    folder: Folder, test: str, packages: Path | None, request: RunRequest
) -> tuple[int | None, str]:
    """Returns the largest batch size of a folder's test within `--memory-limit` and `--timeout`.

    The float64 run that provides the truth must fit, too.
    """
    arguments: dict[str, Any] = {
        "folder": str(folder.path),
        "test": test,
        "packages": str(packages) if packages else None,
    }

    settings = settings_of(
        find_device(request.device),
        timeout_s=request.timeout,
        memory_bytes=request.memory_limit,
        threads=request.threads,
        phase_deadlines_s=request.deadline,
    )

    def try_out(size: int) -> int:
        arguments["batch_size"] = size
        return call_once(settings, _PROBE, arguments, dict[str, int])["elements"]

    return largest(try_out)
