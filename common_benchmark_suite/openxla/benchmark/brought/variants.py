"""What the variants of a brought model are called, and which there are."""

import itertools
import re
from collections.abc import Iterable, Iterator

import attrs

from openxla.benchmark.brought.wanted import BroughtError, Wanted
from openxla.benchmark.def_types import ModelFrameworkType
from openxla.benchmark.models.architectures.base import DATA_TYPES

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
