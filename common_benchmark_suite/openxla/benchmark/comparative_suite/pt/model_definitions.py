"""Models in PyTorch."""

from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.comparative_suite.pt import pipeline_definitions
from openxla.benchmark.def_types import (
    Model,
    ModelArtifactType,
    ModelFrameworkType,
    ModelImplementation,
)

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
        exported_model_types=[ModelArtifactType.LINALG_MLIR],
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

VIT_PT_IMPL = ModelImplementation(
    name="VIT_PT",
    tags=["vision-transformer"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.vit.vit_model",
    architecture="vit",
    source_info="https://huggingface.co/docs/transformers/model_doc/vit",
)

EFFICIENTNET_PT_IMPL = ModelImplementation(
    name="EFFICIENTNET_PT",
    tags=["cnn", "efficientnet"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.efficientnet.efficientnet_model",
    architecture="efficientnet",
    source_info="https://huggingface.co/docs/transformers/model_doc/efficientnet",
)

VIT_TINY_PT = families.VIT_TINY.models(VIT_PT_IMPL, "PT")
VIT_BASE_PT = families.VIT_BASE.models(VIT_PT_IMPL, "PT")
EFFICIENTNET_TINY_PT = families.EFFICIENTNET_TINY.models(EFFICIENTNET_PT_IMPL, "PT")
EFFICIENTNETB0_PT = families.EFFICIENTNETB0.models(EFFICIENTNET_PT_IMPL, "PT")
EFFICIENTNETB7_PT = families.EFFICIENTNETB7.models(EFFICIENTNET_PT_IMPL, "PT")

GPT2_PT_IMPL = ModelImplementation(
    name="GPT2_PT",
    tags=["transformer-decoder", "gpt2"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.gpt2.gpt2_model",
    architecture="gpt2",
    source_info="https://huggingface.co/docs/transformers/model_doc/gpt2",
)

GPT2LMHEAD_PT_IMPL = ModelImplementation(
    name="GPT2LMHEAD_PT",
    tags=["transformer-decoder", "gpt2lmhead"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.gpt2.gpt2_model",
    architecture="gpt2",
    source_info="https://huggingface.co/docs/transformers/model_doc/gpt2",
)

LLAMA_PT_IMPL = ModelImplementation(
    name="LLAMA_PT",
    tags=["transformer-decoder", "llama"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.llama.llama_model",
    architecture="llama",
    source_info="https://huggingface.co/docs/transformers/model_doc/llama",
)

GEMMA_PT_IMPL = ModelImplementation(
    name="GEMMA_PT",
    tags=["gemma"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.gemma.gemma_model",
    architecture="gemma",
    source_info="https://huggingface.co/docs/transformers/model_doc/gemma",
)

GPT2LMHEAD_TINY_PT = families.GPT2LMHEAD_TINY.models(GPT2_PT_IMPL, "PT")
GPT2LMHEAD_PT = families.GPT2LMHEAD.models(GPT2LMHEAD_PT_IMPL, "PT")
GPT2_TINY_GREEDY_PT = families.GPT2_TINY_GREEDY.models(GPT2_PT_IMPL, "PT")
GPT2_GREEDY_PT = families.GPT2_GREEDY.models(GPT2_PT_IMPL, "PT")
LLAMA_TINY_PT = families.LLAMA_TINY.models(LLAMA_PT_IMPL, "PT")
LLAMA_1B_PT = families.LLAMA_1B.models(LLAMA_PT_IMPL, "PT")
LLAMA_TINY_GREEDY_PT = families.LLAMA_TINY_GREEDY.models(LLAMA_PT_IMPL, "PT")
LLAMA_1B_GREEDY_PT = families.LLAMA_1B_GREEDY.models(LLAMA_PT_IMPL, "PT")
GEMMA_TINY_PT = families.GEMMA_TINY.models(GEMMA_PT_IMPL, "PT")
GEMMA_TINY_GREEDY_PT = families.GEMMA_TINY_GREEDY.models(GEMMA_PT_IMPL, "PT")
GEMMA2BIT_GREEDY_PT = families.GEMMA2BIT_GREEDY.models(GEMMA_PT_IMPL, "PT")

T5_PT_IMPL = ModelImplementation(
    name="T5_PT",
    tags=["transformer-encoder", "transformer-decoder", "t5"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.t5.t5_model",
    architecture="t5",
    source_info="https://huggingface.co/docs/transformers/model_doc/t5",
)

T5_4CG_PT_IMPL = ModelImplementation(
    name="T5_4CG_PT",
    tags=["transformer-encoder", "transformer-decoder", "t5", "auto-regressive"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.t5_for_cond_gen.t5_for_cond_gen_model",
    architecture="t5_for_cond_gen",
    source_info="https://huggingface.co/docs/transformers/model_doc/t5",
)

T5_TINY_PT = families.T5_TINY.models(T5_PT_IMPL, "PT")
T5_SMALL_PT = families.T5_SMALL.models(T5_PT_IMPL, "PT")
T5_LARGE_FP32_PT = families.T5_LARGE_FP32.models(T5_PT_IMPL, "PT")
T5_LARGE_16_BIT_PT = families.T5_LARGE_16_BIT.models(T5_PT_IMPL, "PT")
T5_4CG_TINY_PT = families.T5_4CG_TINY.models(T5_4CG_PT_IMPL, "PT")
T5_4CG_SMALL_PT = families.T5_4CG_SMALL.models(T5_4CG_PT_IMPL, "PT")
T5_4CG_LARGE_PT = families.T5_4CG_LARGE.models(T5_4CG_PT_IMPL, "PT")

SD_CLIP_PT_IMPL = ModelImplementation(
    name="SD_CLIP_PT",
    tags=["transformer-encoder", "clip", "stable-diffusion"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.sd_clip.sd_clip_model",
    architecture="sd_clip",
    source_info="https://huggingface.co/docs/transformers/model_doc/clip",
)

SD_UNET_PT_IMPL = ModelImplementation(
    name="SD_UNET_PT",
    tags=["unet", "stable-diffusion"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.sd_unet.sd_unet_model",
    architecture="sd_unet",
    source_info="https://huggingface.co/docs/diffusers/api/models/unet2d-cond",
)

SD_VAE_PT_IMPL = ModelImplementation(
    name="SD_VAE_PT",
    tags=["cnn", "vae", "stable-diffusion"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.sd_vae.sd_vae_model",
    architecture="sd_vae",
    source_info="https://huggingface.co/docs/diffusers/api/models/autoencoderkl",
)

WHISPER_PT_IMPL = ModelImplementation(
    name="WHISPER_PT",
    tags=["transformer-encoder", "transformer-decoder", "whisper"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path=f"{_PACKAGE}.whisper.whisper_model",
    architecture="whisper",
    source_info="https://huggingface.co/docs/transformers/model_doc/whisper",
)

SD_CLIP_TINY_PT = families.SD_CLIP_TINY.models(SD_CLIP_PT_IMPL, "PT")
SD_CLIP_PT = families.SD_CLIP.models(SD_CLIP_PT_IMPL, "PT")
SD_UNET_TINY_PT = families.SD_UNET_TINY.models(SD_UNET_PT_IMPL, "PT")
SD_UNET_PT = families.SD_UNET.models(SD_UNET_PT_IMPL, "PT")
SD_VAE_TINY_PT = families.SD_VAE_TINY.models(SD_VAE_PT_IMPL, "PT")
SD_VAE_PT = families.SD_VAE.models(SD_VAE_PT_IMPL, "PT")
WHISPER_TINY_TEST_PT = families.WHISPER_TINY_TEST.models(WHISPER_PT_IMPL, "PT")
WHISPER_39M_PT = families.WHISPER_39M.models(WHISPER_PT_IMPL, "PT")
WHISPER_BASE_PT = families.WHISPER_BASE.models(WHISPER_PT_IMPL, "PT")

PIPELINES_PT = pipeline_definitions.ALL_MODELS

ALL_MODELS = utils.collect(globals(), Model)
