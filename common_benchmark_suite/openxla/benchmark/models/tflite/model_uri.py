"""Parses the address of a TFLite file into its JAX model and precision.

    https://host/any/path/BERT_BASE_FP32_JAX_I32_SEQLEN8/model_int8.tflite
    converted:BERT_TINY_FP32_JAX_32XI32_BATCH1/model_int8.tflite

The first file is published; the second only exists after the suite has converted it. Parsing needs
no framework, because identities of workloads are computed from definitions alone.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import attrs

from openxla.benchmark.def_types import DefinitionError, Parameters, ParameterValue

FP32, FP16_WEIGHTS, DYNAMIC_RANGE, INT8 = "fp32", "fp16-weights", "dynamic-range", "int8"

PRECISIONS: Mapping[str, str] = MappingProxyType(
    {
        "model_fp32.tflite": FP32,
        "model_fp16.tflite": FP16_WEIGHTS,
        "model_dynamic_range_quant.tflite": DYNAMIC_RANGE,
        "model_int8.tflite": INT8,
    }
)
_ADDRESS = re.compile(r"(?:https://[^\s/]+/(?:[^\s/]+/)*|converted:)([\w.-]+)/([\w.-]+)")

# A regular expression for names of JAX models, whose groups are integer parameters, and the
# parameters that such a name implies.
Source = tuple[str, Parameters]


@attrs.frozen(kw_only=True)
class ModelUri:
    """The content of an address.

    Attributes:
      text: the address.
      source: name of the JAX model that was converted.
      file: name of the file.
      precision: one of `PRECISIONS`.
    """

    text: str
    source: str
    file: str
    precision: str

    @property
    def is_published(self) -> bool:
        """Whether the file is published."""
        return self.text.startswith("https://")


def parse(text: object) -> ModelUri:
    """Parses an address.

    Raises:
      DefinitionError: the address is not of the form `https://<host>/<...>/<JAX model>/<file>` or
        `converted:<JAX model>/<file>`, with a known file name.
    """
    match = _ADDRESS.fullmatch(text) if isinstance(text, str) else None
    if match is None or ".." in str(text):
        raise DefinitionError(
            f"model_uri {text!r} is neither https://<host>/<...>/<JAX model>/<file> nor "
            "converted:<JAX model>/<file>"
        )
    source, file = match.groups()
    if file not in PRECISIONS:
        raise DefinitionError(
            f"model_uri {text!r}: the file must be one of {', '.join(sorted(PRECISIONS))}"
        )
    return ModelUri(text=str(text), source=source, file=file, precision=PRECISIONS[file])


def completed(parameters: Parameters, sources: Sequence[Source]) -> dict[str, ParameterValue]:
    """Returns parameters including those that `model_uri` implies; `data_type` is the precision.

    Args:
      parameters: with `model_uri`; other explicit parameters take precedence.
      sources: names of JAX models of one architecture.

    Raises:
      DefinitionError: the address is malformed, or the JAX model is unknown.
    """
    uri = parse(parameters.get("model_uri"))
    for pattern, named in sources:
        if match := re.fullmatch(pattern, uri.source):
            sizes = {name: int(value) for name, value in match.groupdict().items()}
            return {**named, **sizes, **parameters, "data_type": uri.precision}
    known = ", ".join(pattern for pattern, _ in sources)
    raise DefinitionError(f"model_uri {uri.text!r}: the JAX model must be one of {known}")


def unquantized(parameters: Parameters) -> dict[str, ParameterValue]:
    """Returns parameters with the type in which the JAX model behind a file computes."""
    return {**parameters, "data_type": FP32}
