"""Models in PyTorch from the `zoo`, e.g. `BERT_TINY_PT`, and their implementations."""

from openxla.benchmark.comparative_suite import utils, zoo
from openxla.benchmark.def_types import (
    Model,
    ModelArtifactType,
    ModelFrameworkType,
    ModelImplementation,
)

# For `artifacts_dir_url` of a template, after you have published its artifacts.
ARTIFACTS_DIR_URL_TEMPLATE = "https://storage.googleapis.com/BUCKET/pytorch/VERSION/${name}"

EXAMPLE_PT_IMPL = ModelImplementation(
    name="EXAMPLE_PT",
    tags=["example"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path="openxla.benchmark.models.pt.example",
    source_info="https://arxiv.org/abs/1905.02244",
)

EXAMPLE_FP32_PT_BATCHES = utils.build_batch_models(
    utils.ModelTemplate(
        name="EXAMPLE_FP32_PT_BATCH${batch_size}",
        tags=[utils.BATCH_TAG],
        model_impl=EXAMPLE_PT_IMPL,
        model_parameters={"batch_size": "${batch_size}", "data_type": "fp32"},
        exported_model_types=[ModelArtifactType.LINALG_MLIR],
    ),
    batch_sizes=[1, 16, 32],
)

globals().update(zoo.own("PT"))

ALL_MODELS = utils.collect(globals(), Model)
