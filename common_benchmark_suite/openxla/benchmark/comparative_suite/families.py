"""Families of variants, expanded to models and cases: their networks and export formats.

A family is declared once for all frameworks. A network holds the common properties of the
implementations of an architecture. `exported_types.json` lists by model the exports that were read
back and verified; `cbs artifacts generate --record-types` writes it. A model that is not listed is
assumed to export to the same formats as models of the same module and data type, or to none if none
of them was tried.
"""

import functools
import json
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.def_types import (
    Model,
    ModelArtifactType,
    ModelFrameworkType,
    ModelImplementation,
    Parameters,
    ParameterValue,
)
from openxla.benchmark.models.architectures.base import element_type

# Spelling of a framework in names; in lower case, also the package of its models.
FRAMEWORK_TYPES = MappingProxyType(
    {
        "PT": ModelFrameworkType.PYTORCH,
        "JAX": ModelFrameworkType.JAX,
        "TF": ModelFrameworkType.TF_V2,
    }
)


@attrs.frozen(kw_only=True)
class Network:
    """An architecture, and the common properties of its implementations.

    Attributes:
      name: name of its implementations, without the framework.
      module: name of the modules of its architecture and implementations.
      tags: tags of its implementations.
      paper: the paper that introduced it.
      pytorch_source: documentation of the library that has it in PyTorch, if any.
      other_tags: differing tags, by framework.
    """

    name: str
    module: str
    tags: Sequence[str]
    paper: str | None = None
    pytorch_source: str | None = None
    other_tags: Mapping[str, Sequence[str]] = MappingProxyType({})

    def implementation(self, framework: str) -> ModelImplementation:
        """Returns the implementation in a framework, e.g. `PT`."""
        return ModelImplementation(
            name=f"{self.name}_{framework}",
            tags=self.other_tags.get(framework, self.tags),
            framework_type=FRAMEWORK_TYPES[framework],
            module_path=f"openxla.benchmark.models.{framework.lower()}.{self.module}",
            architecture=self.module,
            source_info=(self.pytorch_source if framework == "PT" else None) or self.paper,
        )


def _network(
    name: str, *tags: str, paper: str, source: str, module: str | None = None, **more: Any
) -> Network:
    return Network(
        name=name,
        module=module or name.lower(),
        tags=tags,
        paper=paper,
        pytorch_source=f"https://huggingface.co/docs/{source}",
        **more,
    )


_ENCODER, _DECODER = "transformer-encoder", "transformer-decoder"
_ARXIV = "https://arxiv.org/abs"
_TRANSFORMERS, _DIFFUSERS = "transformers/model_doc", "diffusers/api"
_GPT2_PAPER = "https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf"

BERT = _network(
    "BERT", _ENCODER, "bert", paper=f"{_ARXIV}/1810.04805", source=f"{_TRANSFORMERS}/bert"
)
RESNET = _network(
    "RESNET", "cnn", "resnet", paper=f"{_ARXIV}/1512.03385", source=f"{_TRANSFORMERS}/resnet"
)
VIT = _network(
    "VIT", "vision-transformer", paper=f"{_ARXIV}/2010.11929", source=f"{_TRANSFORMERS}/vit"
)
EFFICIENTNET = _network(
    "EFFICIENTNET",
    "cnn",
    "efficientnet",
    paper=f"{_ARXIV}/1905.11946",
    source=f"{_TRANSFORMERS}/efficientnet",
)
GPT2 = _network("GPT2", _DECODER, "gpt2", paper=_GPT2_PAPER, source=f"{_TRANSFORMERS}/gpt2")
GPT2LMHEAD = _network(
    "GPT2LMHEAD",
    _DECODER,
    "gpt2lmhead",
    module="gpt2",
    # The OpenXLA suite also tags it as a CNN; its users select by these tags.
    other_tags={"JAX": ("cnn", "gpt2lmhead")},
    paper=_GPT2_PAPER,
    source=f"{_TRANSFORMERS}/gpt2",
)
LLAMA = _network(
    "LLAMA", _DECODER, "llama", paper=f"{_ARXIV}/2302.13971", source=f"{_TRANSFORMERS}/llama"
)
GEMMA = _network("GEMMA", "gemma", paper=f"{_ARXIV}/2403.08295", source=f"{_TRANSFORMERS}/gemma")
T5 = _network(
    "T5", _ENCODER, _DECODER, "t5", paper=f"{_ARXIV}/1910.10683", source=f"{_TRANSFORMERS}/t5"
)
T5_4CG = attrs.evolve(
    T5, name="T5_4CG", module="t5_for_cond_gen", tags=(*T5.tags, "auto-regressive")
)
SD_CLIP = _network(
    "SD_CLIP",
    _ENCODER,
    "clip",
    "stable-diffusion",
    paper=f"{_ARXIV}/2103.00020",
    source=f"{_TRANSFORMERS}/clip",
)
SD_UNET = _network(
    "SD_UNET",
    "unet",
    "stable-diffusion",
    paper=f"{_ARXIV}/2112.10752",
    source=f"{_DIFFUSERS}/models/unet2d-cond",
)
SD_VAE = _network(
    "SD_VAE",
    "cnn",
    "vae",
    "stable-diffusion",
    paper=f"{_ARXIV}/2112.10752",
    source=f"{_DIFFUSERS}/models/autoencoderkl",
)
WHISPER = _network(
    "WHISPER",
    _ENCODER,
    _DECODER,
    "whisper",
    paper=f"{_ARXIV}/2212.04356",
    source=f"{_TRANSFORMERS}/whisper",
)
# Pipelines: complete uses of a model, from user input to final output.
GPT2LMHEAD_PIPELINE = attrs.evolve(GPT2, name="GPT2LMHEAD_PIPELINE", module="gpt2_pipeline")
SD_PIPELINE = _network(
    "SD_PIPELINE",
    "stable-diffusion",
    "pipeline",
    paper=f"{_ARXIV}/2112.10752",
    source=f"{_DIFFUSERS}/pipelines/stable_diffusion/text2img",
)


