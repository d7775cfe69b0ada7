"""Input specifications: `f32[1,3,224,224]`, `i32[batch,seq]<1000`, `i32[batch,seq]=1`."""

import hashlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from openxla.benchmark.def_types import TensorSpec
from openxla.benchmark.user_models.wanted import BroughtError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Types supported by `preprocessing.numpy_dtype`.
_TYPES = ("f64", "f32", "f16", "bf16", "i8", "i32", "i64", "i1", "u8")
_FORM = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<type>[a-z]+\d+)\[(?P<sizes>[^\]]*)\]"
    r"(?:<(?P<below>\d+)|=(?P<value>-?\d+(?:\.\d+)?))?(?:@(?P<seed>\d+))?"
)
BATCH, SEQ = "batch", "seq"
_MOST_ELEMENTS = 2**33
EXAMPLES = "e.g. f32[1,3,224,224], i32[4,32]<1000, i32[4,32]=1 or f32[batch,16]@7"


@attrs.frozen(kw_only=True)
class InputSpec:
    """One input: its element type, sizes and content.

    Attributes:
      element_type: e.g. `f32`.
      sizes: numbers, and the names `batch` and `seq`.
      below: exclusive upper limit of random integers.
      value: value of all elements, as written.
      seed: seed of random numbers.
      name: name of its argument; empty if passed by position.
    """

    element_type: str
    sizes: tuple[int | str, ...]
    below: int | None = None
    value: str | None = None
    seed: int = 0
    name: str = ""

    def __str__(self) -> str:
        limit = "" if self.below is None else f"<{self.below}"
        value = "" if self.value is None else f"={self.value}"
        seed = f"@{self.seed}" if self.seed else ""
        name = f"{self.name}=" if self.name else ""
        return f"{name}{self.element_type}[{','.join(map(str, self.sizes))}]{limit}{value}{seed}"

    def filled(self, batch: int, seq: int | None) -> "InputSpec":
        """Returns the input with numbers for the names of sizes.

        Raises:
          BroughtError: the input has `seq`, and no length is given.
        """
        if SEQ in self.sizes and seq is None:
            raise BroughtError(f"--input {self}: set {SEQ!r} with --seq-len")
        numbers = {BATCH: batch, SEQ: seq or 0}
        sizes = (numbers[size] if isinstance(size, str) else size for size in self.sizes)
        return attrs.evolve(self, sizes=tuple(sizes))

    @property
    def spec(self) -> TensorSpec:
        """Shape and type, if all sizes are numbers."""
        return TensorSpec(shape=self.sizes, dtype=self.element_type)

    def array(self, place: int) -> "npt.NDArray[np.generic]":
        """Returns the input's array: the same bytes on every machine.

        Floating-point numbers are normally distributed with variance 1.

        Args:
          place: index of the input, so that two inputs of one form differ.
        """
        import numpy as np

        from openxla.benchmark.models.preprocessing import numpy_dtype

        dtype, shape = numpy_dtype(self.element_type), self.spec.shape
        if self.value is not None:
            return np.full(shape, float(self.value)).astype(dtype)
        name = f"{place}/{self}".encode()
        key = int.from_bytes(hashlib.sha256(name).digest()[:8], "little")
        random = np.random.Generator(np.random.Philox(key))
        if self.below is not None or self.element_type == "i1":
            return random.integers(0, self.below or 2, shape).astype(dtype)
        return random.standard_normal(shape, dtype=np.float32).astype(dtype)


def parse(text: str) -> InputSpec:
    """Returns the input that a text describes.

    Raises:
      BroughtError: the text is malformed; the message gives examples.
    """
    found = _FORM.fullmatch(text.replace(" ", ""))
    if found is None:
        raise BroughtError(f"--input {text!r} is not TYPE[SIZES], {EXAMPLES}")
    kind, below, value = found["type"], found["below"], found["value"]
    if kind not in _TYPES:
        raise BroughtError(
            f"--input {text!r}: unknown type {kind!r}; choices are {', '.join(_TYPES)}"
        )
    sizes = tuple(map(_size, filter(None, found["sizes"].split(","))))
    if unknown := [size for size in sizes if isinstance(size, str) and size not in (BATCH, SEQ)]:
        raise BroughtError(
            f"--input {text!r}: invalid size {unknown[0]!r}; use a number, {BATCH!r} or {SEQ!r}"
        )
    count = 1
    for size in sizes:
        count *= size if isinstance(size, int) else 1
    if not 0 < count <= _MOST_ELEMENTS:
        raise BroughtError(f"--input {text!r} has {count} elements, expected 1 to {_MOST_ELEMENTS}")
    whole = kind[0] in "iu" and kind != "i1"
    if whole and below is None and value is None:
        raise BroughtError(f"--input {text!r} needs a range or value, e.g. {text}<1000 or {text}=1")
    if below is not None and (not whole or int(below) < 1 or int(below) > _above(kind)):
        raise BroughtError(f"--input {text!r}: cannot draw {kind} numbers from 0 up to {below}")
    return InputSpec(
        element_type=kind,
        sizes=sizes,
        below=None if below is None else int(below),
        value=value,
        seed=int(found["seed"] or 0),
        name=found["name"] or "",
    )


def names(written: str) -> list[str]:
    """Returns the argument names of recorded inputs; empty for inputs passed by position."""
    return [name for text in filter(None, written.split("; ")) if (name := parse(text).name)]


def check_names(given: Sequence[InputSpec]) -> None:
    """Raises BroughtError if only some inputs have names, or if two have the same name."""
    named = [spec.name for spec in given if spec.name]
    if named and len(named) < len(given):
        unnamed = next(str(spec) for spec in given if not spec.name)
        raise BroughtError(f"--input {unnamed}: give each input a name, or none")
    if twice := [name for place, name in enumerate(named) if name in named[:place]]:
        raise BroughtError(f"--input: {twice[0]!r} is given twice")


def recorded(written: Sequence[InputSpec], filled: Sequence[InputSpec]) -> dict[str, str]:
    """Returns the parameters that record a model's inputs, and how the user wrote them.

    The latter is only recorded if sizes have names, and is not part of the identity.
    """
    as_run, as_written = ("; ".join(map(str, specs)) for specs in (filled, written))
    return {"inputs": as_run, **({"written": as_written} if as_written != as_run else {})}


def _size(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def _above(kind: str) -> int:
    bits = int(kind[1:]) - kind.startswith("i")
    return int(2**bits)
