"""The ceilings of this machine: measured by `cbs doctor --ceilings`, stored for later results."""

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

# Devices that this suite's users can have, by name; no phones.
_ACCELERATORS = {
    device.name: device.accelerator_type
    for device in devices.ALL_DEVICES
    if device.host_type != "mobile" and device.accelerator_type in ("cpu", "gpu")
}
DEVICES = tuple(_ACCELERATORS)


def accelerator_of(device: str) -> str | None:
    """Returns "cpu" or "gpu" for the name of a device, None if it has no ceilings here."""
    return _ACCELERATORS.get(device)


def measure_ceilings(
    threads: int | None = None,
    say: Callable[[str], None] = lambda _: None,
    *,
    device: str = "host-cpu",
    budget_s: float | None = None,
) -> Ceilings:
    """Measures the ceilings of a device of this machine.

    It takes about a minute for a CPU and two for a GPU: each library and data type has a separate
    process, so that a crash or hang costs only its own rate.

    Args:
      threads: threads of a CPU; one per core by default. Ignored for a GPU.
      say: called with progress messages.
      device: name of a device, e.g. "host-gpu".
      budget_s: seconds that all may take together, in the order of their value: the copy, then
        bf16, fp32, tf32, fp16 and fp8 on a GPU. The rest is in `skipped` with "no time left". None
        for no limit but two minutes per process.

    Raises:
      CeilingsError: nothing could be measured; it gives the reasons.
    """
    budget = Budget.of(budget_s)
    if accelerator_of(device) == "gpu":
        return _gpu_ceilings.measure(_cpu_model(), say, budget)
    count = threads or host.default_threads().number
    return _cpu_ceilings.measure(_cpu_model(), count, say, budget)


def complete_ceilings(ceilings: Ceilings, say: Callable[[str], None] = lambda _: None) -> Ceilings:
    """Measures what older ceilings of this machine's CPU lack, and returns the complete ones.

    Ceilings of a GPU are returned unchanged: `cbs doctor --ceilings -device host-gpu` measures
    them.
    """
    return _cpu_ceilings.complete(ceilings, say)


def ceilings_path(
    threads: int | None, cpu_model: str | None = None, gpu: str | None = None
) -> Path:
    """Returns the file under the artifact root that holds the ceilings of this CPU, or of a GPU.

    Args:
      threads: threads of a CPU.
      cpu_model: this one by default.
      gpu: name of a GPU; the CPU and its threads are then ignored.
    """
    if gpu is not None:
        return root_dir() / f"ceilings-{_slug(gpu)}.json"
    return root_dir() / f"ceilings-{_slug(cpu_model or _cpu_model())}-{threads}.json"


def load_ceilings(
    threads: int | None = None, cpu_model: str | None = None, *, gpu: str | None = None
) -> Ceilings | None:
    """Returns the ceilings of this CPU, of another CPU model, or of a GPU.

    None if there is no readable file.
    """
    path = ceilings_path(threads or host.default_threads().number, cpu_model, gpu)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Ceilings)
    except (OSError, ValueError, RecursionError):
        return None
    return found if found.schema in READABLE_SCHEMAS else None


def save_ceilings(ceilings: Ceilings) -> Path:
    """Writes the ceilings atomically, and returns the path."""
    path = ceilings_path(ceilings.threads, ceilings.cpu_model, ceilings.gpu)
    write_atomically(path, json.dumps(attrs.asdict(ceilings), indent=2) + "\n")
    return path


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _cpu_model() -> str:
    return host.describe(threads=1)["cpu_model"] or platform.machine()
