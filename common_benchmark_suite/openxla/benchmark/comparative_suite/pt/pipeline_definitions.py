"""Pipelines in PyTorch: a whole use of a model, from the user's words to what the user sees."""

from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.def_types import Model, ModelFrameworkType, ModelImplementation

_PACKAGE = "openxla.benchmark.models.pt"

GPT2LMHEAD_PIPELINE_PT_IMPL = ModelImplementation(
    name="GPT2LMHEAD_PIPELINE_PT",
    tags=["transformer-decoder", "gpt2"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.gpt2_pipeline.gpt2_pipeline_model",
    architecture="gpt2_pipeline",
    source_info="https://huggingface.co/docs/transformers/model_doc/gpt2",
)

SD_PIPELINE_PT_IMPL = ModelImplementation(
    name="SD_PIPELINE_PT",
    tags=["stable-diffusion", "pipeline"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.sd_pipeline.sd_pipeline_model",
    architecture="sd_pipeline",
    source_info="https://huggingface.co/docs/diffusers/api/pipelines/stable_diffusion/text2img",
)

GPT2LMHEAD_PIPELINE_TINY_PT = families.GPT2LMHEAD_PIPELINE_TINY.models(
    GPT2LMHEAD_PIPELINE_PT_IMPL, "PT"
)
GPT2LMHEAD_PIPELINE_PT = families.GPT2LMHEAD_PIPELINE.models(GPT2LMHEAD_PIPELINE_PT_IMPL, "PT")
SD_PIPELINE_TINY_PT = families.SD_PIPELINE_TINY.models(SD_PIPELINE_PT_IMPL, "PT")
SD_PIPELINE_PT = families.SD_PIPELINE.models(SD_PIPELINE_PT_IMPL, "PT")

ALL_MODELS = utils.collect(globals(), Model)
