"""Families of variants, declared once; each framework says which of them it implements."""

import re
from collections.abc import Mapping, Sequence

import attrs

from openxla.benchmark.comparative_suite import exports, utils
from openxla.benchmark.def_types import (
    Model,
    ModelArtifactType,
    ModelImplementation,
    Parameters,
    ParameterValue,
)
from openxla.benchmark.models.architectures.base import element_type

DATA_TYPES = ("fp32", "fp16", "bf16")

# The first variant of each tiny family: every architecture once in every framework, for runs that
# shall reach all code of all backends in minutes.
TINY_ZOO_TAG = "tiny-zoo"

_CHANNELS_FIRST = re.compile(r"_(\d+)X(\d+)X(\d+)X(\$\{ELEMENT_TYPE\})")


@attrs.frozen(kw_only=True)
class Family:
    """Models of one configuration, along data types and one further axis.

    `name` may hold `${FRAMEWORK}`, `${DATA_TYPE}` (FP32 ...), `${ELEMENT_TYPE}` (F32 ...) and the
    axis, as in the names that the seed's users know; tags may, too, and `${data_type}` (fp32 ...).
    Of a family that the seed has `published`, `tflite` are the data types that it converted to
    TFLite from JAX, `tensorflow_tflite` what it made of the fp32 model in TensorFlow. Others are
    exported to what was proved, see `exports`.
    """

    name: str
    model_name: str
    axis: str
    sizes: Sequence[int]
    tags: Sequence[str]
    parameters: Parameters = attrs.field(factory=dict)
    data_types: Sequence[str] = DATA_TYPES
    tflite: Sequence[str] = ()
    tensorflow_tflite: Sequence[ModelArtifactType] = (ModelArtifactType.TFLITE_FP32,)
    published: bool = False
    in_tiny_zoo: bool = True

    def models(
        self,
        model_impl: ModelImplementation,
        framework: str,
        *,
        model_name: str | None = None,
        parameters_by_type: Mapping[str, Parameters] | None = None,
    ) -> dict[tuple[ParameterValue, ...], Model]:
        """Returns the family in one framework, by (data type, size).

        Args:
          model_impl: the implementation in that framework.
          framework: how names spell it, e.g. `PT`.
          model_name: another name for the same configuration, where users know one.
          parameters_by_type: further parameters of `create_model`, by data type.
        """
        models: dict[tuple[ParameterValue, ...], Model] = {}
        for data_type in self.data_types:
            fields = {
                "FRAMEWORK": framework,
                "DATA_TYPE": data_type.upper(),
                "ELEMENT_TYPE": element_type(data_type).upper(),
                "data_type": data_type,
                self.axis: f"${{{self.axis}}}",
            }
            parameters = {
                "data_type": data_type,
                "model_name": model_name or self.model_name,
                **self.parameters,
                **(parameters_by_type or {}).get(data_type, {}),
            }
            template = utils.ModelTemplate(
                name=utils.substitute(self.name, fields),
                tags=list(dict.fromkeys(utils.substitute(tag, fields) for tag in self.tags)),
                model_impl=model_impl,
                model_parameters=parameters,
                exported_model_types=self._exports(framework, model_impl, data_type, parameters),
            )
            variants = utils.build_models(template, {self.axis: self.sizes})
            if "tiny" in self.tags and self.in_tiny_zoo and data_type == self.data_types[0]:
                first = next(iter(variants))
                variants[first] = _in_tiny_zoo(variants[first])
            models.update({(data_type, *key): model for key, model in variants.items()})
        return models

    def _exports(
        self,
        framework: str,
        model_impl: ModelImplementation,
        data_type: str,
        parameters: Parameters,
    ) -> Sequence[ModelArtifactType]:
        if not self.published:
            return exports.proved(model_impl, {**parameters, self.axis: None})
        if framework == "JAX":
            return exports.from_jax(data_type, self.tflite)
        if framework == "TF":
            return exports.from_tensorflow(data_type, self.tensorflow_tflite)
        return exports.PROGRAMS

    def in_tensorflow(self) -> "Family":
        """Returns the family as the seed describes it in TensorFlow.

        Names tell pictures with their channels last, which is how the models compute; their inputs
        are those of the other frameworks. And there is a tag for the type.
        """
        return attrs.evolve(
            self,
            name=_CHANNELS_FIRST.sub(r"_\2X\3X\1X\4", self.name),
            tags=tuple(dict.fromkeys((*self.tags, "${data_type}"))),
        )


def _in_tiny_zoo(model: Model) -> Model:
    return attrs.evolve(model, tags=(*model.tags, TINY_ZOO_TAG))


