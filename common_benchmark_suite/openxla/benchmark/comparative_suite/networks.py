"""Networks: common properties of the implementations of an architecture."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs

from openxla.benchmark.def_types import ModelFrameworkType, ModelImplementation

# Spelling of a framework in names; in lower case, also the folder of its models.
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
      module: name of its architecture's module, and of each implementation's folder.
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
        folder = f"openxla.benchmark.models.{framework.lower()}.{self.module}"
        return ModelImplementation(
            name=f"{self.name}_{framework}",
            tags=self.other_tags.get(framework, self.tags),
            framework_type=FRAMEWORK_TYPES[framework],
            module_path=f"{folder}.{self.module}_model",
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
