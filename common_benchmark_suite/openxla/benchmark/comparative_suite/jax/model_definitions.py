"""Models in JAX."""

from openxla.benchmark.comparative_suite import exports, families, utils
from openxla.benchmark.comparative_suite.jax import pipeline_definitions
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

VIT_JAX_IMPL = ModelImplementation(
    name="VIT_JAX",
    tags=["vision-transformer"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.vit.vit_model",
    architecture="vit",
    source_info="https://arxiv.org/abs/2010.11929",
)

EFFICIENTNET_JAX_IMPL = ModelImplementation(
    name="EFFICIENTNET_JAX",
    tags=["cnn", "efficientnet"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.efficientnet.efficientnet_model",
    architecture="efficientnet",
    source_info="https://arxiv.org/abs/1905.11946",
)

VIT_TINY_JAX = families.VIT_TINY.models(VIT_JAX_IMPL, "JAX")
VIT_BASE_JAX = families.VIT_BASE.models(VIT_JAX_IMPL, "JAX")
EFFICIENTNET_TINY_JAX = families.EFFICIENTNET_TINY.models(EFFICIENTNET_JAX_IMPL, "JAX")
EFFICIENTNETB0_JAX = families.EFFICIENTNETB0.models(EFFICIENTNET_JAX_IMPL, "JAX")
EFFICIENTNETB7_JAX = families.EFFICIENTNETB7.models(EFFICIENTNET_JAX_IMPL, "JAX")

# The seed's name for VIT_BASE in fp32 with one picture; its definition leaves the type out.
VIT_CLASSIFICATION_JAX = Model(
    name="VIT_CLASSIFICATION_JAX_3X224X224XF32",
    tags=["fp32", "batch-1"],
    model_impl=VIT_JAX_IMPL,
    model_parameters={"batch_size": 1, "model_name": "google/vit-base-patch16-224"},
    exported_model_types=exports.from_jax("fp32", tflite=["fp32"]),
)

GPT2_JAX_IMPL = ModelImplementation(
    name="GPT2_JAX",
    tags=["transformer-decoder", "gpt2"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.gpt2.gpt2_model",
    architecture="gpt2",
    source_info="https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
)

# The seed calls it a CNN, too; its users select by these tags.
GPT2LMHEAD_JAX_IMPL = ModelImplementation(
    name="GPT2LMHEAD_JAX",
    tags=["cnn", "gpt2lmhead"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.gpt2.gpt2_model",
    architecture="gpt2",
    source_info="https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf",
)

LLAMA_JAX_IMPL = ModelImplementation(
    name="LLAMA_JAX",
    tags=["transformer-decoder", "llama"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.llama.llama_model",
    architecture="llama",
    source_info="https://arxiv.org/abs/2302.13971",
)

GEMMA_JAX_IMPL = ModelImplementation(
    name="GEMMA_JAX",
    tags=["gemma"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.gemma.gemma_model",
    architecture="gemma",
    source_info="https://arxiv.org/abs/2403.08295",
)

GPT2LMHEAD_TINY_JAX = families.GPT2LMHEAD_TINY.models(GPT2_JAX_IMPL, "JAX")
GPT2LMHEAD_JAX = families.GPT2LMHEAD.models(GPT2LMHEAD_JAX_IMPL, "JAX")
GPT2_TINY_GREEDY_JAX = families.GPT2_TINY_GREEDY.models(GPT2_JAX_IMPL, "JAX")
GPT2_GREEDY_JAX = families.GPT2_GREEDY.models(GPT2_JAX_IMPL, "JAX")
LLAMA_TINY_JAX = families.LLAMA_TINY.models(LLAMA_JAX_IMPL, "JAX")
LLAMA_1B_JAX = families.LLAMA_1B.models(LLAMA_JAX_IMPL, "JAX")
LLAMA_TINY_GREEDY_JAX = families.LLAMA_TINY_GREEDY.models(LLAMA_JAX_IMPL, "JAX")
LLAMA_1B_GREEDY_JAX = families.LLAMA_1B_GREEDY.models(LLAMA_JAX_IMPL, "JAX")
GEMMA_TINY_JAX = families.GEMMA_TINY.models(GEMMA_JAX_IMPL, "JAX")
GEMMA_TINY_GREEDY_JAX = families.GEMMA_TINY_GREEDY.models(GEMMA_JAX_IMPL, "JAX")
GEMMA2BIT_GREEDY_JAX = families.GEMMA2BIT_GREEDY.models(GEMMA_JAX_IMPL, "JAX")

T5_JAX_IMPL = ModelImplementation(
    name="T5_JAX",
    tags=["transformer-encoder", "transformer-decoder", "t5"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.t5.t5_model",
    architecture="t5",
    source_info="https://arxiv.org/abs/1910.10683",
)

T5_4CG_JAX_IMPL = ModelImplementation(
    name="T5_4CG_JAX",
    tags=["transformer-encoder", "transformer-decoder", "t5", "auto-regressive"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.t5_for_cond_gen.t5_for_cond_gen_model",
    architecture="t5_for_cond_gen",
    source_info="https://arxiv.org/abs/1910.10683",
)

T5_TINY_JAX = families.T5_TINY.models(T5_JAX_IMPL, "JAX")
T5_SMALL_JAX = families.T5_SMALL.models(T5_JAX_IMPL, "JAX")
T5_LARGE_FP32_JAX = families.T5_LARGE_FP32.models(T5_JAX_IMPL, "JAX")
T5_LARGE_16_BIT_JAX = families.T5_LARGE_16_BIT.models(T5_JAX_IMPL, "JAX")
T5_4CG_TINY_JAX = families.T5_4CG_TINY.models(T5_4CG_JAX_IMPL, "JAX")
T5_4CG_SMALL_JAX = families.T5_4CG_SMALL.models(T5_4CG_JAX_IMPL, "JAX")
T5_4CG_LARGE_JAX = families.T5_4CG_LARGE.models(T5_4CG_JAX_IMPL, "JAX")

SD_CLIP_JAX_IMPL = ModelImplementation(
    name="SD_CLIP_JAX",
    tags=["transformer-encoder", "clip", "stable-diffusion"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.sd_clip.sd_clip_model",
    architecture="sd_clip",
    source_info="https://arxiv.org/abs/2103.00020",
)

SD_UNET_JAX_IMPL = ModelImplementation(
    name="SD_UNET_JAX",
    tags=["unet", "stable-diffusion"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.sd_unet.sd_unet_model",
    architecture="sd_unet",
    source_info="https://arxiv.org/abs/2112.10752",
)

SD_VAE_JAX_IMPL = ModelImplementation(
    name="SD_VAE_JAX",
    tags=["cnn", "vae", "stable-diffusion"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.sd_vae.sd_vae_model",
    architecture="sd_vae",
    source_info="https://arxiv.org/abs/2112.10752",
)

WHISPER_JAX_IMPL = ModelImplementation(
    name="WHISPER_JAX",
    tags=["transformer-encoder", "transformer-decoder", "whisper"],
    framework_type=ModelFrameworkType.JAX,
    module_path=f"{_PACKAGE}.whisper.whisper_model",
    architecture="whisper",
    source_info="https://arxiv.org/abs/2212.04356",
)

SD_CLIP_TINY_JAX = families.SD_CLIP_TINY.models(SD_CLIP_JAX_IMPL, "JAX")
SD_CLIP_JAX = families.SD_CLIP.models(SD_CLIP_JAX_IMPL, "JAX")
SD_UNET_TINY_JAX = families.SD_UNET_TINY.models(SD_UNET_JAX_IMPL, "JAX")
SD_UNET_JAX = families.SD_UNET.models(SD_UNET_JAX_IMPL, "JAX")
SD_VAE_TINY_JAX = families.SD_VAE_TINY.models(SD_VAE_JAX_IMPL, "JAX")
SD_VAE_JAX = families.SD_VAE.models(SD_VAE_JAX_IMPL, "JAX")
WHISPER_TINY_TEST_JAX = families.WHISPER_TINY_TEST.models(WHISPER_JAX_IMPL, "JAX")
WHISPER_39M_JAX = families.WHISPER_39M.models(WHISPER_JAX_IMPL, "JAX")
WHISPER_BASE_JAX = families.WHISPER_BASE.models(WHISPER_JAX_IMPL, "JAX")

PIPELINES_JAX = pipeline_definitions.ALL_MODELS

ALL_MODELS = utils.collect(globals(), Model)
