"""Ceilings of a CPU or a GPU, and how close a result comes to them.

`cbs doctor --ceilings` measures this machine's ceilings and stores them for later results. Child
processes measure, each in one library, with individual and total time limits.
"""

import importlib.util
import json
import math
import platform
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import msgspec

from comparative_benchmark.analysis.machine import conditions, host
from comparative_benchmark.backends.host_settings import free_bytes
from openxla.benchmark import devices
from openxla.benchmark.files import write_atomically
from openxla.benchmark.installation import root_dir

SCHEMA = 2
# Files of schema 1 are for CPUs; fields that they lack have a default.
READABLE_SCHEMAS = (1, SCHEMA)
_TIMEOUT_S = 120.0
# A process with less time would end before its library is imported.
_LEAST_S = 4.0
NO_TIME_LEFT = "no time left"
_PACKAGE = "comparative_benchmark.analysis.roofline"
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
COPY = "copy"
# The most useful first, so that a short budget leaves the ceilings of most results. All types of
# one library come first: a new type is worth more than a second opinion on another.
MEASURED = {
    "torch": (COPY, "bf16", "fp32", "tf32", "fp16", "fp8", "int8"),
    "jax": (COPY, "bf16", "fp32", "tf32", "fp16"),
}
# "cpu" or "gpu" for each device that this suite's users can have; no phones.
ACCELERATORS = {
    device.name: device.accelerator_type
    for device in devices.ALL_DEVICES
    if device.host_type != "mobile" and device.accelerator_type in ("cpu", "gpu")
}


class CeilingsError(Exception):
    """The ceilings could not be measured.

    Attributes:
      summary: states that nothing could be measured.
      reasons: the reason for each library.
    """

    def __init__(self, summary: str, reasons: Sequence[str] = ()) -> None:
        super().__init__(f"{summary}: {'; '.join(reasons)}" if reasons else summary)
        self.summary = summary
        self.reasons = tuple(reasons)


@attrs.frozen(kw_only=True)
class Gemm:
    """The best rate of a square matrix product, over several sizes and repeats.

    Attributes:
      data_type: "tf32" is a product of fp32 matrices that TensorFloat-32 units compute; "fp32" is
        computed without them. "fp8" is e4m3 with one scale for each matrix and a bf16 result,
        "int8" has 8-bit factors, both signed or one of them unsigned, and 32-bit sums; its flops
        are operations on integers.
      size: rows and columns of the matrices.
      sm_mhz: clock of a GPU during the product; None on a CPU, or if the driver does not report it.
      held_back_by: what kept that clock from being higher; None if the driver does not report it.
    """

    data_type: str
    library: str
    version: str
    size: int
    gflops: float = attrs.field(validator=attrs.validators.gt(0))
    sm_mhz: int | None = None
    held_back_by: tuple[str, ...] | None = None


@attrs.frozen(kw_only=True)
class Copy:
    """The best rate of a copy in memory; bytes read and bytes written both count.

    A read-only kernel may exceed this bandwidth, because memory then does not switch between
    reading and writing.

    Attributes:
      threads: threads of the CPU; None for a copy within the memory of a GPU.
      sm_mhz, held_back_by: see `Gemm`.
    """

    threads: int | None
    buffer_bytes: int
    version: str
    gb_per_s: float = attrs.field(validator=attrs.validators.gt(0))
    library: str = "numpy"
    sm_mhz: int | None = None
    held_back_by: tuple[str, ...] | None = None


