"""Libraries that compute products and copies on a GPU: their interface, PyTorch and JAX."""

from collections.abc import Callable
from typing import Any, Protocol

import attrs
import numpy as np
import psutil

ITEM_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
# Names in the libraries; matrices of TF32 products are fp32.
DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
SEED = 1
# The first compute capability that has units for a type.
_CAPABILITIES = {"tf32": (8, 0), "fp8": (8, 9), "int8": (7, 5)}


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


def check_capability(found: tuple[int, ...], data_type: str) -> None:
    """Raises `UnmeasurableError` if a compute capability is too small for a type.

    Other units would compute it, so it would not be a ceiling of this type.
    """
    needed = _CAPABILITIES.get(data_type)
    if needed and found and tuple(found) < needed:
        have, need = (".".join(map(str, version)) for version in (found, needed))
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
