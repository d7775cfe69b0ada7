"""The suite's own families.

A framework's `model_definitions` and `benchmark_definitions` hold the models and cases made from
them.
"""

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from openxla.benchmark.comparative_suite import families, utils
from openxla.benchmark.comparative_suite.families import (
    DATA_TYPES,
    PUBLISHED_TOLERANCE,
    Family,
    Network,
    definitions,
)
from openxla.benchmark.def_types import BenchmarkCase, ModelArtifactType, ParameterValue


def _batches(
    name: str, shape: str, network: Network, model_name: str, sizes: Sequence[int], **more: Any
) -> Family:
    """Returns models over batch sizes, named by name and shape of one row."""
    return Family(
        name=f"{name}_${{DATA_TYPE}}_${{FRAMEWORK}}_{shape}_BATCH${{batch_size}}",
        network=network,
        model_name=model_name,
        sizes=sizes,
        **more,
    )


def _tiny(
    name: str, shape: str, network: Network, model_name: str, **parameters: ParameterValue
) -> Family:
    """Returns models that run in milliseconds."""
    tags = (utils.BATCH_TAG, "tiny")
    return _batches(name, shape, network, model_name, (1, 4), tags=tags, parameters=parameters)


def _trained(
    name: str, shape: str, network: Network, model_name: str, **parameters: ParameterValue
) -> Family:
    """Returns a tiny model with trained weights, whose results include its task accuracy."""
    tags = (utils.BATCH_TAG, "trained")
    parameters = {"checkpoint": "trained", **parameters}
    return _batches(name, shape, network, model_name, (4,), tags=tags, parameters=parameters)


def _greedy(
    name: str,
    network: Network,
    model_name: str,
    lengths: tuple[int, int],
    sizes: Sequence[int],
    *tags: str,
    **more: Any,
) -> Family:
    """Returns models that continue a prompt, with names like the OpenXLA suite's Gemma models."""
    seq_len, new = lengths
    return Family(
        name=f"{name}_GREEDY_${{DATA_TYPE}}_${{FRAMEWORK}}_${{batch_size}}X{seq_len}XI32_{new}XI32",
        network=network,
        model_name=model_name,
        sizes=sizes,
        tags=("pipeline", "${data_type}", utils.BATCH_TAG, f"seqlen-{seq_len}", *tags),
        parameters={"seq_len": seq_len, "max_new_tokens": new},
        **more,
    )


# Hints for the OpenXLA suite's exporters in its PyTorch definitions; `create_model` accepts them.
_BERT_HINTS = {
    "fp32": {"import_on_gpu": False, "import_with_fx": True},
    "fp16": {"import_on_gpu": True, "import_with_fx": True},
}
_RESNET_HINTS = {
    "fp32": {"import_on_gpu": False, "import_with_fx": True},
    "fp16": {"import_on_gpu": True, "import_with_fx": False},
}

BERT_TINY = _tiny("BERT_TINY", "32XI32", families.BERT, "bert-tiny", seq_len=32)
BERT_TRAINED = _trained("BERT_TRAINED", "32XI32", families.BERT, "bert-tiny", seq_len=32)
BERT_BASE = Family(
    name="BERT_BASE_${DATA_TYPE}_${FRAMEWORK}_I32_SEQLEN${seq_len}",
    network=families.BERT,
    model_name="bert-base-uncased",
    axis="seq_len",
    sizes=(8, 32, 64, 128, 256, 512),
    tags=(utils.SEQLEN_TAG,),
    parameters={"batch_size": 1},
    tflite=DATA_TYPES,
    published=True,
)
BERT_LARGE = _batches(
    "BERT_LARGE",
    "384XI32",
    families.BERT,
    "bert-large-uncased",
    sizes=(1, 16, 24, 32, 48, 64, 512, 1024, 1280),
    parameters={"seq_len": 384},
    tflite=("fp32", "fp16"),
    published=True,
    changes={"PT": {"parameters_by_type": _BERT_HINTS}},
)

