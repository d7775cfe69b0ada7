"""Pipelines in JAX: a whole use of a model, from the user's words to what the user sees."""

from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.def_types import Model, ModelFrameworkType, ModelImplementation

_PACKAGE = "openxla.benchmark.models.jax"

GPT2LMHEAD_PIPELINE_JAX_IMPL = ModelImplementation(
    name="GPT2LMHEAD_PIPELINE_JAX",
    tags=["transformer-decoder", "gpt2"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.gpt2_pipeline.gpt2_pipeline_model",
    architecture="gpt2_pipeline",
    source_info="https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
)

SD_PIPELINE_JAX_IMPL = ModelImplementation(
    name="SD_PIPELINE_JAX",
    tags=["stable-diffusion", "pipeline"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.sd_pipeline.sd_pipeline_model",
    architecture="sd_pipeline",
    source_info="https://arxiv.org/abs/2112.10752",
)

GPT2LMHEAD_PIPELINE_TINY_JAX = families.GPT2LMHEAD_PIPELINE_TINY.models(
    GPT2LMHEAD_PIPELINE_JAX_IMPL, "JAX"
)
GPT2LMHEAD_PIPELINE_JAX = families.GPT2LMHEAD_PIPELINE.models(GPT2LMHEAD_PIPELINE_JAX_IMPL, "JAX")
SD_PIPELINE_TINY_JAX = families.SD_PIPELINE_TINY.models(SD_PIPELINE_JAX_IMPL, "JAX")
SD_PIPELINE_JAX = families.SD_PIPELINE.models(SD_PIPELINE_JAX_IMPL, "JAX")

ALL_MODELS = utils.collect(globals(), Model)
