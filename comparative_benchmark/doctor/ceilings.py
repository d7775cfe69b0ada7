"""What this machine can reach at best, and how close to it a result comes."""

import importlib.util
import json
import math
import os
import platform
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import cattrs
import psutil

from comparative_benchmark.harness import conditions, host
from openxla.benchmark.root import root_dir

DATA_TYPES = ("fp32", "fp16", "bf16")
LIBRARIES = ("torch", "jax", "numpy")

_SCHEMA = 1
_TIMEOUT_S = 120.0
# A buffer of four times the last-level cache leaves little of it there.
_CACHE_MULTIPLE = 4
_SMALLEST_BUFFER_BYTES = 256 * 2**20
_PACKAGE = "comparative_benchmark.doctor"


class CeilingsError(Exception):
    """The ceilings could not be measured."""


@attrs.frozen(kw_only=True)
class Gemm:
    """The best rate of a square matrix product, over several sizes and repeats."""

    data_type: str
    library: str
    version: str
    size: int
    gflops: float = attrs.field(validator=attrs.validators.gt(0))


@attrs.frozen(kw_only=True)
class Copy:
    """The best rate of a copy in memory; bytes read and bytes written both count."""

    threads: int
    buffer_bytes: int
    version: str
    gb_per_s: float = attrs.field(validator=attrs.validators.gt(0))


@attrs.frozen(kw_only=True)
class Ceilings:
    """What a CPU was measured to reach with so many threads.

    Attributes:
      gemms: one for each library and data type that could be measured.
      copies: one for one thread, one for all.
      skipped: what could not be measured, and why.
      contended: others took CPU time meanwhile (None: not known), so the truth is higher.
    """

    cpu_model: str
    threads: int
    date: str
    gemms: tuple[Gemm, ...]
    copies: tuple[Copy, ...]
    skipped: tuple[str, ...] = ()
    contended: bool | None = None
    schema: int = _SCHEMA

    def best_gemm(self, data_type: str) -> Gemm | None:
        """Returns the fastest product of a data type, over libraries."""
        found = [gemm for gemm in self.gemms if gemm.data_type == data_type]
        return max(found, key=lambda gemm: gemm.gflops, default=None)

    def best_copy(self) -> Copy | None:
        """Returns the fastest copy with no more threads than these ceilings are for."""
        found = [copy for copy in self.copies if copy.threads <= self.threads]
        return max(found, key=lambda copy: copy.gb_per_s, default=None)


def share_of_roof(
    flops: float | None,
    bytes_moved: float | None,
    latency_ms: float,
    ceilings: Ceilings,
    data_type: str,
) -> float | None:
    """Returns the shortest time that the roofline allows over the time that was taken.

    The shortest time is the longer one of `flops / peak` and `bytes / bandwidth` (Williams,
    Waterman and Patterson, "Roofline", CACM 52(4), 2009): arithmetic and transfers overlap at best.

    It can not tell which code is slow, nor whether flops were worth their while. Flops and bytes
    are those that the model needs (`WorkloadCost`), not those that a compiler made of it, so that
    all competitors have the same roof. Elementwise work is not in them: where it prevails, a small
    share is no fault of the compiler. Weights that stay in the caches move faster than the copy,
    and ceilings measured on a busy machine are too low: both can lift the result above 1, which
    then says that the ceiling does not fit. Programs of mixed data types are judged by one peak.

    Args:
      flops: floating-point operations of one iteration, a multiply-add counted as two.
      bytes_moved: bytes of weights, inputs and outputs, each once.
      latency_ms: of one iteration.
      ceilings: of this machine, for the same number of threads.
      data_type: "fp32", "fp16" or "bf16".

    Returns:
      The share; None where a number is missing, not finite or not positive, or where there is no
      ceiling to compare with. Missing flops or bytes are None: one alone gives no roof.
    """
    gemm, copy = ceilings.best_gemm(data_type), ceilings.best_copy()
    if flops is None or bytes_moved is None or gemm is None or copy is None:
        return None
    if not all(map(math.isfinite, (flops, bytes_moved, latency_ms))):
        return None
    if min(flops, bytes_moved) < 0 or max(flops, bytes_moved) == 0 or latency_ms <= 0:
        return None
    shortest_s = max(flops / (gemm.gflops * 1e9), bytes_moved / (copy.gb_per_s * 1e9))
    return shortest_s * 1e3 / latency_ms


