"""Options that a user gives with a model, and specifications of its inputs.

Specifications are texts such as `f32[1,3,224,224]`, `i32[batch,seq]<1000`, `i32[batch,seq]=1`.
"""

import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from openxla.benchmark import synonyms, testdata
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DefinitionError,
    ModelFrameworkType,
    ModelTestData,
    TensorSpec,
)
from openxla.benchmark.models.architectures.base import DATA_TYPES

if TYPE_CHECKING:  # listing imports no NumPy
    import numpy as np
    import numpy.typing as npt

    from openxla.benchmark.artifacts.array_files import UserInputs

# Framework names in model names.
SHORT = {
    ModelFrameworkType.PYTORCH: "PT",
    ModelFrameworkType.JAX: "JAX",
    ModelFrameworkType.TF_V2: "TF",
}
_IN_NAMES = {
    **SHORT,
    ModelFrameworkType.ONNX: "ONNX",
    ModelFrameworkType.STABLEHLO: "STABLEHLO",
    ModelFrameworkType.TFLITE: "TFLITE",
}

# Types supported by `preprocessing.numpy_dtype`.
TYPES = ("f64", "f32", "f16", "bf16", "i8", "i32", "i64", "i1", "u8")
_FORM = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<type>[a-z]+\d+)\[(?P<sizes>[^\]]*)\]"
    r"(?:<(?P<below>\d+)|=(?P<value>-?\d+(?:\.\d+)?))?(?:@(?P<seed>\d+))?"
)
BATCH, SEQ = "batch", "seq"
_MOST_ELEMENTS = 2**33
EXAMPLES = "e.g. f32[1,3,224,224], i32[4,32]<1000, i32[4,32]=1 or f32[batch,16]@7"


class UserModelError(DefinitionError):
    """A user's model cannot be measured; the message gives the reason, place and remedy."""


@attrs.frozen(kw_only=True)
class ModelOptions:
    """Options for running a model.

    Attributes:
      inputs: texts such as `f32[1,3,224,224]`, one per argument; see `InputSpec`.
      inputs_dir: directory with `input_0.npy` and so on, instead of `inputs`.
      text: text file for a Hugging Face model, read with its tokenizer.
      image: picture for a Hugging Face model, read with its image processor.
      data_types: e.g. `fp32`; empty for the model's own.
      batch_sizes: sizes of the dimension `batch`; empty for 1.
      seq_lens: sizes of the dimension `seq`; empty for the model's default.
      framework: value of a framework's type; None for all that the model supports.
      task: task of a Hugging Face model; None for the class that its configuration names.
      base: directory of an adapter's base model; None to use the name in the adapter.
      allow_code: whether to accept weights that can hold code.
      test: `eval` for outputs, `train` for training steps.
      folder: base of relative paths.
      recorded: whether a result recorded the options; older results may have conflicting ones.
    """

    inputs: tuple[str, ...] = ()
    inputs_dir: Path | None = None
    text: Path | None = None
    image: Path | None = None
    data_types: tuple[str, ...] = ()
    batch_sizes: tuple[int, ...] = ()
    seq_lens: tuple[int, ...] = ()
    framework: str | None = None
    task: str | None = None
    base: Path | None = None
    allow_code: bool = False
    test: str = "eval"
    folder: Path = attrs.field(factory=Path.cwd)
    recorded: bool = False


@attrs.frozen(kw_only=True)
class ModelCases:
    """The cases of a user's model.

    Attributes:
      cases: one for each framework, data type, batch size and length.
      remarks: remarks for the user, e.g. why a framework is left out.
    """

    cases: Sequence[BenchmarkCase]
    remarks: Sequence[str] = ()


def framework_of(text: str, where: str) -> ModelFrameworkType:
    """Returns the framework that a text names; raises UserModelError for an unknown name."""
    framework = next((kind for kind in SHORT if kind.value == synonyms.framework(text)), None)
    if framework not in SHORT:
        raise UserModelError(f"{where}: unknown framework {text!r}; choices are pt, jax, tf")
    return framework


