"""What can be exported: for each type of artifact, who makes it and who reads it back.

Knows no framework: functions are named by texts, which the processes of the exporters import.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

from comparative_benchmark import iree, onnxruntime, tflite, xla_hlo
from comparative_benchmark.backends.api import BackendInfo
from openxla.benchmark.def_types import Model, ModelArtifactType, ModelFrameworkType

_HERE = "comparative_benchmark.maintenance.artifacts.exporters"
_JAX, _TF, _PT, _TFLITE = (
    ModelFrameworkType.JAX,
    ModelFrameworkType.TF_V2,
    ModelFrameworkType.PYTORCH,
    ModelFrameworkType.TFLITE,
)
_ALL = (_JAX, _TF, _PT, _TFLITE)
_JAX_AND_TENSORFLOW = ("jax", "jaxlib", "flax", "tensorflow", "keras", "numpy")
_MODEL_TYPES = {kind.value for kind in ModelArtifactType}

# What a consumer's outputs are judged by: as the model's own (`model`), the arrays that they must
# be (`inputs`, `truth`), or the consumer's own word (`itself`).
JudgedBy = Literal["model", "inputs", "truth", "itself"]


class UnknownKindError(LookupError):
    """There is no such type of artifact; the message gives the choices."""


@attrs.frozen(kw_only=True)
class Kind:
    """One type of artifact.

    Attributes:
      name: of the type; `ModelArtifactType` has the same names.
      files: that it consists of, in the model's directory; a name with `/` at its end is a folder.
      exporter: `module:function(job)` that writes them.
      consumer: `module:function(job)` that reads them and returns the outputs of the model.
      options: what the two are told beyond the model; several kinds share functions.
      modules: by framework of the model, the modules that must be installed.
      backend: the backend whose environment variables the processes get.
      companions: kinds whose files the consumer needs, too.
      judged_by: see `JudgedBy`.
      precision: what it quantises to; None where it keeps the model's data type.
      producers: packages whose versions decide its bytes.
      accelerator: type of the device that its consumer runs on.
      usual: whether it is made where nobody names types.
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
        """The form that a model is exported to; None for inputs, weights and the like."""
        return ModelArtifactType(self.name) if is_form(self.name) else None


def _file_kind(
    name: str, file: str, judged_by: JudgedBy, what: str, options: Mapping[str, str] | None = None
) -> Kind:
    return Kind(
        name=name,
        files=(file,),
        exporter=f"{_HERE}.from_workload:export_{what}",
        consumer=f"{_HERE}.from_workload:read_{what}",
        options=options or {},
        modules=dict.fromkeys(_ALL, ()),
        backend="jax_xla",  # its variables harm nobody: no framework is imported
        judged_by=judged_by,
        producers=("numpy",),
    )


def _arrays(name: str, judged_by: JudgedBy, of: str, stem: str) -> Kind:
    file = f"{name}_npy.tgz"
    return _file_kind(name, file, judged_by, "arrays", {"file": file, "of": of, "stem": stem})


def _of_the_suite(backend: BackendInfo) -> Mapping[ModelFrameworkType, tuple[str, ...]]:
    """Returns what a backend needs for models of the suite, not for files that users bring."""
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
        # Few machines can run what is for a GPU, to see whether it is right.
        usual=accelerator == "cpu",
    )


def _tflite(name: str, compiler: str, precision: str | None) -> Kind:
    file = f"model_{name.removeprefix('tflite_')}.tflite"
    return Kind(
        name=name,
        files=(file,),
        exporter=f"{_HERE}.from_tensorflow:export_tflite",
        consumer=f"{_HERE}.from_tensorflow:run_tflite",
        options={"file": file, "compiler": compiler},
        modules=_of_the_suite(tflite.BACKEND),
        backend="tflite",
        precision=precision,
        producers=(*_JAX_AND_TENSORFLOW, "ai-edge-litert"),
    )


# In the order in which they are made: what others need comes first.
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
    # Linalg on tensors as IREE takes it: its calling convention, weights as its parameters.
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
        exporter=f"{_HERE}.from_torch:export_onnx",
        consumer=f"{_HERE}.from_torch:run_onnx",
        modules=_of_the_suite(onnxruntime.BACKEND),
        backend="onnxruntime",
        producers=("torch", "transformers", "onnx", "onnxscript", "onnxruntime", "numpy"),
    ),
    Kind(
        name="tf_savedmodel_v2",
        files=("tf-model.tgz",),
        exporter=f"{_HERE}.from_tensorflow:export_saved_model",
        consumer=f"{_HERE}.from_tensorflow:run_saved_model",
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

_NAMES = {kind.name for kind in KINDS}

_NO_STABLEHLO = (
    "PyTorch cannot export to XLA's formats by itself, and torch-mlir, torchax and torch_xla are "
    "not in the suite's environments; use torch_mlir, linalg_mlir or onnx, or the model in JAX"
)
_NO_TOSA = (
    "TensorFlow 2.21 still has the name of a converter from TFLite to TOSA (tf.mlir.experimental) "
    "but not the converter, and no other package in the suite's environments creates TOSA"
)
# Forms that definitions name, and that nothing here makes of such a model.
NO_ROUTE: Mapping[tuple[ModelFrameworkType, str], str] = {
    (_PT, "stablehlo_mlir"): _NO_STABLEHLO,
    (_PT, "stablehlo_bytecode"): _NO_STABLEHLO,
    (_PT, "xla_hlo_dump"): _NO_STABLEHLO,
    (_JAX, "tosa_mlir"): _NO_TOSA,
    (_TF, "tosa_mlir"): _NO_TOSA,
    (_TFLITE, "tosa_mlir"): _NO_TOSA,
}


def is_form(name: str) -> bool:
    """Tells whether a type is a form that a model is exported to, and not its weights, say."""
    return name in _MODEL_TYPES


def find(name: str) -> Kind:
    """Returns the kind of that name.

    Raises:
      UnknownKindError: there is none.
    """
    for kind in KINDS:
        if kind.name == name:
            return kind
    known = ", ".join(kind.name for kind in KINDS)
    raise UnknownKindError(f"unknown artifact type {name!r}; choices are {known}")


def of_model(model: Model, names: Sequence[str] = ()) -> tuple[list[Kind], dict[str, str]]:
    """Returns what to make of a model, and why other things are not made.

    Args:
      model: of any framework.
      names: types that are wanted; all usual ones that such a model can have where there are none.
        What a consumer needs besides is made, too.

    Returns:
      Kinds in the order in which they are to be made, and reasons by type.

    Raises:
      UnknownKindError: there is no type of that name.
    """
    framework = model.model_impl.framework_type
    without = {name: why for (of, name), why in NO_ROUTE.items() if of is framework}
    routeless = {name for _, name in NO_ROUTE}
    refused = {} if names else without
    making = set()
    for name in names:
        kind = None if name in without or name in routeless - _NAMES else find(name)
        if kind is not None and framework in kind.modules:
            making.add(name)
        else:
            why = f"no exporter from {framework.value} to {name}"
            refused[name] = without.get(name, why)
    if not names:
        making = {kind.name for kind in KINDS if _is_usual(kind, model, framework)}
    making |= {name for kind in KINDS if kind.name in making for name in kind.companions}
    return [kind for kind in KINDS if kind.name in making], refused


def _is_usual(kind: Kind, model: Model, framework: ModelFrameworkType) -> bool:
    if framework not in kind.modules or not kind.usual:
        return False
    if framework is _TFLITE and kind.model_type is not None:
        # The case is a file in one precision, which its definition names.
        return kind.model_type in model.exported_model_types
    return True
