"""Interface of libraries for measuring the ceilings of a GPU."""

from collections.abc import Callable
from typing import Any, Protocol

import attrs

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