BERT_TINY = Family(
    name="BERT_TINY_${DATA_TYPE}_${FRAMEWORK}_32XI32_BATCH${batch_size}",
    model_name="bert-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
    parameters={"seq_len": 32},
)

BERT_BASE = Family(
    name="BERT_BASE_${DATA_TYPE}_${FRAMEWORK}_I32_SEQLEN${seq_len}",
    model_name="bert-base-uncased",
    axis="seq_len",
    sizes=(8, 32, 64, 128, 256, 512),
    tags=(utils.SEQLEN_TAG,),
    parameters={"batch_size": 1},
    tflite=DATA_TYPES,
    published=True,
)

BERT_LARGE = Family(
    name="BERT_LARGE_${DATA_TYPE}_${FRAMEWORK}_384XI32_BATCH${batch_size}",
    model_name="bert-large-uncased",
    axis="batch_size",
    sizes=(1, 16, 24, 32, 48, 64, 512, 1024, 1280),
    tags=(utils.BATCH_TAG,),
    parameters={"seq_len": 384},
    tflite=("fp32", "fp16"),
    published=True,
)

RESNET_TINY = Family(
    name="RESNET_TINY_${DATA_TYPE}_${FRAMEWORK}_3X32X32X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="resnet-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
)

RESNET50 = Family(
    name="RESNET50_${DATA_TYPE}_${FRAMEWORK}_3X224X224X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="microsoft/resnet-50",
    axis="batch_size",
    sizes=(1, 8, 64, 128, 256, 2048),
    tags=(utils.BATCH_TAG,),
    tflite=DATA_TYPES,
    tensorflow_tflite=(ModelArtifactType.TFLITE_FP32, ModelArtifactType.TFLITE_INT8),
    published=True,
)

VIT_TINY = Family(
    name="VIT_TINY_${DATA_TYPE}_${FRAMEWORK}_3X32X32X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="vit-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
)

VIT_BASE = Family(
    name="VIT_BASE_${DATA_TYPE}_${FRAMEWORK}_3X224X224X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="google/vit-base-patch16-224",
    axis="batch_size",
    sizes=(1, 8, 64, 128),
    tags=(utils.BATCH_TAG,),
)

EFFICIENTNET_TINY = Family(
    name="EFFICIENTNET_TINY_${DATA_TYPE}_${FRAMEWORK}_3X36X36X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="efficientnet-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
)

EFFICIENTNETB0 = Family(
    name="EFFICIENTNETB0_${DATA_TYPE}_${FRAMEWORK}_3X224X224X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="google/efficientnet-b0",
    axis="batch_size",
    sizes=(1, 8, 64, 128),
    tags=(utils.BATCH_TAG,),
)

EFFICIENTNETB7 = Family(
    name="EFFICIENTNETB7_${DATA_TYPE}_${FRAMEWORK}_3X600X600X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="google/efficientnet-b7",
    axis="batch_size",
    sizes=(1, 64, 128),
    tags=(utils.BATCH_TAG,),
    tflite=DATA_TYPES,
    published=True,
)

GPT2LMHEAD_TINY = Family(
    name="GPT2LMHEAD_TINY_${DATA_TYPE}_${FRAMEWORK}_32XI32_BATCH${batch_size}",
    model_name="gpt2-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
    parameters={"seq_len": 32},
)

GPT2LMHEAD = Family(
    name="GPT2LMHEAD_${DATA_TYPE}_${FRAMEWORK}_512XI32_BATCH${batch_size}",
    model_name="gpt2",
    axis="batch_size",
    sizes=(1, 64, 128),
    tags=(utils.BATCH_TAG,),
    tflite=DATA_TYPES,
    published=True,
)

LLAMA_TINY = Family(
    name="LLAMA_TINY_${DATA_TYPE}_${FRAMEWORK}_32XI32_BATCH${batch_size}",
    model_name="llama-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
    parameters={"seq_len": 32},
)

LLAMA_1B = Family(
    name="LLAMA_1B_${DATA_TYPE}_${FRAMEWORK}_512XI32_BATCH${batch_size}",
    model_name="TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    axis="batch_size",
    sizes=(1, 8),
    tags=(utils.BATCH_TAG,),
    parameters={"seq_len": 512},
)

GEMMA_TINY = Family(
    name="GEMMA_TINY_${DATA_TYPE}_${FRAMEWORK}_32XI32_BATCH${batch_size}",
    model_name="gemma-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
    parameters={"seq_len": 32},
)


