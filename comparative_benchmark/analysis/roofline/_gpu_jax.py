"""Matrix products and copies on a GPU through JAX."""

from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

from comparative_benchmark.analysis.roofline._gpu_library import (
    DTYPES,
    SEED,
    NoDeviceError,
    Product,
    UnmeasurableError,
    check_capability,
    first_line,
)


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
