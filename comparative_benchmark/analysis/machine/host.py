"""Facts about this machine that results record."""

import os
import platform
import subprocess
from collections.abc import Sequence
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from comparative_benchmark.backends import host_settings as processors

# The rule that determined the number of threads.
PHYSICAL_CORES, USABLE_CPUS, ASKED = "physical cores", "usable CPUs", "--threads"


class Threads(NamedTuple):
    """The number of threads of each backend, and the rule that determined it."""

    number: int
    rule: str


def usable_cpus() -> int:
    """Returns how many CPUs this process may run on."""
    return len(processors.usable_cpus())


def default_threads(cpus: Sequence[int] = (), root: Path = Path("/")) -> Threads:
    """Returns one thread per core, the default of PyTorch and ONNX Runtime.

    One per CPU if the system does not report which CPUs share a core.

    Args:
      cpus: CPUs that workers are pinned to; empty for all that this process may use.
      root: directory that contains `sys`.
    """
    available = cpus or processors.usable_cpus()
    by_core = processors.cores(available, root)
    if by_core is None:
        return Threads(len(available), USABLE_CPUS)
    return Threads(len(by_core), PHYSICAL_CORES)


def describe(
    *, threads: int, cpus: Sequence[int] = (), threads_from: str | None = None
) -> dict[str, Any]:
    """Returns CPU model, counts, memory, load and system as JSON values."""
    return {
        "cpu_model": cpu_model(),
        "architecture": platform.machine(),
        "logical_cpus": psutil.cpu_count(),
        "physical_cpus": psutil.cpu_count(logical=False),
        "usable_cpus": usable_cpus(),
        "pinned_cpus": list(cpus),
        "threads": threads,
        "threads_from": threads_from,
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": psutil.virtual_memory().total,
        "memory_available_bytes": psutil.virtual_memory().available,
        "load_average": list(os.getloadavg()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "hostname": platform.node(),
    }


def python_environment() -> list[dict[str, str]]:
    """Returns the installed packages, as `pip list --format json` does."""
    # If two have the same name, the first on the path is imported.
    # An interrupted installation leaves a folder without metadata.
    versions = {
        dist.metadata["Name"]: dist.version
        for dist in reversed(list(distributions()))
        if dist.read_text("METADATA") or dist.read_text("PKG-INFO")
    }
    return [{"name": name, "version": versions[name]} for name in sorted(versions, key=str.lower)]


def git_revision() -> str | None:
    """Returns the revision of this file's checkout, with `-dirty` if it was changed."""
    git = partial(subprocess.run, cwd=Path(__file__).parent, text=True, timeout=10, check=True)
    try:
        # The suite may be installed below the checkout of another project.
        git(["git", "ls-files", "--error-unmatch", Path(__file__).name], capture_output=True)
        done = git(["git", "describe", "--always", "--dirty", "--abbrev=40"], capture_output=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return str(done.stdout).strip() or None


def cpu_model() -> str | None:
    """Returns the name of the CPU's model, or ARM's numbers of its vendor and part."""
    lines = (line.partition(":") for line in (_read("/proc/cpuinfo") or "").splitlines())
    facts = {name.strip().lower(): value.strip() for name, _, value in lines}
    arm = " ".join(facts[name] for name in ("cpu implementer", "cpu part") if name in facts)
    return facts.get("model name") or arm or platform.processor() or None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None