def ceilings_path(threads: int, cpu_model: str | None = None) -> Path:
    """Returns the file under the artifact root that holds the ceilings of this CPU."""
    slug = re.sub(r"[^a-z0-9]+", "-", (cpu_model or _cpu_model()).lower()).strip("-")
    return root_dir() / f"ceilings-{slug}-{threads}.json"


def load_ceilings(threads: int | None = None, cpu_model: str | None = None) -> Ceilings | None:
    """Returns the ceilings of this CPU, or the one named; None where no file can be read."""
    path = ceilings_path(threads or host.usable_cpus(), cpu_model)
    try:
        found = cattrs.structure(json.loads(path.read_text(encoding="utf-8")), Ceilings)
    except (OSError, ValueError, cattrs.BaseValidationError):
        return None
    return found if found.schema == _SCHEMA else None


def save_ceilings(ceilings: Ceilings) -> Path:
    """Writes the ceilings, whole or not at all, and returns where."""
    path = ceilings_path(ceilings.threads, ceilings.cpu_model)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_text(json.dumps(attrs.asdict(ceilings), indent=2) + "\n", encoding="utf-8")
    draft.replace(path)
    return path


def measure_ceilings(
    threads: int | None = None, say: Callable[[str], None] = lambda _: None
) -> Ceilings:
    """Measures; each library and data type in a process of its own. Takes about a minute.

    Raises:
      CeilingsError: when not one product could be measured.
    """
    threads = threads or host.usable_cpus()
    before = _snapshot_with_children()
    gemms, skipped = [], []
    for library, data_type in _products():
        answer = _child("_gemm", library, data_type, str(threads))
        name = f"{library} {data_type}"
        if isinstance(answer, str):
            skipped.append(f"{name}: {answer}")
            say(f"{name}: {answer}")
            continue
        gemms.append(Gemm(library=library, data_type=data_type, **answer))
        say(f"{name}: {gemms[-1].gflops:.3g} GFLOP/s at {gemms[-1].size}")
    if not gemms:
        raise CeilingsError(f"no matrix product could be measured: {'; '.join(skipped)}")
    copies = []
    size = buffer_bytes()
    for count in sorted({1, threads}):
        answer = _child("_copy", str(size), str(count))
        if isinstance(answer, str):
            skipped.append(f"copy, {count} threads: {answer}")
            continue
        copies.append(Copy(threads=count, buffer_bytes=size, **answer))
        say(f"copy, {count} threads: {copies[-1].gb_per_s:.3g} GB/s")
    after = _snapshot_with_children()
    cpu_ms, wall_ms = (after.cpu_ns - before.cpu_ns) / 1e6, (after.time_ns - before.time_ns) / 1e6
    meanwhile = conditions.between(
        before, after, own_cpu_ms=cpu_ms, wall_ms=wall_ms, threads=threads
    )
    return Ceilings(
        cpu_model=_cpu_model(),
        threads=threads,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        gemms=tuple(gemms),
        copies=tuple(copies),
        skipped=tuple(skipped),
        contended=meanwhile.contended,
    )


def buffer_bytes(root: Path = conditions.ROOT) -> int:
    """Returns the size of a copy's buffer: beyond all last-level caches, within the memory."""
    wanted = max(_SMALLEST_BUFFER_BYTES, _CACHE_MULTIPLE * last_level_cache_bytes(root))
    # Two buffers, and half of the memory for others.
    return int(min(wanted, psutil.virtual_memory().available // 4))


def last_level_cache_bytes(root: Path = conditions.ROOT) -> int:
    """Returns the size of all last-level caches together; 0 where it is not told."""
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


def _products() -> Iterator[tuple[str, str]]:
    """Yields the libraries that are installed with the data types that they multiply."""
    for library in LIBRARIES:
        if importlib.util.find_spec(library):  # looks for it, does not import it
            for data_type in DATA_TYPES:
                if library != "numpy" or data_type == "fp32":
                    yield library, data_type


def _child(module: str, *arguments: str) -> dict[str, Any] | str:
    """Returns what a measuring process answers, or why it does not."""
    command = [sys.executable, "-m", f"{_PACKAGE}.{module}", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_TIMEOUT_S:.0f} s"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"ended with {done.returncode}"
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _snapshot_with_children() -> conditions.Snapshot:
    """Returns a snapshot that counts the measuring processes as ours, and not as foreign."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    children_ns = int((usage.ru_utime + usage.ru_stime) * 1e9)
    snapshot = conditions.take()
    return attrs.evolve(snapshot, cpu_ns=snapshot.cpu_ns + children_ns)


def _cpu_model() -> str:
    return host.describe(threads=1)["cpu_model"] or platform.machine()
