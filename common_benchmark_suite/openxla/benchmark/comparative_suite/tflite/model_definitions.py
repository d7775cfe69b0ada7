"""Models in TFLite: files named by their addresses."""

import attrs

from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.comparative_suite.families import TINY_ZOO_TAG
from openxla.benchmark.def_types import (
    Model,
    ModelArtifactType,
    ModelFrameworkType,
    ModelImplementation,
)

_PACKAGE = "openxla.benchmark.models.tflite"
# Location of the published cases' files; the folder is named after the JAX model.
_PUBLISHED = "https://storage.googleapis.com/iree-model-artifacts/jax/jax_models_0.4.25_1709787220"

BERT_TFLITE_IMPL = ModelImplementation(
    name="BERT_TFLITE",
    tags=["tflite"],
    framework_type=ModelFrameworkType.TFLITE,
    module_path=f"{_PACKAGE}.bert",
    architecture=f"{_PACKAGE}.bert",
    source_info="https://arxiv.org/abs/1810.04805",
)

VIT_TFLITE_IMPL = ModelImplementation(
    name="VIT_TFLITE",
    tags=["tflite"],
    framework_type=ModelFrameworkType.TFLITE,
    module_path=f"{_PACKAGE}.vit",
    architecture=f"{_PACKAGE}.vit",
    source_info="https://arxiv.org/abs/2010.11929",
)


@attrs.frozen(kw_only=True)
class _Precision:
    """The spelling of a precision in names, tags and files."""

    name: str
    tag: str
    kind: ModelArtifactType

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"model_{self.kind.value.removeprefix('tflite_')}.tflite"


FP32 = _Precision(name="FP32", tag="fp32", kind=ModelArtifactType.TFLITE_FP32)
FP16 = _Precision(name="FP16", tag="fp16", kind=ModelArtifactType.TFLITE_FP16)
DYN_QUANT = _Precision(
    name="DYN_QUANT", tag="dyn-quant", kind=ModelArtifactType.TFLITE_DYNAMIC_RANGE_QUANT
)
INT8 = _Precision(name="INT8", tag="int8", kind=ModelArtifactType.TFLITE_INT8)
PRECISIONS = (FP32, FP16, DYN_QUANT, INT8)


def _bert_base(precision: _Precision) -> dict[int, Model]:
    models = {}
    # The OpenXLA suite uses fp32 for its fp16 files of BERT, and its readers look for that.
    kind = FP32.kind if precision is FP16 else precision.kind
    for seq_len in (8, 32, 64, 128, 256, 512):
        source = f"BERT_BASE_FP32_JAX_I32_SEQLEN{seq_len}"
        models[seq_len] = Model(
            name=f"BERT_BASE_{precision.name}_TFLITE_I32_SEQLEN{seq_len}",
            tags=[utils.substitute(utils.SEQLEN_TAG, {"seq_len": seq_len})],
            model_impl=BERT_TFLITE_IMPL,
            model_parameters={"model_uri": f"{_PUBLISHED}/{source}/{precision.file}"},
            exported_model_types=(kind, ModelArtifactType.TOSA_MLIR),
        )
    return models


def _vit(precision: _Precision) -> Model:
    # Pixels and logits of the int8 file are int8, too.
    element = "INT8" if precision is INT8 else "F32"
    source = "VIT_CLASSIFICATION_JAX_3X224X224XF32"
    return Model(
        name=f"VIT_CLASSIFICATION_{precision.name}_TFLITE_3X224X224X{element}",
        tags=[precision.tag, "batch-1"],
        model_impl=VIT_TFLITE_IMPL,
        model_parameters={"model_uri": f"{_PUBLISHED}/{source}/{precision.file}"},
        exported_model_types=(precision.kind, ModelArtifactType.TOSA_MLIR),
    )


def _tiny(impl: ModelImplementation, precision: _Precision, name: str, source: str) -> Model:
    return Model(
        name=name,
        tags=[precision.tag, "batch-1", "tiny", TINY_ZOO_TAG],
        model_impl=impl,
        model_parameters={"model_uri": f"converted:{source}/{precision.file}"},
        exported_model_types=(precision.kind, ModelArtifactType.TOSA_MLIR),
    )


BERT_TINY_TFLITE = {
    precision.name: _tiny(
        BERT_TFLITE_IMPL,
        precision,
        f"BERT_TINY_{precision.name}_TFLITE_32XI32_BATCH1",
        "BERT_TINY_FP32_JAX_32XI32_BATCH1",
    )
    for precision in PRECISIONS
}
VIT_TINY_TFLITE = {
    precision.name: _tiny(
        VIT_TFLITE_IMPL,
        precision,
        f"VIT_TINY_{precision.name}_TFLITE_3X32X32X{'INT8' if precision is INT8 else 'F32'}_BATCH1",
        "VIT_TINY_FP32_JAX_3X32X32XF32_BATCH1",
    )
    for precision in PRECISIONS
}
BERT_BASE_TFLITE = {precision.name: _bert_base(precision) for precision in PRECISIONS}
VIT_CLASSIFICATION_TFLITE = {precision.name: _vit(precision) for precision in PRECISIONS}

ALL_MODELS = utils.collect(globals(), Model)
