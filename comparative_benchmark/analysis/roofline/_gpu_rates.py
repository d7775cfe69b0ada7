"""Child process of `cbs doctor --ceilings -device host-gpu` for one rate of a GPU in one library.

`python -m comparative_benchmark.analysis.roofline._gpu_rates LIBRARY RATE`, where RATE is copy,
fp32, tf32, bf16, fp16, fp8 or int8, prints a line of JSON whenever it has found a better rate, so
that a killed process still gives a result. `{"no_device": "why"}`: the library cannot be used here.
"""

import argparse
import importlib
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import attrs
import numpy as np
import psutil

from comparative_benchmark.analysis.machine import gpu_state

ITEM_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
# Names in the libraries; matrices of TF32 products are fp32.
DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
SEED = 1
# The first compute capability that has units for a type.
_CAPABILITIES = {"tf32": (8, 0), "fp8": (8, 9), "int8": (7, 5)}
# Calls are asynchronous: a reading covers so many that waiting for the last one is negligible.
_READING_S, _MOST_CALLS = 0.02, 4096
# An idle GPU has low clocks, and takes a while to reach sustained ones.
_WARM_UP_S = 0.3
_READINGS_S, _FEWEST_READINGS = 0.6, 3
SIZES = (512, 1024, 2048, 4096, 8192, 16384)
# The rate grows with the size until power limits it: the best is among the largest.
_SIZES_TRIED = 3
# Products that are expected to take longer are skipped.
_LONGEST_S = 1.0
_COPY_BYTES = 2 * 2**30
_CACHE_MULTIPLE = 4
_CHECKED_SIZE, _CHECKED_ROWS = 1024, 8
# Relative error of a product: about 1e-6 in fp32, 3e-4 in TF32.
_TF32_ERROR = 3e-5


class NoDeviceError(Exception):
    """The library cannot be used here, or sees no GPU."""


class UnmeasurableError(Exception):
    """This library or this GPU does not support the measurement."""


@attrs.frozen
class Product:
    """A matrix product on the device.

    Attributes:
      call: starts left @ right and returns the result, which need not be complete.
      left, right: float[size, size], random: with constants the units draw less power, and clocks
        are higher than in any model (13 % were measured for zeros).
    """

    call: Callable[[], Any]
    left: Any
    right: Any


class Library(Protocol):
    """Operations that a library must provide."""

    version: str
    device_name: str

    def free_bytes(self) -> int:
        """Returns the free memory of the device."""

    def cache_bytes(self) -> int:
        """Returns the size of the last-level cache; 0 if the library does not report it."""

    def product(self, data_type: str, size: int) -> Product:
        """Returns a product of square matrices of that size.

        Raises:
          UnmeasurableError: the library or the device does not support the type.
        """

    def copy(self, size_bytes: int) -> Callable[[], Any]:
        """Returns a call that starts copying a buffer within the device's memory."""

    def wait(self, result: Any) -> None:
        """Waits until all calls up to the one that returned `result` are complete."""

    def to_host(self, matrix: Any) -> Any:
        """Returns a matrix as a numpy array of float64."""

    def release(self) -> None:
        """Frees memory that is no longer referenced."""