@attrs.frozen(kw_only=True)
class Ceilings:
    """Measured ceilings of a CPU with a number of threads, or of a GPU.

    Attributes:
      cpu_model: CPU model of the machine, even if a GPU was measured.
      threads: None for a GPU.
      gemms: one for each library and data type that could be measured.
      copies: one for one thread, one for all; only one for a GPU.
      skipped: what could not be measured, and why.
      contended: whether others took CPU time meanwhile, so that the true ceilings are higher; None
        if unknown, as on GPUs.
      gpu: name of the GPU, as its driver reports it; None if the CPU was measured.
    """

    cpu_model: str
    threads: int | None
    date: str
    gemms: tuple[Gemm, ...]
    copies: tuple[Copy, ...]
    skipped: tuple[str, ...] = ()
    contended: bool | None = None
    gpu: str | None = None
    schema: int = SCHEMA

    def best_gemm(self, data_type: str) -> Gemm | None:
        """Returns the fastest product of a data type, over libraries."""
        gemms = [gemm for gemm in self.gemms if gemm.data_type == data_type]
        return max(gemms, key=lambda gemm: gemm.gflops, default=None)

    def unmeasured(self, data_types: Iterable[str]) -> tuple[str, ...]:
        """Returns the data types that were never tried."""
        tried = {gemm.data_type for gemm in self.gemms}
        # "torch int8: why", or "torch int8 after size 512: why".
        reasons = (line for line in self.skipped if NO_TIME_LEFT not in line)
        tried |= {word.rstrip(":") for line in reasons for word in line.split()[1:2]}
        return tuple(name for name in data_types if name not in tried)

    def best_copy(self) -> Copy | None:
        """Returns the fastest copy with no more threads than these ceilings are for."""
        copies = [
            copy
            for copy in self.copies
            if copy.threads is None or self.threads is None or copy.threads <= self.threads
        ]
        return max(copies, key=lambda copy: copy.gb_per_s, default=None)


def share_of_roof(
    flops: float | None,
    bytes_moved: float | None,
    latency_ms: float,
    ceilings: Ceilings,
    data_type: str,
) -> float | None:
    """Returns the shortest time that the roofline allows over the measured time.

    The shortest time is the longer one of `flops / peak` and `bytes / bandwidth` (Williams,
    Waterman and Patterson, "Roofline", CACM 52(4), 2009): arithmetic and transfers overlap at best.

    The share does not show which code is slow, nor whether the flops were necessary. Flops and
    bytes are the model's (`WorkloadCost`), not the compiled program's, so that all competitors have
    the same roof. Elementwise work is not included: if it dominates, a small share is not the
    compiler's fault. The result can exceed 1, which means that the ceiling does not fit: weights
    that stay in the caches move faster than the copy, reading alone may be faster as well, and
    ceilings measured on a busy machine are too low. Programs of mixed data types are compared with
    one peak.

    Args:
      flops: floating-point operations of one iteration, a multiply-add counted as two.
      bytes_moved: bytes of weights, inputs and outputs, each once.
      latency_ms: latency of one iteration.
      ceilings: ceilings of this machine for the same number of threads, or of this GPU.
      data_type: "fp32", "tf32", "fp16", "bf16", "fp8" or "int8".

    Returns:
      The share; None if a number is missing, not finite or not positive, or if there is no ceiling
      to compare with. Missing flops or bytes are None: one alone gives no roof.
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
        bf16, fp32, tf32, fp16, fp8 and int8 on a GPU. The rest is in `skipped` with "no time left".
        None for no limit but two minutes per process.

    Raises:
      CeilingsError: nothing could be measured; it gives the reasons.
    """
    budget = Budget.of(budget_s)
    if ACCELERATORS.get(device) == "gpu":
        return measure_gpu(_cpu_model(), say, budget)
    count = threads or host.default_threads().number
    return measure_cpu(_cpu_model(), count, say, budget)


def complete_ceilings(ceilings: Ceilings, say: Callable[[str], None] = lambda _: None) -> Ceilings:
    """Measures what older ceilings of this machine's CPU lack, and returns the complete ones.

    They lack products of some data types. Products that could not be measured stay missing.
    Ceilings of a GPU are returned unchanged: `cbs doctor --ceilings -device host-gpu` measures
    them.
    """
    if ceilings.threads is None or not (missing := ceilings.unmeasured(DATA_TYPES)):
        return ceilings
    skipped: list[str] = []
    gemms = list(_gemms(ceilings.threads, say, Budget(), skipped, missing))
    skipped = [*ceilings.skipped, *skipped]
    return attrs.evolve(ceilings, gemms=(*ceilings.gemms, *gemms), skipped=tuple(skipped))


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
        ceilings = msgspec.json.decode(path.read_bytes(), type=Ceilings)
    except (OSError, ValueError, RecursionError):
        return None
    return ceilings if ceilings.schema in READABLE_SCHEMAS else None