RESNET_TINY = _tiny("RESNET_TINY", "3X32X32X${ELEMENT_TYPE}", families.RESNET, "resnet-tiny")
RESNET_TRAINED = _trained(
    "RESNET_TRAINED", "3X32X32X${ELEMENT_TYPE}", families.RESNET, "resnet-tiny"
)
RESNET50 = _batches(
    "RESNET50",
    "3X224X224X${ELEMENT_TYPE}",
    families.RESNET,
    "microsoft/resnet-50",
    sizes=(1, 8, 64, 128, 256, 2048),
    tflite=DATA_TYPES,
    tensorflow_tflite=(ModelArtifactType.TFLITE_FP32, ModelArtifactType.TFLITE_INT8),
    published=True,
    changes={"PT": {"model_name": "torchvision/resnet50", "parameters_by_type": _RESNET_HINTS}},
)

VIT_TINY = _tiny("VIT_TINY", "3X32X32X${ELEMENT_TYPE}", families.VIT, "vit-tiny")
VIT_BASE = _batches(
    "VIT_BASE",
    "3X224X224X${ELEMENT_TYPE}",
    families.VIT,
    "google/vit-base-patch16-224",
    sizes=(1, 8, 64, 128),
    verify_parameters=PUBLISHED_TOLERANCE,
)

EFFICIENTNET_TINY = _tiny(
    "EFFICIENTNET_TINY", "3X36X36X${ELEMENT_TYPE}", families.EFFICIENTNET, "efficientnet-tiny"
)
EFFICIENTNETB0 = _batches(
    "EFFICIENTNETB0",
    "3X224X224X${ELEMENT_TYPE}",
    families.EFFICIENTNET,
    "google/efficientnet-b0",
    sizes=(1, 8, 64, 128),
    verify_parameters=PUBLISHED_TOLERANCE,
)
EFFICIENTNETB7 = _batches(
    "EFFICIENTNETB7",
    "3X600X600X${ELEMENT_TYPE}",
    families.EFFICIENTNET,
    "google/efficientnet-b7",
    sizes=(1, 64, 128),
    tflite=DATA_TYPES,
    published=True,
    changes={"TF": {"model_name": "efficientnetb7"}},
)

GPT2LMHEAD_TINY = _tiny("GPT2LMHEAD_TINY", "32XI32", families.GPT2, "gpt2-tiny", seq_len=32)
GPT2LMHEAD_TRAINED = _trained(
    "GPT2LMHEAD_TRAINED", "32XI32", families.GPT2, "gpt2-tiny", seq_len=32
)
GPT2LMHEAD = _batches(
    "GPT2LMHEAD",
    "512XI32",
    families.GPT2LMHEAD,
    "gpt2",
    sizes=(1, 64, 128),
    tflite=DATA_TYPES,
    published=True,
)
GPT2_TINY_GREEDY = _greedy("GPT2_TINY", families.GPT2, "gpt2-tiny", (16, 8), (1, 4), "tiny")
GPT2_GREEDY = _greedy("GPT2", families.GPT2, "gpt2", (512, 128), (1, 8))

_LLAMA_1B = "TinyLlama/TinyLlama-1.1B-Chat-v1.0"
LLAMA_TINY = _tiny("LLAMA_TINY", "32XI32", families.LLAMA, "llama-tiny", seq_len=32)
LLAMA_1B = _batches(
    "LLAMA_1B", "512XI32", families.LLAMA, _LLAMA_1B, sizes=(1, 8), parameters={"seq_len": 512}
)
# Not in the tiny zoo, because their loop is GPT-2's, and the models above have the same layers.
LLAMA_TINY_GREEDY = _greedy(
    "LLAMA_TINY", families.LLAMA, "llama-tiny", (16, 8), (1, 4), "tiny", in_tiny_zoo=False
)
LLAMA_1B_GREEDY = _greedy("LLAMA_1B", families.LLAMA, _LLAMA_1B, (1024, 256), (1,))
GEMMA_TINY = _tiny("GEMMA_TINY", "32XI32", families.GEMMA, "gemma-tiny", seq_len=32)
GEMMA_TINY_GREEDY = _greedy(
    "GEMMA_TINY", families.GEMMA, "gemma-tiny", (16, 8), (1, 4), "tiny", in_tiny_zoo=False
)
GEMMA2BIT_GREEDY = _greedy(
    "GEMMA2BIT", families.GEMMA, "google/gemma-2b-it", (1024, 256), (1,), published=True
)