PROGRAMS = (ModelArtifactType.STABLEHLO_MLIR, ModelArtifactType.XLA_HLO_DUMP)
PROVED_FILE = Path(__file__).with_name("exported_types.json")
PROVED_VERSION = 1

_TFLITE_UNQUANTIZED = (ModelArtifactType.TFLITE_FP32, ModelArtifactType.TFLITE_FP32_STABLEHLO)
_TFLITE_QUANTIZED = (
    ModelArtifactType.TFLITE_FP16,
    ModelArtifactType.TFLITE_DYNAMIC_RANGE_QUANT,
    ModelArtifactType.TFLITE_INT8,
)


def exports_from_jax(data_type: str, tflite: Collection[str]) -> tuple[ModelArtifactType, ...]:
    """Returns the export formats of a JAX model, as in the OpenXLA suite's lists.

    Args:
      data_type: data type of the model; only fp32 models are quantised.
      tflite: data types of the family that are converted to TFLite.
    """
    if data_type not in tflite:
        return PROGRAMS
    quantized = _TFLITE_QUANTIZED if data_type == "fp32" else ()
    return (*PROGRAMS, *_TFLITE_UNQUANTIZED, *quantized)


def exports_from_tensorflow(
    data_type: str, tflite: Collection[ModelArtifactType]
) -> tuple[ModelArtifactType, ...]:
    """Returns the exports of a TensorFlow model; `tflite` lists the exports of an fp32 model."""
    saved = (*PROGRAMS, ModelArtifactType.TF_SAVEDMODEL_V2)
    return (*saved, *tflite) if data_type == "fp32" else saved


def proved_exports(
    implementation: ModelImplementation, parameters: Parameters
) -> tuple[ModelArtifactType, ...]:
    """Returns the verified export formats of similar models; empty if none of them was tried.

    If several were tried, these are the formats common to all.

    Args:
      implementation: implementation of the model.
      parameters: parameters of the model; data type and generation matter.
    """
    wanted = key_of_exports(implementation, parameters)
    exports = [
        set(entry["types"])
        for entry in recorded_exports(PROVED_FILE).values()
        if (entry["module_path"], entry["data_type"], entry["generates"]) == wanted
    ]
    common = set.intersection(*exports) if exports else set()
    return tuple(kind for kind in ModelArtifactType if kind.value in common)


def key_of_exports(
    implementation: ModelImplementation, parameters: Parameters
) -> tuple[str | None, str, bool]:
    """Returns the key of models that export alike: module, data type, and whether one loops.

    Pipelines are identified by their module.
    """
    data_type = str(parameters.get("data_type", "fp32"))
    return implementation.module_path, data_type, "max_new_tokens" in parameters


@functools.cache
def recorded_exports(path: Path) -> Mapping[str, Mapping[str, Any]]:
    """Returns the entries of a file of verified exports, by model; empty without the file.

    Raises:
      ValueError: the file has another version.
    """
    if not path.is_file():
        return {}
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["version"] != PROVED_VERSION:
        raise ValueError(f"{path} has version {document['version']!r}, expected {PROVED_VERSION}")
    entries: Mapping[str, Mapping[str, Any]] = document["models"]
    return entries