def save_ceilings(ceilings: Ceilings) -> Path:
    """Writes the ceilings atomically, and returns the path."""
    path = ceilings_path(ceilings.threads, ceilings.cpu_model, ceilings.gpu)
    write_atomically(path, json.dumps(attrs.asdict(ceilings), indent=2) + "\n")
    return path


@attrs.frozen(kw_only=True)
class Answer:
    """A process's last output, and its failure, if any.

    Attributes:
      values: its last line of JSON; None without one.
      problem: empty on success. Both are set if it had measured before it failed.
    """

    values: Mapping[str, Any] | None = None
    problem: str = ""


@attrs.frozen
class Budget:
    """Time that all processes together may take.

    Attributes:
      ends_s: on the clock of `time.monotonic`, which all processes of a system share; None if only
        each process has a limit.
    """

    ends_s: float | None = None

    @classmethod
    def of(cls, seconds: float | None) -> "Budget":
        """Returns a budget that starts now."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    def timeout_s(self) -> float:
        """Returns the time limit of the next process; 0 if starting it is not worthwhile."""
        left = _TIMEOUT_S if self.ends_s is None else self.ends_s - time.monotonic()
        return min(left, _TIMEOUT_S) if left >= _LEAST_S else 0.0


def ask(module: str, arguments: Sequence[str], budget: Budget) -> Answer:
    """Runs a module of this package in a child process and returns its answer.

    Args:
      module: it prints lines of JSON, and each line replaces the one before.
      arguments: arguments of the module.
      budget: the process is not started if it is spent, and killed when it ends.
    """
    timeout_s = budget.timeout_s()
    if not timeout_s:
        return Answer(problem=NO_TIME_LEFT)
    command = [sys.executable, "-P", "-m", f"{_PACKAGE}.{module}", *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        # This is bytes even in text mode.
        printed = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
        reason = f"no answer within {timeout_s:.0f} s"
        if timeout_s < _TIMEOUT_S:
            reason = f"{NO_TIME_LEFT} ({reason})"
        return Answer(values=_last(printed), problem=reason)
    values, lines = _last(done.stdout), done.stderr.strip().splitlines()
    if done.returncode == 0 and values is not None:
        return Answer(values=values)
    reason = lines[-1].strip() if lines else f"exit code {done.returncode}, without output"
    return Answer(values=values, problem=reason)


def _last(printed: str) -> Mapping[str, Any] | None:
    """Returns the last whole line of JSON; libraries may print other lines."""
    for line in reversed(printed.splitlines()):
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if isinstance(document, dict):
            return document
    return None


def measure_cpu(
    cpu_model: str, threads: int, say: Callable[[str], None], budget: Budget
) -> Ceilings:
    """Measures each library and data type in a child process. Takes about a minute.

    Copies come first, so that a short budget still gives ceilings for some data types.

    Raises:
      CeilingsError: copies or matrix products could not be measured.
    """
    before = _snapshot_with_children()
    skipped: list[str] = []
    copies = list(_copies(threads, say, budget, skipped))
    gemms = list(_gemms(threads, say, budget, skipped))
    if not (gemms and copies):
        raise CeilingsError("copies or matrix products could not be measured", skipped)
    after = _snapshot_with_children()
    meanwhile = conditions.between(before, after, own_cpu_ms=0, wall_ms=0, threads=threads)
    return Ceilings(
        cpu_model=cpu_model,
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
    return min(wanted, free_bytes() // 4)


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
    threads: int, say: Callable[[str], None], budget: Budget, skipped: list[str]
) -> Iterator[Copy]:
    size = buffer_bytes()
    for count in sorted({1, threads}):
        name = f"copy, {count} thread{'s' * (count > 1)}"
        answer = ask("_cpu_rates", ("copy", str(size), str(count)), budget)
        if answer.values is None:
            skipped.append(f"{name}: {answer.problem}")
            continue
        copy = Copy(threads=count, buffer_bytes=size, **answer.values)
        say(f"{name}: {copy.gb_per_s:.3g} GB/s")
        yield copy


def _gemms(
    threads: int,
    say: Callable[[str], None],
    budget: Budget,
    skipped: list[str],
    data_types: Collection[str] = DATA_TYPES,
) -> Iterator[Gemm]:
    for library, data_type in products():
        if data_type not in data_types:
            continue
        name = f"{library} {data_type}"
        answer = ask("_cpu_rates", ("gemm", library, data_type, str(threads)), budget)
        if answer.values is None:
            skipped.append(f"{name}: {answer.problem}")
            say(skipped[-1])
            continue
        gemm = Gemm(library=library, data_type=data_type, **answer.values)
        say(f"{name}: {gemm.gflops:.3g} GFLOP/s at size {gemm.size}")
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


@attrs.define
class _GpuRates:
    """Measurements so far.

    Attributes:
      gpu: its name, as the first library reported it.
      absent: by library, why it cannot measure at all.
    """

    gpu: str | None = None
    gemms: list[Gemm] = attrs.field(factory=list)
    copies: list[Copy] = attrs.field(factory=list)
    skipped: list[str] = attrs.field(factory=list)
    absent: dict[str, str] = attrs.field(factory=dict)


def measure_gpu(
    cpu_model: str, say: Callable[[str], None], budget: Budget, *, child_options: Sequence[str] = ()
) -> Ceilings:
    """Measures each library and data type in a child process. Takes about two minutes.

    Args:
      cpu_model: CPU model of the machine.
      say: called with progress messages.
      budget: budget of all processes together.
      child_options: options of each process, e.g. `--device cpu` for a rehearsal without a GPU.

    Raises:
      CeilingsError: nothing could be measured, with a reason for each library.
    """
    rates = _GpuRates()
    for library, what in _tasks(rates):
        _measure_one(library, what, rates, say, budget, child_options)
    reasons = [f"{library}: {reason}" for library, reason in rates.absent.items()] + rates.skipped
    if not rates.gemms and not rates.copies:
        raise CeilingsError("no library could measure the GPU", reasons)
    return Ceilings(
        cpu_model=cpu_model,
        threads=None,
        gpu=rates.gpu,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        gemms=tuple(rates.gemms),
        copies=tuple(rates.copies),
        skipped=tuple(reasons),
    )


def _tasks(rates: _GpuRates) -> Iterator[tuple[str, str]]:
    """Yields the remaining measurements, without those that earlier ones made useless."""
    for library, things in MEASURED.items():
        if importlib.util.find_spec(library) is None:  # finds it without importing it
            rates.absent[library] = "not installed"
        for what in things:
            if library in rates.absent:
                break
            if what == COPY and rates.copies:
                continue  # one copy shows the bandwidth
            yield library, what


def _measure_one(
    library: str,
    what: str,
    rates: _GpuRates,
    say: Callable[[str], None],
    budget: Budget,
    child_options: Sequence[str],
) -> None:
    arguments = [library, what, *child_options]
    if budget.ends_s is not None:
        arguments += ["--until", str(budget.ends_s)]
    answer = ask("_gpu_rates", arguments, budget)
    values = dict(answer.values or {})
    if reason := values.pop("no_device", None):
        rates.absent[library] = reason
        say(f"{library}: {reason}")
        return
    name = f"{library} {what}"
    if answer.problem:
        # Measurements before a failure count.
        where = f" after size {values['size']}" if "size" in values else ""
        rates.skipped.append(f"{name}{where}: {answer.problem}")
        say(rates.skipped[-1])
    if not values:
        return
    gpu = values.pop("device_name")
    rates.gpu = rates.gpu or gpu
    if values["held_back_by"] is not None:
        values["held_back_by"] = tuple(values["held_back_by"])
    if what == COPY:
        rates.copies.append(Copy(threads=None, library=library, **values))
        say(f"{name}: {rates.copies[-1].gb_per_s:.4g} GB/s")
    else:
        rates.gemms.append(Gemm(library=library, data_type=what, **values))
        say(f"{name}: {rates.gemms[-1].gflops / 1e3:.3g} TFLOP/s at size {rates.gemms[-1].size}")


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _cpu_model() -> str:
    return host.describe(threads=1)["cpu_model"] or platform.machine()