T5_TINY = _tiny("T5_TINY", "32XI32", families.T5, "t5-tiny", seq_len=32)
T5_SMALL = Family(
    name="T5_SMALL_${DATA_TYPE}_${FRAMEWORK}_${batch_size}X128XI32",
    network=families.T5,
    model_name="t5-small",
    sizes=(1,),
    tags=("fp32", utils.BATCH_TAG),
    parameters={"seq_len": 128},
    data_types=("fp32",),
    published=True,
)
# The OpenXLA suite's definitions of the 16-bit models omit the length and the type's tag; in
# TensorFlow, the fp32 definition omits the length, too.
T5_LARGE_FP32 = _batches(
    "T5_LARGE",
    "512XI32",
    families.T5,
    "t5-large",
    sizes=(1, 16, 24, 32, 48, 64, 512),
    tags=("fp32", utils.BATCH_TAG),
    parameters={"seq_len": 512},
    data_types=("fp32",),
    published=True,
    changes={"TF": {"parameters": {}}},
)
T5_LARGE_16_BIT = attrs.evolve(
    T5_LARGE_FP32, tags=(utils.BATCH_TAG,), parameters={}, data_types=("fp16", "bf16")
)

T5_4CG_SMALL = Family(
    name="T5_4CG_SMALL_${DATA_TYPE}_${FRAMEWORK}_1X128XI32_GEN${max_new_tokens}",
    network=families.T5_4CG,
    model_name="t5-small",
    axis="max_new_tokens",
    sizes=(16, 32, 64, 128, 256),
    tags=("fp32", "batch-1", "gen-${max_new_tokens}"),
    parameters={"batch_size": 1, "seq_len": 128},
    data_types=("fp32",),
    published=True,
)
T5_4CG_TINY = attrs.evolve(
    T5_4CG_SMALL,
    name="T5_4CG_TINY_${DATA_TYPE}_${FRAMEWORK}_1X32XI32_GEN${max_new_tokens}",
    model_name="t5-tiny",
    sizes=(4, 16),
    tags=(*T5_4CG_SMALL.tags, "tiny"),
    parameters={"batch_size": 1, "seq_len": 32},
    published=False,
)
# The number of new tokens is the OpenXLA suite's default, which its definitions omit.
T5_4CG_LARGE = _batches(
    "T5_4CG_LARGE",
    "512XI32",
    families.T5_4CG,
    "t5-large",
    sizes=(1, 16, 24, 32, 48),
    tags=("fp32", utils.BATCH_TAG),
    parameters={"seq_len": 512},
    data_types=("fp32",),
    published=True,
)

SD_CLIP_TINY = _tiny("SD_CLIP_TINY", "32XI32", families.SD_CLIP, "sd-clip-tiny", seq_len=32)
SD_CLIP = _batches(
    "SD_CLIP", "77XI32", families.SD_CLIP, "sd-clip", sizes=(1, 8), parameters={"seq_len": 77}
)
SD_UNET_TINY = _tiny("SD_UNET_TINY", "4X16X16X${ELEMENT_TYPE}", families.SD_UNET, "sd-unet-tiny")
SD_UNET = _batches(
    "SD_UNET",
    "4X64X64X${ELEMENT_TYPE}",
    families.SD_UNET,
    "sd-unet",
    sizes=(1, 2, 8, 16),  # guidance takes two rows per picture
)
SD_VAE_TINY = _tiny("SD_VAE_TINY", "4X8X8X${ELEMENT_TYPE}", families.SD_VAE, "sd-vae-tiny")
SD_VAE = _batches("SD_VAE", "4X64X64X${ELEMENT_TYPE}", families.SD_VAE, "sd-vae", (1, 8))

