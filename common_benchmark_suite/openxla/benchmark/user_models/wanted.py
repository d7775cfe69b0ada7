"""Options that a user gives with a model."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from openxla.benchmark.def_types import BenchmarkCase, DefinitionError, ModelFrameworkType
from openxla.benchmark.models.architectures.base import DATA_TYPES


class BroughtError(DefinitionError):
    """A user's model cannot be measured; the message gives the reason, place and remedy."""


@attrs.frozen(kw_only=True)
class Wanted:
    """Options for running a model.

    Attributes:
      inputs: texts such as `f32[1,3,224,224]`, one per argument; see `specs.InputSpec`.
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


@attrs.frozen(kw_only=True)
class Found:
    """The cases of a user's model.

    Attributes:
      cases: one for each framework, data type, batch size and length.
      remarks: remarks for the user, e.g. why a framework is left out.
    """

    cases: Sequence[BenchmarkCase]
    remarks: Sequence[str] = ()


# Framework names in options and files.
FRAMEWORKS = {
    **{framework.value: framework for framework in ModelFrameworkType},
    **{framework.name.lower(): framework for framework in ModelFrameworkType},
    "pt": ModelFrameworkType.PYTORCH,
    "torch": ModelFrameworkType.PYTORCH,
    "tf": ModelFrameworkType.TF_V2,
    "tensorflow": ModelFrameworkType.TF_V2,
}
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


def framework_of(text: str, where: str) -> ModelFrameworkType:
    """Returns the framework that a text names; raises BroughtError for an unknown name."""
    found = FRAMEWORKS.get(text)
    if found not in SHORT:
        raise BroughtError(f"{where}: unknown framework {text!r}; choices are pt, jax, tf")
    return found


@attrs.frozen(kw_only=True)
class Variant:
    """A data type, batch size and length; None where the user gave none."""

    data_type: str
    batch_size: int | None
    seq_len: int | None


def variants(wanted: Wanted, data_type: str) -> Iterator[Variant]:
    """Yields the requested variants.

    Args:
      wanted: the user's options.
      data_type: the model's own type.

    Raises:
      BroughtError: the suite does not support a data type.
    """
    types = wanted.data_types or (data_type,)
    if unknown := [name for name in types if name not in DATA_TYPES]:
        raise BroughtError(f"unknown data type {unknown[0]!r}; choices are {', '.join(DATA_TYPES)}")
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