DATA_TYPES = ("fp32", "fp16", "bf16")

# The first variant of each tiny family: every architecture once in every framework, to exercise all
# code of all backends within minutes.
TINY_ZOO_TAG = "tiny-zoo"
# The tolerance in the OpenXLA suite's definitions.
PUBLISHED_TOLERANCE: Mapping[str, float] = MappingProxyType({"absolute_tolerance": 0.5})

_CHANNELS_FIRST = re.compile(r"_(\d+)X(\d+)X(\d+)X(\$\{ELEMENT_TYPE\})")

Models = dict[tuple[ParameterValue, ...], Model]


@attrs.frozen(kw_only=True)
class Family:
    """Models of one configuration, over data types and one further axis.

    `name` may hold `${FRAMEWORK}`, `${DATA_TYPE}` (FP32 ...), `${ELEMENT_TYPE}` (F32 ...) and the
    axis, as in the OpenXLA suite's names. Tags may contain these, and `${data_type}` (fp32 ...).
    For a family `published` by the OpenXLA suite, `tflite` lists the data types converted to TFLite
    from JAX, and `tensorflow_tflite` the conversions of the fp32 model in TensorFlow. Other
    families are exported to verified formats, see `proved_exports`. `changes` overrides fields by
    framework.
    """

    name: str
    network: Network | None = None
    model_name: str
    axis: str = "batch_size"
    sizes: Sequence[int]
    tags: Sequence[str] = (utils.BATCH_TAG,)
    parameters: Parameters = attrs.field(factory=dict)
    parameters_by_type: Mapping[str, Parameters] = attrs.field(factory=dict)
    data_types: Sequence[str] = DATA_TYPES
    tflite: Sequence[str] = ()
    tensorflow_tflite: Sequence[ModelArtifactType] = (ModelArtifactType.TFLITE_FP32,)
    published: bool = False
    in_tiny_zoo: bool = True
    verify_parameters: Mapping[str, float] = MappingProxyType({})
    changes: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    def in_framework(self, framework: str) -> "Family":
        """Returns the family as described in one framework, e.g. `PT`."""
        family = attrs.evolve(self, **self.changes.get(framework, {}))
        return family.in_tensorflow() if framework == "TF" else family

    def models(self, model_impl: ModelImplementation, framework: str) -> Models:
        """Returns the family in one framework, by (data type, size).

        Args:
          model_impl: the implementation in that framework.
          framework: its spelling in names, e.g. `PT`.
        """
        models: Models = {}
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
                "model_name": self.model_name,
                **self.parameters,
                **self.parameters_by_type.get(data_type, {}),
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
            return proved_exports(model_impl, {**parameters, self.axis: None})
        if framework == "JAX":
            return exports_from_jax(data_type, self.tflite)
        if framework == "TF":
            return exports_from_tensorflow(data_type, self.tensorflow_tflite)
        return PROGRAMS

    def in_tensorflow(self) -> "Family":
        """Returns the family as described by the OpenXLA suite in TensorFlow.

        Names give pictures as channels-last, which is the layout in the models; other frameworks
        have the same inputs. The type is a tag, too.
        """
        return attrs.evolve(
            self,
            name=_CHANNELS_FIRST.sub(r"_\2X\3X\1X\4", self.name),
            tags=tuple(dict.fromkeys((*self.tags, "${data_type}"))),
        )


def _in_tiny_zoo(model: Model) -> Model:
    return attrs.evolve(model, tags=(*model.tags, TINY_ZOO_TAG))


def definitions(framework: str, families: Mapping[str, Family]) -> dict[str, Any]:
    """Returns implementations, models and cases of families in one framework, by their names.

    The framework's modules define them under these names, e.g. for a family `BERT_TINY` of the
    network `BERT`: `BERT_PT_IMPL`, `BERT_TINY_PT` and `BERT_TINY_PT_CASES`.
    """
    named: dict[str, Any] = {}
    for name, family in families.items():
        network = family.network
        assert network is not None, f"family {name} has no network"
        implementation = named.setdefault(
            f"{network.name}_{framework}_IMPL", network.implementation(framework)
        )
        models = family.in_framework(framework).models(implementation, framework)
        named[f"{name}_{framework}"] = models
        named[f"{name}_{framework}_CASES"] = utils.build_benchmark_cases(
            models,
            verify_parameters=PUBLISHED_TOLERANCE if family.published else family.verify_parameters,
        )
    return named
