"""Language, speech and diffusion models in TensorFlow, and the pipelines made of them."""

from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.def_types import Model, ModelFrameworkType, ModelImplementation


def _implementation(
    name: str, module: str, tags: list[str], source_info: str
) -> ModelImplementation:
    """Returns the implementation of the architecture that is named as its module."""
    return ModelImplementation(
        name=f"{name}_TF",
        tags=tags,
        framework_type=ModelFrameworkType.TF_V2,
        module_path=f"openxla.benchmark.models.tf.{module}.{module}_model",
        architecture=module,
        source_info=source_info,
    )


_GPT2_PAPER = "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf"

GPT2_TF_IMPL = _implementation("GPT2", "gpt2", ["transformer-decoder", "gpt2"], _GPT2_PAPER)
GPT2LMHEAD_TF_IMPL = _implementation(
    "GPT2LMHEAD", "gpt2", ["transformer-decoder", "gpt2lmhead"], _GPT2_PAPER
)
LLAMA_TF_IMPL = _implementation(
    "LLAMA", "llama", ["transformer-decoder", "llama"], "https://arxiv.org/abs/2302.13971"
)
GEMMA_TF_IMPL = _implementation("GEMMA", "gemma", ["gemma"], "https://arxiv.org/abs/2403.08295")
T5_TF_IMPL = _implementation(
    "T5",
    "t5",
    ["transformer-encoder", "transformer-decoder", "t5"],
    "https://arxiv.org/abs/1910.10683",
)
T5_4CG_TF_IMPL = _implementation(
    "T5_4CG",
    "t5_for_cond_gen",
    ["transformer-encoder", "transformer-decoder", "t5", "auto-regressive"],
    "https://arxiv.org/abs/1910.10683",
)
SD_CLIP_TF_IMPL = _implementation(
    "SD_CLIP",
    "sd_clip",
    ["transformer-encoder", "clip", "stable-diffusion"],
    "https://arxiv.org/abs/2103.00020",
)
SD_UNET_TF_IMPL = _implementation(
    "SD_UNET", "sd_unet", ["unet", "stable-diffusion"], "https://arxiv.org/abs/2112.10752"
)
SD_VAE_TF_IMPL = _implementation(
    "SD_VAE", "sd_vae", ["cnn", "vae", "stable-diffusion"], "https://arxiv.org/abs/2112.10752"
)
WHISPER_TF_IMPL = _implementation(
    "WHISPER",
    "whisper",
    ["transformer-encoder", "transformer-decoder", "whisper"],
    "https://arxiv.org/abs/2212.04356",
)
GPT2LMHEAD_PIPELINE_TF_IMPL = _implementation(
    "GPT2LMHEAD_PIPELINE", "gpt2_pipeline", ["transformer-decoder", "gpt2"], _GPT2_PAPER
)
SD_PIPELINE_TF_IMPL = _implementation(
    "SD_PIPELINE",
    "sd_pipeline",
    ["stable-diffusion", "pipeline"],
    "https://arxiv.org/abs/2112.10752",
)

GPT2LMHEAD_TINY_TF = families.GPT2LMHEAD_TINY.in_tensorflow().models(GPT2_TF_IMPL, "TF")
GPT2LMHEAD_TF = families.GPT2LMHEAD.in_tensorflow().models(GPT2LMHEAD_TF_IMPL, "TF")
GPT2_TINY_GREEDY_TF = families.GPT2_TINY_GREEDY.in_tensorflow().models(GPT2_TF_IMPL, "TF")
GPT2_GREEDY_TF = families.GPT2_GREEDY.in_tensorflow().models(GPT2_TF_IMPL, "TF")
LLAMA_TINY_TF = families.LLAMA_TINY.in_tensorflow().models(LLAMA_TF_IMPL, "TF")
LLAMA_1B_TF = families.LLAMA_1B.in_tensorflow().models(LLAMA_TF_IMPL, "TF")
LLAMA_TINY_GREEDY_TF = families.LLAMA_TINY_GREEDY.in_tensorflow().models(LLAMA_TF_IMPL, "TF")
LLAMA_1B_GREEDY_TF = families.LLAMA_1B_GREEDY.in_tensorflow().models(LLAMA_TF_IMPL, "TF")
GEMMA_TINY_TF = families.GEMMA_TINY.in_tensorflow().models(GEMMA_TF_IMPL, "TF")
GEMMA_TINY_GREEDY_TF = families.GEMMA_TINY_GREEDY.in_tensorflow().models(GEMMA_TF_IMPL, "TF")
GEMMA2BIT_GREEDY_TF = families.GEMMA2BIT_GREEDY.in_tensorflow().models(GEMMA_TF_IMPL, "TF")
T5_TINY_TF = families.T5_TINY.in_tensorflow().models(T5_TF_IMPL, "TF")
T5_SMALL_TF = families.T5_SMALL.in_tensorflow().models(T5_TF_IMPL, "TF")
T5_LARGE_FP32_TF = families.T5_LARGE_FP32_TF.in_tensorflow().models(T5_TF_IMPL, "TF")
T5_LARGE_16_BIT_TF = families.T5_LARGE_16_BIT.in_tensorflow().models(T5_TF_IMPL, "TF")
T5_4CG_TINY_TF = families.T5_4CG_TINY.in_tensorflow().models(T5_4CG_TF_IMPL, "TF")
T5_4CG_SMALL_TF = families.T5_4CG_SMALL.in_tensorflow().models(T5_4CG_TF_IMPL, "TF")
T5_4CG_LARGE_TF = families.T5_4CG_LARGE.in_tensorflow().models(T5_4CG_TF_IMPL, "TF")
SD_CLIP_TINY_TF = families.SD_CLIP_TINY.in_tensorflow().models(SD_CLIP_TF_IMPL, "TF")
SD_CLIP_TF = families.SD_CLIP.in_tensorflow().models(SD_CLIP_TF_IMPL, "TF")
SD_UNET_TINY_TF = families.SD_UNET_TINY.in_tensorflow().models(SD_UNET_TF_IMPL, "TF")
SD_UNET_TF = families.SD_UNET.in_tensorflow().models(SD_UNET_TF_IMPL, "TF")
SD_VAE_TINY_TF = families.SD_VAE_TINY.in_tensorflow().models(SD_VAE_TF_IMPL, "TF")
SD_VAE_TF = families.SD_VAE.in_tensorflow().models(SD_VAE_TF_IMPL, "TF")
WHISPER_TINY_TEST_TF = families.WHISPER_TINY_TEST.in_tensorflow().models(WHISPER_TF_IMPL, "TF")
WHISPER_39M_TF = families.WHISPER_39M.in_tensorflow().models(WHISPER_TF_IMPL, "TF")
WHISPER_BASE_TF = families.WHISPER_BASE.in_tensorflow().models(WHISPER_TF_IMPL, "TF")
GPT2LMHEAD_PIPELINE_TINY_TF = families.GPT2LMHEAD_PIPELINE_TINY.in_tensorflow().models(
    GPT2LMHEAD_PIPELINE_TF_IMPL, "TF"
)
GPT2LMHEAD_PIPELINE_TF = families.GPT2LMHEAD_PIPELINE.in_tensorflow().models(
    GPT2LMHEAD_PIPELINE_TF_IMPL, "TF"
)
SD_PIPELINE_TINY_TF = families.SD_PIPELINE_TINY.in_tensorflow().models(SD_PIPELINE_TF_IMPL, "TF")
SD_PIPELINE_TF = families.SD_PIPELINE.in_tensorflow().models(SD_PIPELINE_TF_IMPL, "TF")

ALL_MODELS = utils.collect(globals(), Model)
