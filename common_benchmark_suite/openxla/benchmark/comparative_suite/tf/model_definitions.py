"""Models in TensorFlow."""

from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.comparative_suite.tf import zoo_definitions
from openxla.benchmark.def_types import Model, ModelFrameworkType, ModelImplementation

_PACKAGE = "openxla.benchmark.models.tf"

BERT_TF_IMPL = ModelImplementation(
    name="BERT_TF",
    tags=["transformer-encoder", "bert"],
    framework_type=ModelFrameworkType.TF_V2,
    module_path=f"{_PACKAGE}.bert.bert_model",
    architecture="bert",
    source_info="https://arxiv.org/abs/1810.04805",
)

RESNET_TF_IMPL = ModelImplementation(
    name="RESNET_TF",
    tags=["cnn", "resnet"],
    framework_type=ModelFrameworkType.TF_V2,
    module_path=f"{_PACKAGE}.resnet.resnet_model",
    architecture="resnet",
    source_info="https://arxiv.org/abs/1512.03385",
)

VIT_TF_IMPL = ModelImplementation(
    name="VIT_TF",
    tags=["vision-transformer"],
    framework_type=ModelFrameworkType.TF_V2,
    module_path=f"{_PACKAGE}.vit.vit_model",
    architecture="vit",
    source_info="https://arxiv.org/abs/2010.11929",
)

EFFICIENTNET_TF_IMPL = ModelImplementation(
    name="EFFICIENTNET_TF",
    tags=["cnn", "efficientnet"],
    framework_type=ModelFrameworkType.TF_V2,
    module_path=f"{_PACKAGE}.efficientnet.efficientnet_model",
    architecture="efficientnet",
    source_info="https://arxiv.org/abs/1905.11946",
)

BERT_TINY_TF = families.BERT_TINY.in_tensorflow().models(BERT_TF_IMPL, "TF")
BERT_BASE_TF = families.BERT_BASE.in_tensorflow().models(BERT_TF_IMPL, "TF")
BERT_LARGE_TF = families.BERT_LARGE.in_tensorflow().models(BERT_TF_IMPL, "TF")
RESNET_TINY_TF = families.RESNET_TINY.in_tensorflow().models(RESNET_TF_IMPL, "TF")
RESNET50_TF = families.RESNET50.in_tensorflow().models(RESNET_TF_IMPL, "TF")
VIT_TINY_TF = families.VIT_TINY.in_tensorflow().models(VIT_TF_IMPL, "TF")
VIT_BASE_TF = families.VIT_BASE.in_tensorflow().models(VIT_TF_IMPL, "TF")
EFFICIENTNET_TINY_TF = families.EFFICIENTNET_TINY.in_tensorflow().models(EFFICIENTNET_TF_IMPL, "TF")
EFFICIENTNETB0_TF = families.EFFICIENTNETB0.in_tensorflow().models(EFFICIENTNET_TF_IMPL, "TF")
EFFICIENTNETB7_TF = families.EFFICIENTNETB7.in_tensorflow().models(
    EFFICIENTNET_TF_IMPL, "TF", model_name="efficientnetb7"
)

ZOO_TF = zoo_definitions.ALL_MODELS

ALL_MODELS = utils.collect(globals(), Model)
