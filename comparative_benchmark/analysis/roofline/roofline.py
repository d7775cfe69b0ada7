"""Ceilings of a CPU or a GPU, and how close a result comes to them."""

import math
from collections.abc import Iterable, Sequence

import attrs

SCHEMA = 2
# Files of schema 1 are for CPUs; fields that they lack have a default.
READABLE_SCHEMAS = (1, SCHEMA)


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
        found = [gemm for gemm in self.gemms if gemm.data_type == data_type]
        return max(found, key=lambda gemm: gemm.gflops, default=None)

    def unmeasured(self, data_types: Iterable[str]) -> tuple[str, ...]:
        """Returns the data types that were never tried."""
        tried = {gemm.data_type for gemm in self.gemms}
        # "torch int8: why", or "torch int8 after 512: why".
        tried |= {word.rstrip(":") for line in self.skipped for word in line.split()[1:2]}
        return tuple(name for name in data_types if name not in tried)

    def best_copy(self) -> Copy | None:
        """Returns the fastest copy with no more threads than these ceilings are for."""
        found = [
            copy
            for copy in self.copies
            if copy.threads is None or self.threads is None or copy.threads <= self.threads
        ]
        return max(found, key=lambda copy: copy.gb_per_s, default=None)


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
