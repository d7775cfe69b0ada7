"""Matrix products and copies on a GPU through PyTorch."""

from collections.abc import Callable
from typing import Any

import psutil

from comparative_benchmark.analysis.roofline._gpu_library import (
    DTYPES,
    SEED,
    NoDeviceError,
    Product,
    UnmeasurableError,
    check_capability,
)


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
