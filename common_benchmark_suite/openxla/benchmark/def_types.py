"""The vocabulary of the suite: frozen, validated records.

architecture (BERT) -> model implementation (BERT in JAX) -> model (a variant with parameters)
-> benchmark case (model + input data). Every record checks its fields when it is made; a bad one
raises `DefinitionError`, which names the record, the field and the reason.
"""

import enum
import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

import attrs

Scalar: TypeAlias = str | int | float | bool | None
ParameterValue: TypeAlias = Scalar | tuple[Scalar, ...]
Parameters: TypeAlias = Mapping[str, ParameterValue]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
_DOTTED_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_VERIFY_PARAMETERS = (
    "absolute_tolerance",
    "relative_tolerance",
    "rmse_factor",
    "rmse_floor",
    "min_sqnr_db",
)


class DefinitionError(ValueError):
    """A record of the suite is malformed; the message names record and field, and the reason."""


class ModelFrameworkType(enum.Enum):
    """The framework of a model implementation, or the format of an exported program."""

    TF_V1 = "tensorflow_v1"
    TF_V2 = "tensorflow_v2"
    TFLITE = "tflite"
    PYTORCH = "pytorch"
    JAX = "jax"
    GGML = "ggml"
    ONNX = "onnx"
    STABLEHLO = "stablehlo"


class ModelArtifactType(enum.Enum):
    """The formats to which a model can be exported."""

    TF_SAVEDMODEL_V1 = "tf_savedmodel_v1"
    TF_SAVEDMODEL_V2 = "tf_savedmodel_v2"
    TFLITE_FP32 = "tflite_fp32"
    TFLITE_FP32_STABLEHLO = "tflite_fp32_stablehlo"
    TFLITE_FP16 = "tflite_fp16"
    TFLITE_DYNAMIC_RANGE_QUANT = "tflite_dynamic_range_quant"
    TFLITE_INT8 = "tflite_int8"
    XLA_HLO_DUMP = "xla_hlo_dump"
    STABLEHLO_MLIR = "stablehlo_mlir"
    LINALG_MLIR = "linalg_mlir"
    TOSA_MLIR = "tosa_mlir"


def _fail(instance: Any, attribute: "attrs.Attribute[Any]", reason: str) -> None:
    label = getattr(instance, "name", None)
    record = type(instance).__name__ + (f" {label!r}" if isinstance(label, str) else "")
    raise DefinitionError(f"{record}: field {attribute.name!r} {reason}")


