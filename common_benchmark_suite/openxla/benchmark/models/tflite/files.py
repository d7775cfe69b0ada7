"""TFLite files: their addresses, parameters that follow from these, and their places.

https://host/any/path/BERT_BASE_FP32_JAX_I32_SEQLEN8/model_int8.tflite
converted:BERT_TINY_FP32_JAX_32XI32_BATCH1/model_int8.tflite

The first file is published; the second only exists after the suite has converted it. Parsing needs
no framework, because identities of workloads are computed from definitions alone.

<root>/tflite/<JAX model>-<precision>-<digest>/   files converted by the suite, named after
    model_int8.tflite                             a digest of everything that affects their bytes
    manifest.json
<root>/published/<host>/<path of the URL>         published files, which users put there
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

import attrs

from openxla.benchmark.def_types import DefinitionError, Parameters, ParameterValue, TensorSpec
from openxla.benchmark.files import new_directory, sha256_of
from openxla.benchmark.installation import root_dir
from openxla.benchmark.models.architectures import Architecture
from openxla.benchmark.models.architectures.base import Arrays, digest_of
from openxla.benchmark.models.checkpoints import CheckpointError

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

MANIFEST_FILE = "manifest.json"


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


def parse_uri(text: object) -> ModelUri:
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


def completed_parameters(
    parameters: Parameters, sources: Sequence[Source]
) -> dict[str, ParameterValue]:
    """Returns parameters including those that `model_uri` implies; `data_type` is the precision.

    Args:
      parameters: with `model_uri`; other explicit parameters take precedence.
      sources: names of JAX models of one architecture.

    Raises:
      DefinitionError: the address is malformed, or the JAX model is unknown.
    """
    uri = parse_uri(parameters.get("model_uri"))
    for pattern, named in sources:
        if match := re.fullmatch(pattern, uri.source):
            sizes = {name: int(value) for name, value in match.groupdict().items()}
            return {**named, **sizes, **parameters, "data_type": uri.precision}
    known = ", ".join(pattern for pattern, _ in sources)
    raise DefinitionError(f"model_uri {uri.text!r}: the JAX model must be one of {known}")


def unquantized_parameters(parameters: Parameters) -> dict[str, ParameterValue]:
    """Returns parameters with the type in which the JAX model behind a file computes."""
    return {**parameters, "data_type": FP32}


class FileArchitecture(Architecture):
    """Mixin for the architecture of the JAX model; `data_type` may be a TFLite precision.

    Inputs and outputs are the fp32 model's, whatever the file takes, because all programs
    get and are verified against the same arrays. A file with int8 inputs gets the same numbers,
    quantised with its own scale.
    """

    sources: ClassVar[Sequence[Source]]

    def complete(self, parameters: Parameters) -> Parameters:
        """Adds the parameters in the file's address."""
        return completed_parameters(super().complete(parameters), self.sources)

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Returns the JAX model's inputs."""
        given = unquantized_parameters(self.complete(parameters))
        return super().input_specs(given)  # type: ignore[safe-super]  # a base comes after this one

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Returns the JAX model's outputs."""
        given = unquantized_parameters(self.complete(parameters))
        return super().output_specs(given)  # type: ignore[safe-super]  # as above

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Returns the JAX model's input arrays, byte for byte."""
        given = self.complete(parameters)
        return super().preprocess(raw_input, given, checkpoint)  # type: ignore[safe-super]  # as above

    def label(self, parameters: Parameters) -> str:
        """Returns the JAX model's label, with the file's precision as the type."""
        given = self.complete(parameters)
        plain = super().label(unquantized_parameters(given))
        return plain.replace("-fp32-", f"-{given['data_type']}-", 1)


class DamagedFileError(RuntimeError):
    """A stored file does not match its manifest; the message gives the remedy."""


@attrs.frozen(kw_only=True)
class TfLiteFile:
    """A TFLite file on this machine.

    Attributes:
      path: its path.
      sha256, size_bytes: digest and size of its content.
      origin: `converted`, or `published`.
      notes: details of the conversion, e.g. versions of the packages; plain JSON values.
    """

    path: Path
    sha256: str
    size_bytes: int
    origin: str
    notes: Mapping[str, Any]


def published(uri: ModelUri) -> TfLiteFile:
    """Returns the published file of an address.

    Raises:
      CheckpointError: the file is not in the artifact root; the message gives the expected path.
    """
    path = root_dir() / "published" / uri.text.removeprefix("https://")
    if not uri.is_published:
        raise CheckpointError(
            f"{uri.text} is not a published file; use the seeded checkpoint (the default), or a "
            "URL that begins with https://"
        )
    if not path.is_file():
        raise CheckpointError(
            f"the published file {uri.text} is missing, and the suite does not fetch it; save it "
            f"as {path}, or use the seeded checkpoint (the default)"
        )
    return _described(path, origin="published", notes={})


def converted(
    uri: ModelUri, recipe: Mapping[str, Any], make: Callable[[Path], Mapping[str, Any]]
) -> TfLiteFile:
    """Returns the file of a recipe, making it on first use.

    If several processes make the same file, each writes its own folder, and the first to finish
    renames it to the final name.

    Args:
      uri: address of the file.
      recipe: everything that affects its bytes, as plain JSON values.
      make: writes the file to the given path and returns notes for the manifest.

    Raises:
      DamagedFileError: the file exists, but has changed.
    """
    digest = digest_of(recipe)
    target = root_dir() / "tflite" / f"{uri.source}-{uri.precision}-{digest[:16]}"
    if not (target / MANIFEST_FILE).is_file():
        _write(target, uri, recipe, make)
    manifest = json.loads((target / MANIFEST_FILE).read_text(encoding="utf-8"))
    file = _described(target / uri.file, origin="converted", notes=manifest["notes"])
    if file.sha256 != manifest["sha256"]:
        raise DamagedFileError(f"{file.path} does not match its manifest; remove {target}")
    return file


def _write(
    target: Path,
    uri: ModelUri,
    recipe: Mapping[str, Any],
    make: Callable[[Path], Mapping[str, Any]],
) -> None:
    with new_directory(target, whole_with=MANIFEST_FILE) as directory:
        notes = make(directory / uri.file)
        made = _described(directory / uri.file, origin="converted", notes=notes)
        manifest = {
            "model_uri": uri.text,
            "recipe": dict(recipe),
            "notes": dict(notes),
            "sha256": made.sha256,
            "size_bytes": made.size_bytes,
        }
        text = json.dumps(manifest, indent=2, sort_keys=True) + "\n"
        (directory / MANIFEST_FILE).write_text(text, encoding="utf-8")


def _described(path: Path, *, origin: str, notes: Mapping[str, Any]) -> TfLiteFile:
    sha256 = sha256_of(path)
    size_bytes = path.stat().st_size
    return TfLiteFile(path=path, sha256=sha256, size_bytes=size_bytes, origin=origin, notes=notes)
