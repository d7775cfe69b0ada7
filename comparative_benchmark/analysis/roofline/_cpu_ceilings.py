"""Measures the ceilings of a CPU."""

import importlib.util
import re
import resource
from collections.abc import Callable, Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path

import attrs
import psutil

from comparative_benchmark.analysis.machine import conditions
from comparative_benchmark.analysis.roofline import _children
from comparative_benchmark.analysis.roofline.roofline import Ceilings, CeilingsError, Copy, Gemm

DATA_TYPES = ("fp32", "fp16", "bf16", "int8")
# Libraries with the data types of their products here. Factors of int8 have 8 bits, sums 32; if a
# library's kernels require it, one of the factors is unsigned.
PRODUCTS = {
    "torch": ("fp32", "fp16", "bf16", "int8"),
    "jax": ("fp32", "fp16", "bf16", "int8"),
    "numpy": ("fp32",),
    "onnxruntime": ("int8",),
}

# A buffer of four times the last-level cache leaves little of it there.
_CACHE_MULTIPLE = 4
_SMALLEST_BUFFER_BYTES = 256 * 2**20


def measure(
    cpu_model: str, threads: int, say: Callable[[str], None], budget: _children.Budget
) -> Ceilings:
    """Measures each library and data type in a child process. Takes about a minute.

    Copies come first, so that a short budget still gives ceilings for some data types.

    Raises:
      CeilingsError: no matrix product could be measured.
    """
    before = _snapshot_with_children()
    skipped: list[str] = []
    copies = list(_copies(threads, say, budget, skipped))
    gemms = list(_gemms(threads, say, budget, skipped))
    if not gemms:
        raise CeilingsError("no matrix product could be measured", skipped)
    after = _snapshot_with_children()
    cpu_ms, wall_ms = (after.cpu_ns - before.cpu_ns) / 1e6, (after.time_ns - before.time_ns) / 1e6
    meanwhile = conditions.between(
        before, after, own_cpu_ms=cpu_ms, wall_ms=wall_ms, threads=threads
    )
    return Ceilings(
        cpu_model=cpu_model,
        threads=threads,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        gemms=tuple(gemms),
        copies=tuple(copies),
        skipped=tuple(skipped),
        contended=meanwhile.contended,
    )


def complete(found: Ceilings, say: Callable[[str], None]) -> Ceilings:
    """Measures the products of missing data types and returns the complete ceilings.

    They are missing in files of older suites. Products that could not be measured stay missing.
    """
    if found.threads is None or not (missing := found.unmeasured(DATA_TYPES)):
        return found
    skipped: list[str] = []
    gemms = list(_gemms(found.threads, say, _children.Budget(), skipped, missing))
    return attrs.evolve(found, gemms=(*found.gemms, *gemms), skipped=(*found.skipped, *skipped))


def buffer_bytes(root: Path = conditions.ROOT) -> int:
    """Returns the size of a copy's buffer: beyond all last-level caches, within the memory."""
    wanted = max(_SMALLEST_BUFFER_BYTES, _CACHE_MULTIPLE * last_level_cache_bytes(root))
    # Two buffers, and half of the memory for others.
    return int(min(wanted, psutil.virtual_memory().available // 4))


def last_level_cache_bytes(root: Path = conditions.ROOT) -> int:
    """Returns the total size of all last-level caches; 0 if unknown."""
    caches: dict[str, int] = {}
    for cpu in (root / "sys/devices/system/cpu").glob("cpu[0-9]*"):
        indices = sorted(cpu.glob("cache/index[0-9]*"), key=lambda path: int(path.name[5:]))
        if not indices:
            continue
        try:
            shared = (indices[-1] / "shared_cpu_list").read_text(encoding="ascii").strip()
            text = (indices[-1] / "size").read_text(encoding="ascii").strip()
        except OSError:
            continue
        if match := re.fullmatch(r"(\d+)([KMG])", text):
            caches[shared] = int(match[1]) * {"K": 2**10, "M": 2**20, "G": 2**30}[match[2]]
    return sum(caches.values())


def _copies(
    threads: int, say: Callable[[str], None], budget: _children.Budget, skipped: list[str]
) -> Iterator[Copy]:
    size = buffer_bytes()
    for count in sorted({1, threads}):
        name = f"copy, {count} threads"
        answer = _children.ask("_copy", (str(size), str(count)), budget)
        if answer.values is None:
            skipped.append(f"{name}: {answer.problem}")
            continue
        copy = Copy(threads=count, buffer_bytes=size, **answer.values)
        say(f"{name}: {copy.gb_per_s:.3g} GB/s")
        yield copy


def _gemms(
    threads: int,
    say: Callable[[str], None],
    budget: _children.Budget,
    skipped: list[str],
    data_types: Collection[str] = DATA_TYPES,
) -> Iterator[Gemm]:
    for library, data_type in products():
        if data_type not in data_types:
            continue
        name = f"{library} {data_type}"
        answer = _children.ask("_gemm", (library, data_type, str(threads)), budget)
        if answer.values is None:
            skipped.append(f"{name}: {answer.problem}")
            say(skipped[-1])
            continue
        gemm = Gemm(library=library, data_type=data_type, **answer.values)
        say(f"{name}: {gemm.gflops:.3g} GFLOP/s at {gemm.size}")
        yield gemm


def products() -> Iterator[tuple[str, str]]:
    """Yields the installed libraries with the data types of their products."""
    for library, data_types in PRODUCTS.items():
        if importlib.util.find_spec(library):  # finds it without importing it
            for data_type in data_types:
                yield library, data_type


def _snapshot_with_children() -> conditions.Snapshot:
    """Returns a snapshot that counts the measuring processes as ours, and not as foreign."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    children_ns = int((usage.ru_utime + usage.ru_stime) * 1e9)
    snapshot = conditions.take()
    return attrs.evolve(snapshot, cpu_ns=snapshot.cpu_ns + children_ns)