def _greedy(
    name: str, model_name: str, seq_len: int, max_new_tokens: int, sizes: Sequence[int], *tags: str
) -> Family:
    """Returns models that continue a prompt, named as the seed names Gemma's."""
    shapes = f"${{batch_size}}X{seq_len}XI32_{max_new_tokens}XI32"
    return Family(
        name=f"{name}_GREEDY_${{DATA_TYPE}}_${{FRAMEWORK}}_{shapes}",
        model_name=model_name,
        axis="batch_size",
        sizes=sizes,
        tags=("pipeline", "${data_type}", utils.BATCH_TAG, f"seqlen-{seq_len}", *tags),
        parameters={"seq_len": seq_len, "max_new_tokens": max_new_tokens},
    )


GPT2_TINY_GREEDY = _greedy("GPT2_TINY", "gpt2-tiny", 16, 8, (1, 4), "tiny")
GPT2_GREEDY = _greedy("GPT2", "gpt2", 512, 128, (1, 8))
# Their loop is GPT-2's, and their layers are those of the models above.
LLAMA_TINY_GREEDY = attrs.evolve(
    _greedy("LLAMA_TINY", "llama-tiny", 16, 8, (1, 4), "tiny"), in_tiny_zoo=False
)
LLAMA_1B_GREEDY = _greedy("LLAMA_1B", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", 1024, 256, (1,))
GEMMA_TINY_GREEDY = attrs.evolve(
    _greedy("GEMMA_TINY", "gemma-tiny", 16, 8, (1, 4), "tiny"), in_tiny_zoo=False
)
GEMMA2BIT_GREEDY = attrs.evolve(
    _greedy("GEMMA2BIT", "google/gemma-2b-it", 1024, 256, (1,)), published=True
)

T5_TINY = Family(
    name="T5_TINY_${DATA_TYPE}_${FRAMEWORK}_32XI32_BATCH${batch_size}",
    model_name="t5-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
    parameters={"seq_len": 32},
)

T5_SMALL = Family(
    name="T5_SMALL_${DATA_TYPE}_${FRAMEWORK}_${batch_size}X128XI32",
    model_name="t5-small",
    axis="batch_size",
    sizes=(1,),
    tags=("fp32", utils.BATCH_TAG),
    parameters={"seq_len": 128},
    data_types=("fp32",),
    published=True,
)

# The seed's definitions of the 16-bit models leave out the length, and the tag of the type.
T5_LARGE_FP32 = Family(
    name="T5_LARGE_${DATA_TYPE}_${FRAMEWORK}_512XI32_BATCH${batch_size}",
    model_name="t5-large",
    axis="batch_size",
    sizes=(1, 16, 24, 32, 48, 64, 512),
    tags=("fp32", utils.BATCH_TAG),
    parameters={"seq_len": 512},
    data_types=("fp32",),
    published=True,
)
T5_LARGE_16_BIT = attrs.evolve(
    T5_LARGE_FP32, tags=(utils.BATCH_TAG,), parameters={}, data_types=("fp16", "bf16")
)
# In TensorFlow, that of fp32 leaves out the length, too.
T5_LARGE_FP32_TF = attrs.evolve(T5_LARGE_FP32, parameters={})

T5_4CG_TINY = Family(
    name="T5_4CG_TINY_${DATA_TYPE}_${FRAMEWORK}_1X32XI32_GEN${max_new_tokens}",
    model_name="t5-tiny",
    axis="max_new_tokens",
    sizes=(4, 16),
    tags=("fp32", "batch-1", "gen-${max_new_tokens}", "tiny"),
    parameters={"batch_size": 1, "seq_len": 32},
    data_types=("fp32",),
)

T5_4CG_SMALL = Family(
    name="T5_4CG_SMALL_${DATA_TYPE}_${FRAMEWORK}_1X128XI32_GEN${max_new_tokens}",
    model_name="t5-small",
    axis="max_new_tokens",
    sizes=(16, 32, 64, 128, 256),
    tags=("fp32", "batch-1", "gen-${max_new_tokens}"),
    parameters={"batch_size": 1, "seq_len": 128},
    data_types=("fp32",),
    published=True,
)

# The number of new tokens is the seed's default, which its definitions leave out.
T5_4CG_LARGE = Family(
    name="T5_4CG_LARGE_${DATA_TYPE}_${FRAMEWORK}_512XI32_BATCH${batch_size}",
    model_name="t5-large",
    axis="batch_size",
    sizes=(1, 16, 24, 32, 48),
    tags=("fp32", utils.BATCH_TAG),
    parameters={"seq_len": 512},
    data_types=("fp32",),
    published=True,
)

SD_CLIP_TINY = Family(
    name="SD_CLIP_TINY_${DATA_TYPE}_${FRAMEWORK}_32XI32_BATCH${batch_size}",
    model_name="sd-clip-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
    parameters={"seq_len": 32},
)

SD_CLIP = Family(
    name="SD_CLIP_${DATA_TYPE}_${FRAMEWORK}_77XI32_BATCH${batch_size}",
    model_name="sd-clip",
    axis="batch_size",
    sizes=(1, 8),
    tags=(utils.BATCH_TAG,),
    parameters={"seq_len": 77},
)

SD_UNET_TINY = Family(
    name="SD_UNET_TINY_${DATA_TYPE}_${FRAMEWORK}_4X16X16X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="sd-unet-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
)

SD_UNET = Family(
    name="SD_UNET_${DATA_TYPE}_${FRAMEWORK}_4X64X64X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="sd-unet",
    axis="batch_size",
    sizes=(1, 2, 8, 16),  # guidance takes two rows for each picture
    tags=(utils.BATCH_TAG,),
)

SD_VAE_TINY = Family(
    name="SD_VAE_TINY_${DATA_TYPE}_${FRAMEWORK}_4X8X8X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="sd-vae-tiny",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
)

SD_VAE = Family(
    name="SD_VAE_${DATA_TYPE}_${FRAMEWORK}_4X64X64X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="sd-vae",
    axis="batch_size",
    sizes=(1, 8),
    tags=(utils.BATCH_TAG,),
)

WHISPER_TINY_TEST = Family(
    name="WHISPER_TINY_TEST_${DATA_TYPE}_${FRAMEWORK}_80X100X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="whisper-tiny-test",
    axis="batch_size",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
    parameters={"seq_len": 16},
)

# Its makers call it tiny. Here that word stands for networks that run in milliseconds, so that
# `.*TINY.*` selects these and nothing else; this one goes by its number of weights.
WHISPER_39M = Family(
    name="WHISPER_39M_${DATA_TYPE}_${FRAMEWORK}_80X3000X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="openai/whisper-tiny",
    axis="batch_size",
    sizes=(1, 8, 16),
    tags=(utils.BATCH_TAG,),
    parameters={"seq_len": 64},
)

WHISPER_BASE = Family(
    name="WHISPER_BASE_${DATA_TYPE}_${FRAMEWORK}_80X3000X${ELEMENT_TYPE}_BATCH${batch_size}",
    model_name="openai/whisper-base",
    axis="batch_size",
    sizes=(1, 8, 16),
    tags=(utils.BATCH_TAG,),
    parameters={"seq_len": 64},
)

# Pipelines: a whole use of a model, from the user's words to what the user sees.

# The seed names neither type nor number of new tokens, and tags it as a rival of local runtimes.
GPT2LMHEAD_PIPELINE = Family(
    name="GPT2LMHEAD_PIPELINE_${FRAMEWORK}_${batch_size}X4XI32",
    model_name="gpt2",
    axis="batch_size",
    sizes=(1,),
    tags=("ggml", "pipeline", "fp32", utils.BATCH_TAG),
    data_types=("fp32",),
    tensorflow_tflite=(),
    published=True,
)
GPT2LMHEAD_PIPELINE_TINY = attrs.evolve(
    GPT2LMHEAD_PIPELINE,
    published=False,
    name="GPT2LMHEAD_PIPELINE_TINY_${FRAMEWORK}_${batch_size}X4XI32",
    model_name="gpt2-tiny",
    sizes=(1, 4),
    tags=(*GPT2LMHEAD_PIPELINE.tags, "tiny"),
    parameters={"max_new_tokens": 8},
)

SD_PIPELINE = Family(
    name="SD_PIPELINE_${DATA_TYPE}_${FRAMEWORK}_64XI32_BATCH${batch_size}",
    model_name="runwayml/stable-diffusion-v1-5",
    axis="batch_size",
    sizes=(1, 8),
    tags=(utils.BATCH_TAG,),
    parameters={"seq_len": 64},
    published=True,
)
SD_PIPELINE_TINY = attrs.evolve(
    SD_PIPELINE,
    published=False,
    name="SD_PIPELINE_TINY_${DATA_TYPE}_${FRAMEWORK}_16XI32_BATCH${batch_size}",
    model_name="sd-pipeline-tiny",
    sizes=(1, 4),
    tags=(utils.BATCH_TAG, "tiny"),
    parameters={"seq_len": 16},
)
