"""What a person says of a model that they bring, besides where it is."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import attrs

from openxla.benchmark.def_types import BenchmarkCase, DefinitionError, ModelFrameworkType
from openxla.benchmark.models.architectures.base import DATA_TYPES


class BroughtError(DefinitionError):
    """What was brought cannot be measured; the message says what, where and what to do."""


@attrs.frozen(kw_only=True)
class Wanted:
    """How a model is to be run.

    Attributes:
      inputs: texts such as `f32[1,3,224,224]`, one for each argument; see `specs.InputSpec`.
      inputs_dir: directory with `input_0.npy` and so on, in place of them.
      text: file whose text a Hugging Face directory gets, by its tokenizer.
      image: file whose picture it gets, by its image processor.
      data_types: e.g. `fp32`; empty for the model's own.
      batch_sizes: what the dimension `batch` stands for; empty for 1.
      seq_lens: what the dimension `seq` stands for; empty for what suits the model.
      framework: value of a framework's type; None for all that the model is in.
      task: of a Hugging Face directory; None for the class that its configuration names.
      base: directory of the model that an adapter belongs to; None to go by the adapter.
      allow_code: whether weights may be read that can hold code.
      test: `eval` for outputs, `train` for training steps.
      folder: where relative paths start.
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
    """What a model that was brought is measured as.

    Attributes:
      cases: one for each framework, type, batch and length.
      remarks: what the user should know, e.g. why a framework is left out.
    """

    cases: Sequence[BenchmarkCase]
    remarks: Sequence[str] = ()


# As users and files spell a framework.
FRAMEWORKS = {
    **{framework.value: framework for framework in ModelFrameworkType},
    **{framework.name.lower(): framework for framework in ModelFrameworkType},
    "pt": ModelFrameworkType.PYTORCH,
    "torch": ModelFrameworkType.PYTORCH,
    "tf": ModelFrameworkType.TF_V2,
    "tensorflow": ModelFrameworkType.TF_V2,
}
# As names spell one.
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
    """Returns the framework that a text means; raises BroughtError where there is none."""
    found = FRAMEWORKS.get(text)
    if found not in SHORT:
        raise BroughtError(f"{where}: unknown framework {text!r}; choices are pt, jax, tf")
    return found


@attrs.frozen(kw_only=True)
class Variant:
    """One type, batch and length; None where the user named none."""

    data_type: str
    batch_size: int | None
    seq_len: int | None


def variants(wanted: Wanted, data_type: str) -> Iterator[Variant]:
    """Yields the variants that are wanted.

    Args:
      wanted: by the user.
      data_type: the model's own.

    Raises:
      BroughtError: the suite does not measure in such a type.
    """
    types = wanted.data_types or (data_type,)
    if unknown := [name for name in types if name not in DATA_TYPES]:
        raise BroughtError(f"unknown data type {unknown[0]!r}; choices are {', '.join(DATA_TYPES)}")
    for name, batch, seq in itertools.product(
        types, wanted.batch_sizes or (None,), wanted.seq_lens or (None,)
    ):
        yield Variant(data_type=name, batch_size=batch, seq_len=seq)


def model_name(parts: Iterable[str], framework: ModelFrameworkType, variant: Variant) -> str:
    """Returns e.g. `MY_NET_FP32_PT_BATCH8`, of the texts that name a model."""
    stem = re.sub(r"[^A-Za-z0-9]+", "_", "_".join(filter(None, parts))).strip("_").upper()
    sizes = [
        f"{word}{size}"
        for word, size in (("SEQLEN", variant.seq_len), ("BATCH", variant.batch_size))
        if size is not None
    ]
    return "_".join([stem or "MODEL", variant.data_type.upper(), _IN_NAMES[framework], *sizes])
