"""Models in JAX."""

from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.def_types import Model, ModelFrameworkType, ModelImplementation

_PACKAGE = "openxla.benchmark.models.jax"

BERT_JAX_IMPL = ModelImplementation(
    name="BERT_JAX",
    tags=["transformer-encoder", "bert"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.bert.bert_model",
    architecture="bert",
    source_info="https://arxiv.org/abs/1810.04805",
)

RESNET_JAX_IMPL = ModelImplementation(
    name="RESNET_JAX",
    tags=["cnn", "resnet"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.resnet.resnet_model",
    architecture="resnet",
    source_info="https://arxiv.org/abs/1512.03385",
)

BERT_TINY_JAX = families.BERT_TINY.models(BERT_JAX_IMPL, "JAX")
BERT_BASE_JAX = families.BERT_BASE.models(BERT_JAX_IMPL, "JAX")
BERT_LARGE_JAX = families.BERT_LARGE.models(BERT_JAX_IMPL, "JAX")
RESNET_TINY_JAX = families.RESNET_TINY.models(RESNET_JAX_IMPL, "JAX")
RESNET50_JAX = families.RESNET50.models(RESNET_JAX_IMPL, "JAX")

ALL_MODELS = utils.collect(globals(), Model)
