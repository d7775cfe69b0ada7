"""Types of artifacts, each with the functions that export it and read it back.

This module imports no framework: functions are given by name, and exporter processes import them.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

from comparative_benchmark import iree, onnxruntime, tflite, xla_hlo
from comparative_benchmark.backends.api import BackendInfo
from openxla.benchmark.def_types import Model, ModelArtifactType, ModelFrameworkType

_HERE = "comparative_benchmark.maintenance.artifacts"
_JAX, _TF, _PT, _TFLITE = (
    ModelFrameworkType.JAX,
    ModelFrameworkType.TF_V2,
    ModelFrameworkType.PYTORCH,
    ModelFrameworkType.TFLITE,
)
_ALL = (_JAX, _TF, _PT, _TFLITE)
_JAX_AND_TENSORFLOW = ("jax", "jaxlib", "flax", "tensorflow", "keras", "numpy")
_MODEL_TYPES = {kind.value for kind in ModelArtifactType}

# How a consumer's outputs are verified: like the model's own outputs (`model`), as identical to
# given arrays (`inputs`, `truth`), or by the consumer (`itself`).
JudgedBy = Literal["model", "inputs", "truth", "itself"]


class UnknownKindError(LookupError):
    """A type of artifact does not exist; the message gives the choices."""


@attrs.frozen(kw_only=True)
class Kind:
    """One type of artifact.

    Attributes:
      name: name of the type; `ModelArtifactType` has the same names.
      files: its files in the model's directory; names that end with `/` are folders.
      exporter: `module:function(job)` that writes the files.
      consumer: `module:function(job)` that reads them and returns the outputs of the model.
      options: further arguments of the two, because several kinds share functions.
      modules: required modules, by framework of the model.
      backend: the backend whose environment variables are set in the processes.
      companions: kinds whose files the consumer also needs.
      judged_by: see `JudgedBy`.
      precision: precision of quantisation; None if it keeps the model's data type.
      producers: packages whose versions determine its bytes.
      accelerator: type of the device for its consumer.
      usual: whether it is exported by default.
    """

    name: str
    files: tuple[str, ...]
    exporter: str
    consumer: str
    options: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    modules: Mapping[ModelFrameworkType, tuple[str, ...]] = attrs.field(hash=False)
    backend: str
    companions: tuple[str, ...] = ()
    judged_by: JudgedBy = "model"
    precision: str | None = None
    producers: tuple[str, ...] = ()
    accelerator: Literal["cpu", "gpu"] = "cpu"
    usual: bool = True

    @property
    def model_type(self) -> ModelArtifactType | None:
        """The exported form of the model; None for inputs, weights and other data."""
        return ModelArtifactType(self.name) if is_form(self.name) else None


def _file_kind(
    name: str, file: str, judged_by: JudgedBy, what: str, options: Mapping[str, str] | None = None
) -> Kind:
    return Kind(
        name=name,
        files=(file,),
        exporter=f"{_HERE}.from_models:export_{what}",
        consumer=f"{_HERE}.from_models:read_{what}",
        options=options or {},
        modules=dict.fromkeys(_ALL, ()),
        backend="jax_xla",  # no framework is imported, so its variables have no effect
        judged_by=judged_by,
        producers=("numpy",),
    )


def _arrays(name: str, judged_by: JudgedBy, of: str, stem: str) -> Kind:
    file = f"{name}_npy.tgz"
    return _file_kind(name, file, judged_by, "arrays", {"file": file, "of": of, "stem": stem})


def _of_the_suite(backend: BackendInfo) -> Mapping[ModelFrameworkType, tuple[str, ...]]:
    """Returns the modules that a backend needs for models of the suite, without user files."""
    return {kind: names for kind, names in backend.modules.items() if kind in _ALL}


def _xla(
    name: str, file: str, form: str, *, companions: tuple[str, ...] = ("xla_weights",)
) -> Kind:
    return Kind(
        name=name,
        files=(file,),
        exporter=f"{_HERE}.from_xla:export_{name}",
        consumer=f"{_HERE}.from_xla:run_program",
        options={"file": file, "form": form},
        modules=_of_the_suite(xla_hlo.BACKEND),
        backend="xla_hlo",
        companions=companions,
        producers=_JAX_AND_TENSORFLOW,
    )


def _iree(
    name: str,
    file: str,
    function: str,
    options: Mapping[str, str] | None = None,
    *,
    torch_only: bool = False,
    needs_weights: bool = True,
    accelerator: Literal["cpu", "gpu"] = "cpu",
) -> Kind:
    every = _of_the_suite(iree.BACKEND)
    return Kind(
        name=name,
        files=(file,),
        exporter=f"{_HERE}.from_iree:export_{function}",
        consumer=f"{_HERE}.from_iree:run_{function}",
        options={"file": file, **(options or {})},
        modules={_PT: every[_PT]} if torch_only else every,
        backend="iree",
        companions=("irpa",) if needs_weights else (),
        producers=(
            *("iree-base-compiler", "iree-base-runtime", "torch", "transformers"),
            *_JAX_AND_TENSORFLOW,
        ),
        accelerator=accelerator,
        # Few machines can run artifacts for a GPU to verify them.
        usual=accelerator == "cpu",
    )


def _tflite(name: str, compiler: str, precision: str | None) -> Kind:
    file = f"model_{name.removeprefix('tflite_')}.tflite"
    return Kind(
        name=name,
        files=(file,),
        exporter=f"{_HERE}.from_models:export_tflite",
        consumer=f"{_HERE}.from_models:run_tflite",
        options={"file": file, "compiler": compiler},
        modules=_of_the_suite(tflite.BACKEND),
        backend="tflite",
        precision=precision,
        producers=(*_JAX_AND_TENSORFLOW, "ai-edge-litert"),
    )


# In export order: kinds that others need come first.
KINDS: tuple[Kind, ...] = (
    _arrays("inputs", "inputs", "inputs", "input"),
    _arrays("outputs", "model", "reference", "output"),
    _arrays("truth", "truth", "truth", "output"),
    _file_kind("second", "second_npy.tgz", "itself", "second"),
    _file_kind("workload", "workload.json", "itself", "workload"),
    _file_kind("checkpoint", "checkpoint/", "itself", "checkpoint"),
    Kind(
        name="xla_weights",
        files=("weights_npy.tgz", "xla_arguments.json"),
        exporter=f"{_HERE}.from_xla:export_weights",
        consumer=f"{_HERE}.from_xla:run_program",
        options={"form": "stablehlo"},
        modules=_of_the_suite(xla_hlo.BACKEND),
        backend="xla_hlo",
        producers=_JAX_AND_TENSORFLOW,
    ),
    _xla("stablehlo_mlir", "stablehlo.mlir", "stablehlo"),
    _xla("stablehlo_bytecode", "stablehlo.mlirbc", "stablehlo"),
    _xla("xla_hlo_dump", "xla_hlo_before_optimizations.txt", "hlo-text"),
    _iree("irpa", "parameters.irpa", "irpa", needs_weights=False),
    _iree(
        "torch_mlir",
        "torch.mlirbc",
        "mlir",
        {"passes": "strip-debuginfo", "input_type": "torch"},
        torch_only=True,
    ),
    # Linalg on tensors with IREE's calling convention, and weights as parameters.
    _iree(
        "linalg_mlir",
        "linalg.mlirbc",
        "mlir",
        {"passes": "strip-debuginfo,torch-to-iree", "input_type": "none"},
        torch_only=True,
    ),
    _iree("vmfb", "model_llvm-cpu.vmfb", "vmfb"),
    _iree("vmfb_cuda", "model_cuda.vmfb", "vmfb_cuda", accelerator="gpu"),
    Kind(
        name="onnx",
        files=("model.onnx", "model.onnx.data"),
        exporter=f"{_HERE}.from_models:export_onnx",
        consumer=f"{_HERE}.from_models:run_onnx",
        modules=_of_the_suite(onnxruntime.BACKEND),
        backend="onnxruntime",
        producers=("torch", "transformers", "onnx", "onnxscript", "onnxruntime", "numpy"),
    ),
    Kind(
        name="tf_savedmodel_v2",
        files=("tf-model.tgz",),
        exporter=f"{_HERE}.from_models:export_saved_model",
        consumer=f"{_HERE}.from_models:run_saved_model",
        modules={_JAX: ("tensorflow", "jax", "flax"), _TF: ("tensorflow", "keras")},
        backend="tflite",
        producers=_JAX_AND_TENSORFLOW,
    ),
    _tflite("tflite_fp32", "fp32", None),
    _tflite("tflite_fp32_stablehlo", "stablehlo", None),
    _tflite("tflite_fp16", "fp16", "fp16-weights"),
    _tflite("tflite_dynamic_range_quant", "dynamic-range", "dynamic-range"),
    _tflite("tflite_int8", "int8", "int8"),
)

_BY_NAME = {kind.name: kind for kind in KINDS}

_NO_STABLEHLO = (
    "PyTorch cannot export to XLA's formats by itself, and torch-mlir, torchax and torch_xla are "
    "not in the suite's environments; use torch_mlir, linalg_mlir or onnx, or the JAX model"
)
_NO_TOSA = (
    "TensorFlow 2.21 still lists a TFLite-to-TOSA converter (tf.mlir.experimental) but does not "
    "contain it, and no other package in the suite's environments creates TOSA"
)
# Types that definitions may name but that cannot be exported from these frameworks.
NO_ROUTE: Mapping[tuple[ModelFrameworkType, str], str] = {
    (_PT, "stablehlo_mlir"): _NO_STABLEHLO,
    (_PT, "stablehlo_bytecode"): _NO_STABLEHLO,
    (_PT, "xla_hlo_dump"): _NO_STABLEHLO,
    (_JAX, "tosa_mlir"): _NO_TOSA,
    (_TF, "tosa_mlir"): _NO_TOSA,
    (_TFLITE, "tosa_mlir"): _NO_TOSA,
}


def is_form(name: str) -> bool:
    """Returns whether a type is an exported form of a model and not, e.g., its weights."""
    return name in _MODEL_TYPES


def find(name: str) -> Kind:
    """Returns the kind with that name.

    Raises:
      UnknownKindError: it does not exist.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    raise UnknownKindError(f"unknown artifact type {name!r}; choices are {', '.join(_BY_NAME)}")