def check_capability(capability: tuple[int, ...], data_type: str) -> None:
    """Raises `UnmeasurableError` if a compute capability is too small for a type.

    Other units would compute it, so it would not be a ceiling of this type.
    """
    needed = _CAPABILITIES.get(data_type)
    if needed and capability and tuple(capability) < needed:
        have, need = (".".join(map(str, version)) for version in (capability, needed))
        raise UnmeasurableError(
            f"compute capability {have} does not support {data_type} (needs {need})"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether a library's error means that the device's memory is full."""
    signs = ("out of memory", "RESOURCE_EXHAUSTED", "ALLOC_FAILED")
    return "OutOfMemory" in type(error).__name__ or any(sign in str(error) for sign in signs)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or its type if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]


class Torch:
    """PyTorch, passed as a module, so that this one does not import it."""

    def __init__(self, torch: Any, device: str) -> None:
        self._torch = torch
        self._on_gpu = device == "gpu"
        if self._on_gpu and not torch.cuda.is_available():
            raise NoDeviceError(f"torch {torch.__version__} finds no CUDA device")
        self._device = torch.device("cuda", 0) if self._on_gpu else torch.device("cpu")
        self.version = str(torch.__version__)
        self.device_name = torch.cuda.get_device_name(self._device) if self._on_gpu else "cpu"
        torch.manual_seed(SEED)

    def free_bytes(self) -> int:
        """Returns the driver's value: memory of other processes is not free."""
        if not self._on_gpu:
            return psutil.virtual_memory().available
        free, _ = self._torch.cuda.mem_get_info(self._device)
        return int(free)

    def cache_bytes(self) -> int:
        """Returns the size of L2; 0 in older releases, which do not report it."""
        if not self._on_gpu:
            return 0
        properties = self._torch.cuda.get_device_properties(self._device)
        return int(getattr(properties, "L2_cache_size", 0))

    def product(self, data_type: str, size: int) -> Product:
        """Returns `torch.mm` into an existing result, `torch._scaled_mm` or `torch._int_mm`."""
        if self._on_gpu:
            check_capability(self._torch.cuda.get_device_capability(self._device), data_type)
        if data_type == "fp8":
            return self._scaled_product(size)
        if data_type == "int8":
            return self._integer_product(size)
        # "high" is TF32, "highest" is fp32 throughout.
        self._torch.set_float32_matmul_precision("high" if data_type == "tf32" else "highest")
        dtype = getattr(self._torch, DTYPES[data_type])
        left, right = (self._random((size, size), dtype) for _ in range(2))
        result = self._torch.empty_like(left)
        return Product(lambda: self._torch.mm(left, right, out=result), left, right)

    def copy(self, size_bytes: int) -> Callable[[], Any]:
        """Returns `Tensor.copy_`, a copy by the CUDA driver."""
        source = self._random((size_bytes // 4,), self._torch.float32)
        target = self._torch.empty_like(source)
        return lambda: target.copy_(source)

    def wait(self, result: Any) -> None:
        """Waits for the device; on the CPU a call returns a complete result."""
        if self._on_gpu:
            self._torch.cuda.synchronize(self._device)

    def to_host(self, matrix: Any) -> Any:
        """Converts to float64, which numpy has."""
        return matrix.double().cpu().numpy()

    def release(self) -> None:
        """Empties the cache of the allocator."""
        if self._on_gpu:
            self._torch.cuda.empty_cache()

    def _scaled_product(self, size: int) -> Product:
        torch = self._torch
        if not (hasattr(torch, "float8_e4m3fn") and hasattr(torch, "_scaled_mm")):
            raise UnmeasurableError(f"torch {self.version} does not support fp8 products")
        left, transposed = (
            self._random((size, size), torch.bfloat16).to(torch.float8_e4m3fn) for _ in range(2)
        )
        right = transposed.t()  # the units take the second matrix by columns
        one = torch.ones((), dtype=torch.float32, device=self._device)

        def call() -> Any:
            return torch._scaled_mm(  # noqa: SLF001  # its users have no other name for it
                left,
                right,
                scale_a=one,
                scale_b=one,
                out_dtype=torch.bfloat16,
                # Sums in fewer bits: the fastest mode of the units is the ceiling.
                use_fast_accum=True,
            )

        return Product(call, left, right)

    def _integer_product(self, size: int) -> Product:
        torch = self._torch
        if not hasattr(torch, "_int_mm"):
            raise UnmeasurableError(f"torch {self.version} does not support int8 products")
        left, transposed = (
            torch.randint(-128, 128, (size, size), dtype=torch.int8, device=self._device)
            for _ in range(2)
        )
        right = transposed.t()  # the units take the second matrix by columns
        return Product(lambda: torch._int_mm(left, right), left, right)  # noqa: SLF001

    def _random(self, shape: tuple[int, ...], dtype: Any) -> Any:
        return self._torch.randn(shape, dtype=dtype, device=self._device)


class Jax:
    """JAX, passed as a module; XLA chooses between cuBLAS and its own kernels."""

    def __init__(self, jax: Any, device: str) -> None:
        self._jax = jax
        try:
            self._device = jax.devices(device)[0]
        except RuntimeError as error:
            raise NoDeviceError(
                f"JAX {jax.__version__} has no {device} device: {first_line(error)}"
            ) from error
        self._on_gpu = device == "gpu"
        self.version = str(jax.__version__)
        self.device_name = str(self._device.device_kind)
        self._key = jax.random.key(SEED)

    def free_bytes(self) -> int:
        """Returns the memory that JAX may still take; memory of other processes counts as free."""
        statistics = self._device.memory_stats() if self._on_gpu else None
        if not statistics:
            return psutil.virtual_memory().available
        return int(statistics["bytes_limit"] - statistics["bytes_in_use"])

    def cache_bytes(self) -> int:
        """Returns 0: JAX does not report it."""
        return 0

    def product(self, data_type: str, size: int) -> Product:
        """Returns a compiled `jax.numpy.matmul`."""
        if data_type in ("fp8", "int8"):
            raise UnmeasurableError(f"{data_type} is measured with torch only")
        if self._on_gpu:
            capability = getattr(self._device, "compute_capability", "")  # not on all platforms
            check_capability(_version(str(capability)), data_type)
        precisions = self._jax.lax.Precision
        # The default would be TF32 for fp32 matrices.
        precision = {"fp32": precisions.HIGHEST, "tf32": precisions.HIGH}.get(data_type)
        dtype = getattr(self._jax.numpy, DTYPES[data_type])
        left, right = (self._random((size, size), dtype) for _ in range(2))
        multiply = self._jax.jit(lambda a, b: self._jax.numpy.matmul(a, b, precision=precision))
        return Product(lambda: multiply(left, right), left, right)

    def copy(self, size_bytes: int) -> Callable[[], Any]:
        """Returns a compiled copy into a new buffer."""
        source = self._random((size_bytes // 4,), self._jax.numpy.float32)
        copy = self._jax.jit(self._jax.numpy.copy)
        return lambda: copy(source)

    def wait(self, result: Any) -> None:
        """Waits for that result: computations on one device run in order."""
        self._jax.block_until_ready(result)

    def to_host(self, matrix: Any) -> Any:
        """Converts by numpy."""
        return np.asarray(matrix).astype(np.float64)

    def release(self) -> None:
        """Does nothing: JAX frees memory by itself."""

    def _random(self, shape: tuple[int, ...], dtype: Any) -> Any:
        self._key, key = self._jax.random.split(self._key)
        with self._jax.default_device(self._device):
            return self._jax.block_until_ready(self._jax.random.normal(key, shape, dtype))


def _version(text: str) -> tuple[int, ...]:
    """Returns the numbers of a version such as "9.0"; empty for anything else."""
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isdigit() for part in parts) else ()


@attrs.frozen(kw_only=True)
class Timing:
    """The time of a call, and the clock of the GPU meanwhile.

    Attributes:
      seconds: median of the faster half of the readings. Slow ones were disturbed; the fastest one
        may have had a clock that the GPU cannot sustain.
    """

    seconds: float
    sm_mhz: int | None
    held_back_by: tuple[str, ...] | None


def time_calls(call: Callable[[], Any], wait: Callable[[Any], None]) -> Timing:
    """Returns the time of a call on a warm device.

    Args:
      call: starts the work and returns its result, which need not be complete.
      wait: waits until it is complete.
    """
    # the first call loads the driver's library, which takes longer than a reading
    gpu_state.read_gpus()
    wait(call())  # compiles, chooses an algorithm, allocates memory
    calls, spent_s, fastest_s = 1, 0.0, math.inf
    while spent_s < _WARM_UP_S:
        seconds = _reading(call, wait, calls)
        spent_s += seconds
        # By the fastest so far: a disturbed reading would make all others too short.
        fastest_s = min(fastest_s, seconds / calls)
        calls = max(1, min(math.ceil(_READING_S / fastest_s), _MOST_CALLS))
    readings: list[float] = []
    while len(readings) < _FEWEST_READINGS or sum(readings) < _READINGS_S:
        readings.append(_reading(call, wait, calls))
    readings.sort()
    clocks = _clocks_during(call, wait, calls)
    return Timing(
        seconds=statistics.median(readings[: (len(readings) + 1) // 2]) / calls,
        sm_mhz=clocks.sm_mhz if clocks else None,
        held_back_by=clocks.held_back_by if clocks else None,
    )


def _reading(call: Callable[[], Any], wait: Callable[[Any], None], calls: int) -> float:
    started, result = time.perf_counter(), None
    for _ in range(calls):
        result = call()
    wait(result)
    return time.perf_counter() - started


def _clocks_during(
    call: Callable[[], Any], wait: Callable[[Any], None], calls: int
) -> gpu_state.GpuClocks | None:
    """Returns the clocks while the calls run: an idle GPU has other clocks."""
    result = None
    for _ in range(calls):
        result = call()
    clocks = gpu_state.used(gpu_state.read_gpus())
    wait(result)
    return clocks


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints.

    Raises:
      SystemExit: it could not be measured; the message gives the reason.
    """
    options = _parser().parse_args(arguments)
    try:
        library = open_library(options.library, options.device)
    except NoDeviceError as error:
        print(json.dumps({"no_device": str(error)}))
        return
    try:
        if options.what == "copy":
            measure_copy(library, options.buffer_bytes)
        else:
            measure_product(library, options.what, options.sizes, until=options.until)
    except UnmeasurableError as error:
        raise SystemExit(str(error)) from error


def open_library(name: str, device: str) -> Library:
    """Imports a library and returns it with the device.

    Raises:
      NoDeviceError: it cannot be imported, or has no such device.
    """
    # By default JAX would reserve most of the memory, which leaves none to others.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError) as error:  # OSError: a library of CUDA that cannot be loaded
        raise NoDeviceError(f"cannot be imported: {first_line(error)}") from error
    return Torch(module, device) if name == "torch" else Jax(module, device)


def measure_product(
    library: Library, data_type: str, sizes: Sequence[int], *, until: float = math.inf
) -> None:
    """Prints the rate of the fastest size, among the largest that fit into the memory.

    Args:
      library: library to multiply with.
      data_type: type of the matrices.
      sizes: candidate sizes in ascending order; only some are tried.
      until: on the clock of `time.monotonic`; no further size is started after it.

    Raises:
      UnmeasurableError: there is no such product, or not enough memory for any size.
    """
    if data_type in ("fp32", "tf32"):
        _check_precision(library, data_type, min(_CHECKED_SIZE, *sizes))
    best, measured, took_s = 0.0, 0, 0.0
    for size in sizes_to_try(sizes, data_type, library.free_bytes()):
        expected_s = took_s * (size / measured) ** 3 if measured else 0.0
        if measured and (size < measured or expected_s > _LONGEST_S or time.monotonic() > until):
            break
        timing = _unless_out_of_memory(partial(_time_product, library, data_type, size))
        library.release()
        if timing is None:
            continue
        measured, took_s = size, timing.seconds
        gflops = 2 * size**3 / timing.seconds / 1e9
        if gflops > best:
            best = gflops
            _print(library, timing, size=size, gflops=gflops)
    if not measured:
        raise UnmeasurableError(f"not enough memory: {library.free_bytes() / 2**20:.0f} MiB free")


def sizes_to_try(sizes: Sequence[int], data_type: str, free_bytes: int) -> list[int]:
    """Returns the largest sizes that fit, ascending, then smaller ones in case memory runs out.

    They fit into half of the free memory: libraries need workspaces, and others memory.
    """
    # Two matrices and a result; fp8 ones are made from bf16, and their result is bf16.
    item_bytes = max(ITEM_BYTES[data_type], 2)
    fitting = [size for size in sizes if 3 * size**2 * item_bytes <= free_bytes / 2] or [sizes[0]]
    return fitting[-_SIZES_TRIED:] + fitting[-_SIZES_TRIED - 1 :: -1]


def measure_copy(library: Library, buffer_bytes: int = _COPY_BYTES) -> None:
    """Prints the bandwidth of a copy within the device's memory: bytes read plus bytes written.

    This differs from the bandwidth of reading, which a read-only kernel may exceed.

    Raises:
      UnmeasurableError: the memory has no room for buffers that exceed the cache.
    """
    size = min(buffer_bytes, library.free_bytes() // 4) // 4 * 4
    smallest = max(_CACHE_MULTIPLE * library.cache_bytes(), 4)
    while size >= smallest:
        timing = _unless_out_of_memory(partial(_time_copy, library, size))
        if timing is None:
            library.release()
            size = size // 8 * 4
            continue
        _print(library, timing, buffer_bytes=size, gb_per_s=2 * size / timing.seconds / 1e9)
        return
    free = f"only {library.free_bytes() / 2**20:.0f} MiB free"
    raise UnmeasurableError(f"{free}: buffers that fit would stay in the cache")


def _time_product(library: Library, data_type: str, size: int) -> Timing:
    """Returns the time of a product, and frees its matrices."""
    return time_calls(library.product(data_type, size).call, library.wait)


def _time_copy(library: Library, size_bytes: int) -> Timing:
    """Returns the time of a copy, and frees its buffers."""
    return time_calls(library.copy(size_bytes), library.wait)


def _unless_out_of_memory(measure: Callable[[], Timing]) -> Timing | None:
    """Returns None if memory ran out; no frame then keeps a reference to a part of it."""
    try:
        return measure()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None


def _check_precision(library: Library, data_type: str, size: int) -> None:
    """Raises `UnmeasurableError` if a product is not computed in the requested type.

    Variables such as `NVIDIA_TF32_OVERRIDE` override a program's settings, and a ceiling of fp32
    that TF32 units reached would be several times too high.
    """
    error = relative_error(library, library.product(data_type, size))
    if data_type == "fp32" and error > _TF32_ERROR:
        raise UnmeasurableError(
            f"products have an error of {error:.0e}: TF32 is on; check NVIDIA_TF32_OVERRIDE"
        )
    if data_type == "tf32" and error <= _TF32_ERROR and library.device_name != "cpu":
        raise UnmeasurableError(
            f"products have an error of {error:.0e}: TF32 is off; check NVIDIA_TF32_OVERRIDE"
        )


def relative_error(library: Library, product: Product) -> float:
    """Returns the RMS error of some rows of a product over their RMS, against float64."""
    exact = library.to_host(product.left[:_CHECKED_ROWS]) @ library.to_host(product.right)
    rows = library.to_host(product.call()[:_CHECKED_ROWS])
    return float(np.linalg.norm(rows - exact) / np.linalg.norm(exact))


def _print(library: Library, timing: Timing, **rate: float) -> None:
    answer = {
        "device_name": library.device_name,
        "version": library.version,
        "sm_mhz": timing.sm_mhz,
        "held_back_by": timing.held_back_by,
        **rate,
    }
    print(json.dumps(answer), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=["torch", "jax"])
    parser.add_argument("what", choices=["copy", *ITEM_BYTES])
    parser.add_argument("--device", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--buffer-bytes", type=int, default=_COPY_BYTES)
    parser.add_argument("--until", type=float, default=math.inf)
    return parser


if __name__ == "__main__":
    main()
