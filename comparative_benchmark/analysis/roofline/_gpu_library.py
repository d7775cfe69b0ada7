"""What a library is asked for when the ceilings of a GPU are measured."""

from collections.abc import Callable
from typing import Any, Protocol

import attrs

ITEM_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
# As the libraries call them; matrices of TF32 products are fp32.
DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
SEED = 1
# The first compute capability that has units for a type.
_CAPABILITIES = {"tf32": (8, 0), "fp8": (8, 9), "int8": (7, 5)}


class NoDeviceError(Exception):
    """The library cannot be used here, or sees no GPU."""


class UnmeasurableError(Exception):
    """This library or this GPU does not have what was asked for."""


@attrs.frozen
class Product:
    """A matrix product on the device.

    Attributes:
      call: starts left @ right and returns the result, which need not be complete.
      left, right: float[size, size], random: with constants the units draw less power, and the
        clocks stay higher than any model will see them (13 % were measured for zeros).
    """

    call: Callable[[], Any]
    left: Any
    right: Any


class Library(Protocol):
    """What is asked of a library."""

    version: str
    device_name: str

    def free_bytes(self) -> int:
        """Returns how much memory of the device is free."""

    def cache_bytes(self) -> int:
        """Returns the size of the last-level cache; 0 where the library does not tell."""

    def product(self, data_type: str, size: int) -> Product:
        """Returns a product of square matrices of that size.

        Raises:
          UnmeasurableError: the library or the device does not have the type.
        """

    def copy(self, size_bytes: int) -> Callable[[], Any]:
        """Returns a call that starts copying a buffer within the device's memory."""

    def wait(self, result: Any) -> None:
        """Waits until all calls up to that which returned `result` are complete."""

    def to_host(self, matrix: Any) -> Any:
        """Returns a matrix as a numpy array of float64."""

    def release(self) -> None:
        """Gives back the memory of what is no longer referred to."""


def check_capability(found: tuple[int, ...], data_type: str) -> None:
    """Raises `UnmeasurableError` where a compute capability is too small for a type.

    It would be computed all the same, by other units: no ceiling of this type.
    """
    needed = _CAPABILITIES.get(data_type)
    if needed and found and tuple(found) < needed:
        have, need = (".".join(map(str, version)) for version in (found, needed))
        raise UnmeasurableError(
            f"compute capability {have} does not support {data_type} (needs {need})"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error of a library says that the device's memory is full."""
    signs = ("out of memory", "RESOURCE_EXHAUSTED", "ALLOC_FAILED")
    return "OutOfMemory" in type(error).__name__ or any(sign in str(error) for sign in signs)


def first_line(error: BaseException) -> str:
    """Returns the first line of what an error says; its kind where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