@attrs.frozen(kw_only=True)
class Variant:
    """A data type, batch size and length; None where the user gave none."""

    data_type: str
    batch_size: int | None
    seq_len: int | None

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that the user gave, as parameters of a model."""
        both = {"batch_size": self.batch_size, "seq_len": self.seq_len}
        return {name: size for name, size in both.items() if size is not None}


def input_data(inputs: Sequence["InputSpec"], given: "UserInputs | None") -> ModelTestData:
    """Returns the input data of a case: the user's arrays, random numbers, or the model's own."""
    if given is not None:
        return given.data
    if not inputs:
        return testdata.INPUT_DATA_MODEL_DEFAULT
    return ModelTestData(
        name="_".join(str(spec.spec).upper() for spec in inputs),
        source_url="",
        source_info="Random numbers described by --input.",
    )


def variants(wanted: ModelOptions, data_type: str) -> Iterator[Variant]:
    """Yields the requested variants.

    Args:
      wanted: the user's options.
      data_type: the model's own type.

    Raises:
      UserModelError: the suite does not support a data type.
    """
    types = wanted.data_types or (data_type,)
    if unknown := [name for name in types if name not in DATA_TYPES]:
        raise UserModelError(
            f"unknown data type {unknown[0]!r}; choices are {', '.join(DATA_TYPES)}"
        )
    for name, batch, seq in itertools.product(
        types, wanted.batch_sizes or (None,), wanted.seq_lens or (None,)
    ):
        yield Variant(data_type=name, batch_size=batch, seq_len=seq)


def model_name(parts: Iterable[str], framework: ModelFrameworkType, variant: Variant) -> str:
    """Returns the name of a model in capitals, e.g. `MY_NET_FP32_PT_BATCH8`."""
    stem = re.sub(r"[^A-Za-z0-9]+", "_", "_".join(filter(None, parts))).strip("_").upper()
    sizes = [
        f"{word}{size}"
        for word, size in (("SEQLEN", variant.seq_len), ("BATCH", variant.batch_size))
        if size is not None
    ]
    return "_".join([stem or "MODEL", variant.data_type.upper(), _IN_NAMES[framework], *sizes])


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
          UserModelError: the input has `seq`, and no length is given.
        """
        if SEQ in self.sizes and seq is None:
            raise UserModelError(f"--input {self}: set {SEQ!r} with --seq-len")
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
            number = int if dtype.kind in "iu" else float
            return np.full(shape, number(self.value)).astype(dtype)
        name = f"{place}/{self}".encode()
        key = int.from_bytes(hashlib.sha256(name).digest()[:8], "little")
        random = np.random.Generator(np.random.Philox(key))
        if self.below is not None or self.element_type == "i1":
            return random.integers(0, self.below or 2, shape).astype(dtype)
        return random.standard_normal(shape, dtype=np.float32).astype(dtype)


def parse_spec(text: str) -> InputSpec:
    """Returns the input that a text describes.

    Raises:
      UserModelError: the text is malformed; the message gives examples.
    """
    match = _FORM.fullmatch(text.replace(" ", ""))
    if match is None:
        raise UserModelError(f"--input {text!r}: expected TYPE[SIZES], {EXAMPLES}")
    kind, below, value = match["type"], match["below"], match["value"]
    if kind not in TYPES:
        raise UserModelError(
            f"--input {text!r}: unknown type {kind!r}; choices are {', '.join(TYPES)}"
        )
    sizes = tuple(map(_size, filter(None, match["sizes"].split(","))))
    if unknown := [size for size in sizes if isinstance(size, str) and size not in (BATCH, SEQ)]:
        raise UserModelError(
            f"--input {text!r}: invalid size {unknown[0]!r}; use a number, {BATCH!r} or {SEQ!r}"
        )
    count = 1
    for size in sizes:
        count *= size if isinstance(size, int) else 1
    if not 0 < count <= _MOST_ELEMENTS:
        raise UserModelError(
            f"--input {text!r} has {count} elements, expected 1 to {_MOST_ELEMENTS}"
        )
    whole = kind[0] in "iu" and kind != "i1"
    if whole and below is None and value is None:
        raise UserModelError(
            f"--input {text!r} needs a range or value, e.g. {text}<1000 or {text}=1"
        )
    if below is not None and (not whole or not 1 <= int(below) <= range_of(kind).stop):
        raise UserModelError(f"--input {text!r}: cannot draw {kind} numbers from 0 up to {below}")
    if whole and value is not None and ("." in value or int(value) not in range_of(kind)):
        first, last = range_of(kind)[0], range_of(kind)[-1]
        raise UserModelError(f"--input {text!r}: expected a whole number from {first} to {last}")
    return InputSpec(
        element_type=kind,
        sizes=sizes,
        below=None if below is None else int(below),
        value=value,
        seed=int(match["seed"] or 0),
        name=match["name"] or "",
    )


def names_in_specs(written: str) -> list[str]:
    """Returns the argument names of recorded inputs; empty for inputs passed by position."""
    return [name for text in filter(None, written.split("; ")) if (name := parse_spec(text).name)]


def check_spec_names(given: Sequence[InputSpec]) -> None:
    """Raises UserModelError if only some inputs have names, or if two have the same name."""
    named = [spec.name for spec in given if spec.name]
    if named and len(named) < len(given):
        unnamed = next(str(spec) for spec in given if not spec.name)
        raise UserModelError(f"--input {unnamed}: name either all inputs or none")
    if twice := [name for place, name in enumerate(named) if name in named[:place]]:
        raise UserModelError(f"--input: {twice[0]!r} is given twice")


def recorded_specs(written: Sequence[InputSpec], filled: Sequence[InputSpec]) -> dict[str, str]:
    """Returns the parameters that record a model's inputs, and how the user wrote them.

    The latter is only recorded if sizes have names, and is not part of the identity.
    """
    as_run, as_written = ("; ".join(map(str, specs)) for specs in (filled, written))
    return {"inputs": as_run, **({"written": as_written} if as_written != as_run else {})}


def _size(text: str) -> int | str:
    return int(text) if text.isdecimal() else text


def range_of(kind: str) -> range:
    """Returns the numbers of an integer type such as `i32`."""
    end: int = 2 ** (int(kind[1:]) - kind.startswith("i"))
    return range(-end if kind.startswith("i") else 0, end)