def of_model(model: Model, names: Sequence[str] = ()) -> tuple[list[Kind], dict[str, str]]:
    """Returns the kinds to export for a model, and reasons for types that are not exported.

    Args:
      model: a model of any framework.
      names: requested types; if empty, all default types for such a model. Companions that a
        consumer needs are added.

    Returns:
      Kinds in export order, and reasons by type.

    Raises:
      UnknownKindError: a type does not exist.
    """
    framework = model.model_impl.framework_type
    without = {name: why for (of, name), why in NO_ROUTE.items() if of is framework}
    routeless = {name for _, name in NO_ROUTE}
    refused = {} if names else without
    making = set()
    for name in names:
        kind = None if name in without or name in routeless - _BY_NAME.keys() else find(name)
        if kind is not None and framework in kind.modules:
            making.add(name)
        else:
            refused[name] = without.get(name, f"no exporter from {framework.value} to {name}")
    if not names:
        making = {kind.name for kind in KINDS if _is_usual(kind, model, framework)}
    making |= {name for kind in KINDS if kind.name in making for name in kind.companions}
    return [kind for kind in KINDS if kind.name in making], refused


def _is_usual(kind: Kind, model: Model, framework: ModelFrameworkType) -> bool:
    if framework not in kind.modules or not kind.usual:
        return False
    if framework is _TFLITE and kind.model_type is not None:
        # The case is a file in one precision, named in its definition.
        return kind.model_type in model.exported_model_types
    return True