WHISPER_TINY_TEST = _tiny(
    "WHISPER_TINY_TEST", "80X100X${ELEMENT_TYPE}", families.WHISPER, "whisper-tiny-test", seq_len=16
)
# Its authors call it tiny. Here that word is reserved for networks that run in milliseconds, so
# that `.*TINY.*` selects only these; this one is named after its number of weights.
WHISPER_39M = _batches(
    "WHISPER_39M",
    "80X3000X${ELEMENT_TYPE}",
    families.WHISPER,
    "openai/whisper-tiny",
    sizes=(1, 8, 16),
    parameters={"seq_len": 64},
)
WHISPER_BASE = attrs.evolve(
    WHISPER_39M, name=WHISPER_39M.name.replace("39M", "BASE"), model_name="openai/whisper-base"
)

# The OpenXLA suite omits type and number of new tokens, and tags it as a competitor of local
# runtimes.
GPT2LMHEAD_PIPELINE = Family(
    name="GPT2LMHEAD_PIPELINE_${FRAMEWORK}_${batch_size}X4XI32",
    network=families.GPT2LMHEAD_PIPELINE,
    model_name="gpt2",
    sizes=(1,),
    tags=("ggml", "pipeline", "fp32", utils.BATCH_TAG),
    data_types=("fp32",),
    tensorflow_tflite=(),
    published=True,
)
GPT2LMHEAD_PIPELINE_TINY = attrs.evolve(
    GPT2LMHEAD_PIPELINE,
    name="GPT2LMHEAD_PIPELINE_TINY_${FRAMEWORK}_${batch_size}X4XI32",
    model_name="gpt2-tiny",
    sizes=(1, 4),
    tags=(*GPT2LMHEAD_PIPELINE.tags, "tiny"),
    parameters={"max_new_tokens": 8},
    published=False,
)
SD_PIPELINE_TINY = _tiny(
    "SD_PIPELINE_TINY", "16XI32", families.SD_PIPELINE, "sd-pipeline-tiny", seq_len=16
)
SD_PIPELINE = _batches(
    "SD_PIPELINE",
    "64XI32",
    families.SD_PIPELINE,
    "runwayml/stable-diffusion-v1-5",
    sizes=(1, 8),
    parameters={"seq_len": 64},
    published=True,
)

FAMILIES = MappingProxyType(
    {name: item for name, item in list(globals().items()) if isinstance(item, Family)}
)
# Families and sizes that are also measured on further inputs, in PyTorch and JAX.
_INPUT_SETS = (
    ("GPT2LMHEAD_TINY", 1),
    ("LLAMA_TINY", 1),
    ("GEMMA_TINY", 1),
    ("T5_TINY", 1),
    ("GPT2_TINY_GREEDY", 1),
    ("LLAMA_TINY_GREEDY", 1),
    ("GEMMA_TINY_GREEDY", 1),
    ("WHISPER_TINY_TEST", 1),
    ("BERT_TINY", 4),
    ("T5_4CG_TINY", 4),
    ("BERT_BASE", 512),
    ("RESNET50", 8),
)


@functools.cache
def own(framework: str) -> Mapping[str, Any]:
    """Returns the suite's own implementations, models and cases; see `definitions`."""
    return MappingProxyType(definitions(framework, FAMILIES))


def input_set_cases(framework: str) -> list[BenchmarkCase]:
    """Returns cases of fp32 models on further inputs.

    Tiny models get another text, padded or not, or sound; larger ones get text and picture.
    """
    models = own(framework)
    return utils.build_input_set_cases(
        [models[f"{name}_{framework}"]["fp32", size] for name, size in _INPUT_SETS]
    )
