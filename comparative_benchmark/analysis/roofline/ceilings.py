"""The ceilings of this machine: measured by `cbs doctor --ceilings`, kept for all later results."""

import json
import platform
import re
from collections.abc import Callable
from pathlib import Path

import attrs
import msgspec

from comparative_benchmark.analysis.machine import host
from comparative_benchmark.analysis.roofline import _cpu_ceilings, _gpu_ceilings
from comparative_benchmark.analysis.roofline._children import Budget
from comparative_benchmark.analysis.roofline.roofline import (
    READABLE_SCHEMAS,
    Ceilings,
    CeilingsError,
    Copy,
    Gemm,
    share_of_roof,
)
from openxla.benchmark import devices
from openxla.benchmark.files import write_atomically
from openxla.benchmark.root import root_dir

__all__ = [
    "DEVICES",
    "Ceilings",
    "CeilingsError",
    "Copy",
    "Gemm",
    "accelerator_of",
    "ceilings_path",
    "complete_ceilings",
    "load_ceilings",
    "measure_ceilings",
    "save_ceilings",
    "share_of_roof",
]

# Devices that a machine of this suite's users can be, by name: phones are not.
_ACCELERATORS = {
    device.name: device.accelerator_type
    for device in devices.ALL_DEVICES
    if device.host_type != "mobile" and device.accelerator_type in ("cpu", "gpu")
}
DEVICES = tuple(_ACCELERATORS)


def accelerator_of(device: str) -> str | None:
    """Returns "cpu" or "gpu" for the name of a device, None where it has no ceilings here."""
    return _ACCELERATORS.get(device)


def measure_ceilings(
    threads: int | None = None,
    say: Callable[[str], None] = lambda _: None,
    *,
    device: str = "host-cpu",
    budget_s: float | None = None,
) -> Ceilings:
    """Measures what a device of this machine can reach.

    It takes about a minute for a CPU and two for a GPU: each library and data type has a process of
    its own, so that one that crashes or hangs costs nothing but its own rate.

    Args:
      threads: of a CPU; one for each core by default. A GPU has no use for it.
      say: told what is going on.
      device: name of a device, e.g. "host-gpu".
      budget_s: seconds that all may take together, in the order in which they are worth most: the
        copy, then bf16, fp32, tf32, fp16 and fp8 on a GPU. What does not fit is in `skipped` with
        "no time left". None for no limit but two minutes for each process.

    Raises:
      CeilingsError: nothing could be measured, for which it gives the reasons.
    """
    budget = Budget.of(budget_s)
    if accelerator_of(device) == "gpu":
        return _gpu_ceilings.measure(_cpu_model(), say, budget)
    count = threads or host.default_threads().number
    return _cpu_ceilings.measure(_cpu_model(), count, say, budget)


def complete_ceilings(ceilings: Ceilings, say: Callable[[str], None] = lambda _: None) -> Ceilings:
    """Returns ceilings of this machine's CPU with what older ones lack, which is measured.

    Those of a GPU are returned as they are: `cbs doctor --ceilings -device host-gpu` measures anew.
    """
    return _cpu_ceilings.complete(ceilings, say)


def ceilings_path(
    threads: int | None, cpu_model: str | None = None, gpu: str | None = None
) -> Path:
    """Returns the file under the artifact root that holds the ceilings of this CPU, or of a GPU.

    Args:
      threads: of a CPU.
      cpu_model: this one by default.
      gpu: name of a GPU; the CPU and its threads are then of no account.
    """
    if gpu is not None:
        return root_dir() / f"ceilings-{_slug(gpu)}.json"
    return root_dir() / f"ceilings-{_slug(cpu_model or _cpu_model())}-{threads}.json"


def load_ceilings(
    threads: int | None = None, cpu_model: str | None = None, *, gpu: str | None = None
) -> Ceilings | None:
    """Returns the ceilings of this CPU, or the one named, or of the GPU that is named.

    None where no file can be read.
    """
    path = ceilings_path(threads or host.default_threads().number, cpu_model, gpu)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Ceilings)
    except (OSError, ValueError, RecursionError):
        return None
    return found if found.schema in READABLE_SCHEMAS else None


def save_ceilings(ceilings: Ceilings) -> Path:
    """Writes the ceilings, whole or not at all, and returns where."""
    path = ceilings_path(ceilings.threads, ceilings.cpu_model, ceilings.gpu)
    write_atomically(path, json.dumps(attrs.asdict(ceilings), indent=2) + "\n")
    return path


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _cpu_model() -> str:
    return host.describe(threads=1)["cpu_model"] or platform.machine()