def _is_name(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        _fail(instance, attribute, f"must consist of letters, digits and _ . + -, got {value!r}")


def _is_case_name(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    if not isinstance(value, str) or value.split() != [value]:
        _fail(instance, attribute, f"must be a non-empty string without spaces, got {value!r}")


def _is_dotted_path(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    if value is not None and not (isinstance(value, str) and _DOTTED_PATH.fullmatch(value)):
        _fail(instance, attribute, f"must be a dotted module path, got {value!r}")


def _is_optional_text(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    if value is not None and not isinstance(value, str):
        _fail(instance, attribute, f"must be a string or None, got {value!r}")


def _are_texts(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    if not all(isinstance(item, str) and item for item in value):
        _fail(instance, attribute, f"must contain non-empty strings, got {value!r}")


def _is_a(expected: type) -> Callable[[Any, "attrs.Attribute[Any]", Any], None]:
    def check(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        if not isinstance(value, expected):
            _fail(instance, attribute, f"must be a {expected.__name__}, got {value!r}")

    return check


def _are_all(expected: type) -> Callable[[Any, "attrs.Attribute[Any]", Any], None]:
    def check(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
        if not all(isinstance(item, expected) for item in value):
            _fail(instance, attribute, f"must contain only {expected.__name__}, got {value!r}")

    return check


def _are_parameters(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    for key, item in value.items():
        if not isinstance(key, str) or not key.isidentifier():
            _fail(instance, attribute, f"has the key {key!r}, which cannot be a keyword argument")
        if not all(map(_is_scalar, item if isinstance(item, tuple) else [item])):
            reason = f"has {key!r}: {item!r}, which is neither a JSON scalar nor a list of scalars"
            _fail(instance, attribute, reason)


def _is_scalar(value: Any) -> bool:
    finite = not isinstance(value, float) or math.isfinite(value)
    return finite and (value is None or isinstance(value, str | int | float | bool))


def _are_verify_parameters(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    for key, item in value.items():
        if key not in _VERIFY_PARAMETERS:
            known = ", ".join(_VERIFY_PARAMETERS)
            _fail(instance, attribute, f"has the unknown key {key!r}; choices are {known}")
        if isinstance(item, bool) or not isinstance(item, int | float) or not 0 <= item < 1e30:
            _fail(instance, attribute, f"has {key!r}: {item!r}, expected a finite number >= 0")


def _freeze_mapping(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    # A shape may be a list or a tuple; JSON only has lists.
    frozen = {k: tuple(item) if isinstance(item, list) else item for k, item in value.items()}
    return MappingProxyType(frozen)


def _freeze_sequence(value: Any) -> Any:
    # A string is a sequence of letters: a forgotten bracket must not become a list of letters.
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _is_tuple(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    if not isinstance(value, tuple):
        _fail(instance, attribute, f"must be a list, got {value!r}")


def _is_mapping(instance: Any, attribute: "attrs.Attribute[Any]", value: Any) -> None:
    if not isinstance(value, Mapping):
        _fail(instance, attribute, f"must be a dictionary, got {value!r}")


def _tags() -> Any:
    return attrs.field(factory=tuple, converter=_freeze_sequence, validator=[_is_tuple, _are_texts])


def _mapping(check: Any, *, required: bool = False) -> Any:
    default: Any = attrs.NOTHING if required else attrs.Factory(dict)
    # A read-only view has no hash, but the name of a record identifies it.
    return attrs.field(
        default=default, converter=_freeze_mapping, validator=[_is_mapping, check], hash=False
    )


@attrs.frozen(kw_only=True)
class TensorSpec:
    """Shape and element type of one input or output, e.g. `1x384xi32`."""

    shape: tuple[int, ...] = attrs.field(converter=_freeze_sequence, validator=_is_tuple)
    dtype: str = attrs.field(validator=_is_a(str))

    def __str__(self) -> str:
        return "x".join([*map(str, self.shape), self.dtype])


@attrs.frozen(kw_only=True)
class ModelImplementation:
    """One architecture implemented in one framework.

    `module_path` is imported with `importlib` and must define `create_model(**model_parameters)`.
    `architecture` names the framework-neutral description (`models/architectures/<name>.py`, or a
    dotted path in another package) shared with implementations in other frameworks; without it, a
    model cannot be compared across frameworks. `own_process` means that the model changes the state
    of its process, so no other model may share it. `reference` is the `module:function` that
    computes truth and reference of a model that its framework cannot run.
    """

    name: str = attrs.field(validator=_is_name)
    tags: Sequence[str] = _tags()
    framework_type: ModelFrameworkType = attrs.field(validator=_is_a(ModelFrameworkType))
    source_info: str | None = attrs.field(default=None, validator=_is_optional_text)
    module_path: str | None = attrs.field(default=None, validator=_is_dotted_path)
    architecture: str | None = attrs.field(default=None, validator=_is_dotted_path)
    own_process: bool = attrs.field(default=False, validator=_is_a(bool))
    reference: str | None = attrs.field(default=None, validator=_is_optional_text)

    def __str__(self) -> str:
        return self.name


@attrs.frozen(kw_only=True)
class Model:
    """A variant: an implementation with parameters, passed to `create_model` as keywords."""

    name: str = attrs.field(validator=_is_name)
    tags: Sequence[str] = _tags()
    model_impl: ModelImplementation = attrs.field(validator=_is_a(ModelImplementation))
    model_parameters: Parameters = _mapping(_are_parameters, required=True)
    artifacts_dir_url: str | None = attrs.field(default=None, validator=_is_optional_text)
    exported_model_types: Sequence[ModelArtifactType] = attrs.field(
        factory=tuple,
        converter=_freeze_sequence,
        validator=[_is_tuple, _are_all(ModelArtifactType)],
    )

    @property
    def own_process_suffix(self) -> str:
        """Suffix of the name of a worker for this model alone; empty if it may share a worker.

        Two models may have the same name, but come from different files.
        """
        implementation = self.model_impl
        if not implementation.own_process:
            return ""
        identity = (
            *(implementation.name, implementation.module_path, self.name),
            sorted(self.model_parameters.items()),
        )
        return f"-{self.name}-{hashlib.sha256(repr(identity).encode()).hexdigest()[:12]}"

    def __str__(self) -> str:
        return self.name


@attrs.frozen(kw_only=True)
class ModelTestData:
    """The source of the raw input of a case.

    With `content_sha256` it is not a raw input but the user's arrays: files `input_0.npy` and so on
    in the directory `source_url`, identified by that digest.
    """

    name: str = attrs.field(validator=_is_name)
    source_url: str = attrs.field(validator=_is_a(str))
    source_info: str = attrs.field(default="", validator=_is_a(str))
    tags: Sequence[str] = _tags()
    content_sha256: str | None = attrs.field(default=None, validator=_is_optional_text)

    def __str__(self) -> str:
        return self.name


@attrs.frozen(kw_only=True)
class DeviceSpec:
    """The device on which a case runs."""

    name: str = attrs.field(validator=_is_name)
    host_type: str = attrs.field(validator=_is_a(str))
    host_model: str = attrs.field(validator=_is_a(str))
    host_environment: str = attrs.field(validator=_is_a(str))
    accelerator_type: str = attrs.field(validator=_is_a(str))
    accelerator_model: str = attrs.field(validator=_is_a(str))
    accelerator_architecture: str = attrs.field(validator=_is_a(str))
    accelerator_attributes: Parameters = _mapping(_are_parameters)

    def __str__(self) -> str:
        return self.name


@attrs.frozen(kw_only=True)
class BenchmarkCase:
    """A model with its input data; `models/<model>/inputs/<input data>`."""

    name: str = attrs.field(validator=_is_case_name)
    model: Model = attrs.field(validator=_is_a(Model))
    input_data: ModelTestData = attrs.field(validator=_is_a(ModelTestData))
    verify_parameters: Mapping[str, float] = _mapping(_are_verify_parameters)

    @classmethod
    def build(
        cls,
        *,
        model: Model,
        input_data: ModelTestData,
        verify_parameters: Mapping[str, float] | None = None,
    ) -> "BenchmarkCase":
        """Makes the case of a model and its input data, named after both.

        Raises:
          DefinitionError: a field is malformed.
        """
        return cls(
            name=f"models/{model}/inputs/{input_data}",
            model=model,
            input_data=input_data,
            verify_parameters=verify_parameters or {},
        )

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the implementation, the model and the input data, each once, in that order."""
        merged = [*self.model.model_impl.tags, *self.model.tags, *self.input_data.tags]
        return tuple(dict.fromkeys(merged))

    @property
    def data_type(self) -> str | None:
        """The `data_type` parameter of the model, e.g. `fp32`."""
        value = self.model.model_parameters.get("data_type")
        return value if isinstance(value, str) else None

    @property
    def batch_size(self) -> int | None:
        """The `batch_size` parameter of the model."""
        value = self.model.model_parameters.get("batch_size")
        return value if isinstance(value, int) else None

    def __str__(self) -> str:
        return self.name


@attrs.frozen(kw_only=True)
class Workload:
    """The common identity of models in different frameworks.

    Two cases may be compared if, and only if, their workloads are equal. `label` is for people; the
    identity consists of all fields, shortened to `digest`.
    """

    label: str
    architecture: str
    config_digest: str
    checkpoint: str
    data_type: str | None
    inputs: tuple[TensorSpec, ...]
    input_digest: str
    digest: str

    @property
    def id(self) -> str:
        """A readable, unique file name: label and the first 12 digits of the digest."""
        return f"{self.label}-{self.digest[:12]}"

    def __str__(self) -> str:
        return self.id
