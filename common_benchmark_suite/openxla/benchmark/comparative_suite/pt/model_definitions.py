"""Models in PyTorch."""

from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.def_types import Model, ModelFrameworkType, ModelImplementation

_PACKAGE = "openxla.benchmark.models.pt"

EXAMPLE_PT_IMPL = ModelImplementation(
    name="EXAMPLE_PT",
    tags=["example"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.example.example_model",
    source_info="https://arxiv.org/abs/1905.02244",
)

BERT_PT_IMPL = ModelImplementation(
    name="BERT_PT",
    tags=["transformer-encoder", "bert"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.bert.bert_model",
    architecture="bert",
    source_info="https://huggingface.co/docs/transformers/model_doc/bert",
)

RESNET_PT_IMPL = ModelImplementation(
    name="RESNET_PT",
    tags=["cnn", "resnet"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.resnet.resnet_model",
    architecture="resnet",
    source_info="https://huggingface.co/docs/transformers/model_doc/resnet",
)

EXAMPLE_FP32_PT_BATCHES = utils.build_batch_models(
    utils.ModelTemplate(
        name="EXAMPLE_FP32_PT_BATCH${batch_size}",
        tags=[utils.BATCH_TAG],
        model_impl=EXAMPLE_PT_IMPL,
        model_parameters={"batch_size": "${batch_size}", "data_type": "fp32"},
    ),
    batch_sizes=[1, 16, 32],
)

# Hints to the seed's exporters that its definitions carry; `create_model` accepts them.
_BERT_HINTS = {
    "fp32": {"import_on_gpu": False, "import_with_fx": True},
    "fp16": {"import_on_gpu": True, "import_with_fx": True},
}
_RESNET_HINTS = {
    "fp32": {"import_on_gpu": False, "import_with_fx": True},
    "fp16": {"import_on_gpu": True, "import_with_fx": False},
}

BERT_TINY_PT = families.BERT_TINY.models(BERT_PT_IMPL, "PT")
BERT_BASE_PT = families.BERT_BASE.models(BERT_PT_IMPL, "PT")
BERT_LARGE_PT = families.BERT_LARGE.models(BERT_PT_IMPL, "PT", parameters_by_type=_BERT_HINTS)
RESNET_TINY_PT = families.RESNET_TINY.models(RESNET_PT_IMPL, "PT")
RESNET50_PT = families.RESNET50.models(
    RESNET_PT_IMPL,
    "PT",
    model_name="torchvision/resnet50",
    parameters_by_type=_RESNET_HINTS,
)

ALL_MODELS = utils.collect(globals(), Model)
