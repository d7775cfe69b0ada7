"""Configurations of Hugging Face directories that our architectures support, at any size.

A directory that matches a rule is one model in PyTorch, JAX and TensorFlow: except for sizes, its
`config.json` must describe exactly what our implementations compute. Keys without effect on a
forward pass (dropout, initialisation, generation tokens) are ignored.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.files import sha256_of

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TOKENIZER_FILE = "tokenizer.json"
_MOST_BYTES = 2**24  # limit on a configuration, which may list a label for each of 100,000 classes
# A size without a default: transformers' default is one model's size among many.
_NEEDED: Any = object()
# Some configurations list height and width; ours compute only squares.
_SQUARE = ("image_size", "patch_size")
_Config = Mapping[str, Any]


@attrs.frozen(kw_only=True)
class Rule:
    """The configurations of a `model_type` that an architecture of ours supports.

    Attributes:
      architecture: its name.
      classes: transformers' classes with the same outputs.
      sizes: keys that may have any value, with the default: `_NEEDED` for none, or a function of
        the file's content.
      fixed: keys that may have only one value, which is also the default.
    """

    architecture: str
    classes: tuple[str, ...]
    sizes: Mapping[str, Any]
    fixed: Mapping[str, Any]

    def config(self, given: _Config) -> _Config | str:
        """Returns the configuration with our keys, or the reason why it is not supported."""
        if given.get("quantization_config"):
            return "its weights are quantised"
        for key, expected in self.fixed.items():
            if given.get(key, expected) != expected:
                return f"{key} is {given[key]!r}, but the suite supports only {expected!r}"
        if rope := _rope_fault(given):
            return rope
        config: dict[str, Any] = {"model_type": given["model_type"], **self.fixed}
        for key, usual in self.sizes.items():
            value = given.get(key)
            if value is None and usual is _NEEDED:
                return f"{key} is missing"
            if value is None:
                value = usual(given) if callable(usual) else usual
            if key in _SQUARE and type(value) is not int:
                return f"{key} is {value!r}, but the suite supports only a single integer"
            config[key] = value
        return config


def _needed(*keys: str) -> dict[str, Any]:
    return dict.fromkeys(keys, _NEEDED)


def _rope(given: _Config) -> float:
    parameters = given.get("rope_parameters") or {}
    return float(given.get("rope_theta") or parameters.get("rope_theta") or 10000.0)


def _rope_fault(given: _Config) -> str | None:
    scaling = {**(given.get("rope_scaling") or {}), **(given.get("rope_parameters") or {})}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind != "default":
        return f"its rotary positions have the unsupported type {kind!r}"
    share = scaling.get("partial_rotary_factor", given.get("partial_rotary_factor", 1.0))
    return None if share == 1.0 else f"only {share} of each head has rotary positions"


def _labels(_: _Config) -> Mapping[str, str]:
    return {"0": "LABEL_0", "1": "LABEL_1"}  # transformers omits its default labels


_ROTARY: Mapping[str, Any] = {
    **_needed("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"),
    **_needed("intermediate_size"),
    "num_key_value_heads": lambda given: given["num_attention_heads"],
    "head_dim": lambda given: given["hidden_size"] // given["num_attention_heads"],
    "rms_norm_eps": 1e-6,
    "rope_theta": _rope,
}
_ENCODER = _needed("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")

RULES: Mapping[str, Rule] = {
    "bert": Rule(
        architecture="bert",
        classes=("BertModel",),
        sizes={
            **_needed("vocab_size"),
            **_ENCODER,
            "max_position_embeddings": 512,
            "type_vocab_size": 2,
            "layer_norm_eps": 1e-12,
            "pad_token_id": 0,
        },
        fixed={
            "hidden_act": "gelu",
            "is_decoder": False,
            "add_cross_attention": False,
            "position_embedding_type": "absolute",
        },
    ),
    "gpt2": Rule(
        architecture="gpt2",
        classes=("GPT2LMHeadModel",),
        sizes={
            **_needed("vocab_size", "n_positions", "n_embd", "n_layer", "n_head"),
            "layer_norm_epsilon": 1e-5,
        },
        fixed={
            "activation_function": "gelu_new",
            "n_inner": None,
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "reorder_and_upcast_attn": False,
            "add_cross_attention": False,
            "tie_word_embeddings": True,
        },
    ),
    "llama": Rule(
        architecture="llama",
        classes=("LlamaForCausalLM",),
        sizes={**_ROTARY, "max_position_embeddings": 2048, "tie_word_embeddings": False},
        fixed={"hidden_act": "silu", "attention_bias": False, "mlp_bias": False},
    ),
    "gemma": Rule(
        architecture="gemma",
        classes=("GemmaForCausalLM",),
        sizes={**_ROTARY, "head_dim": 256, "max_position_embeddings": 8192},
        fixed={
            "hidden_act": "gelu_pytorch_tanh",
            "attention_bias": False,
            "tie_word_embeddings": True,
        },
    ),
    "t5": Rule(
        architecture="t5",
        classes=("T5Model",),
        sizes={
            **_needed("vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads"),
            "num_decoder_layers": lambda given: given["num_layers"],
            "relative_attention_num_buckets": 32,
            "relative_attention_max_distance": 128,
            "layer_norm_epsilon": 1e-6,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
            "eos_token_id": 1,
        },
        fixed={"feed_forward_proj": "relu"},
    ),
    "vit": Rule(
        architecture="vit",
        classes=("ViTForImageClassification",),
        sizes={
            **_ENCODER,
            **_needed("image_size", "patch_size"),
            "layer_norm_eps": 1e-12,
            "id2label": _labels,
        },
        fixed={"hidden_act": "gelu", "num_channels": 3, "qkv_bias": True},
    ),
    "resnet": Rule(
        architecture="resnet",
        classes=("ResNetForImageClassification",),
        sizes={
            **_needed("embedding_size", "hidden_sizes", "depths"),
            "image_size": 224,
            "id2label": _labels,
        },
        fixed={
            "hidden_act": "relu",
            "layer_type": "bottleneck",
            "downsample_in_first_stage": False,
            "downsample_in_bottleneck": False,
            "num_channels": 3,
        },
    ),
    "efficientnet": Rule(
        architecture="efficientnet",
        classes=("EfficientNetForImageClassification",),
        sizes={
            **_needed("image_size", "width_coefficient", "depth_coefficient", "hidden_dim"),
            **_needed("in_channels", "out_channels", "kernel_sizes", "strides", "expand_ratios"),
            **_needed("num_block_repeats"),
            "depth_divisor": 8,
            "depthwise_padding": lambda _: [],
            "squeeze_expansion_ratio": 0.25,
            "batch_norm_eps": 0.001,
            "id2label": _labels,
        },
        fixed={"hidden_act": "swish", "pooling_type": "mean", "num_channels": 3},
    ),
    "whisper": Rule(
        architecture="whisper",
        classes=("WhisperForConditionalGeneration",),
        sizes={
            **_needed("vocab_size", "d_model", "encoder_layers", "decoder_layers"),
            **_needed("encoder_attention_heads", "decoder_attention_heads"),
            **_needed("encoder_ffn_dim", "decoder_ffn_dim"),
            "num_mel_bins": 80,
            "max_source_positions": 1500,
            "max_target_positions": 448,
            "decoder_start_token_id": 50257,
            "eos_token_id": 50256,
            "bos_token_id": 50256,
            "pad_token_id": 50256,
        },
        fixed={
            "activation_function": "gelu",
            "scale_embedding": False,
            "tie_word_embeddings": True,
        },
    ),
    "clip_text_model": Rule(
        architecture="sd_clip",
        classes=("CLIPTextModel",),
        sizes={
            **_needed("vocab_size"),
            **_ENCODER,
            "max_position_embeddings": 77,
            "layer_norm_eps": 1e-5,
            "bos_token_id": 49406,
            "eos_token_id": 49407,
            "pad_token_id": 1,
        },
        fixed={"hidden_act": "quick_gelu"},
    ),
}


def read_config(directory: Path) -> dict[str, Any]:
    """Returns the content of a directory's `config.json`.

    Raises:
      DefinitionError: the file is missing, or is not a JSON object with a `model_type`.
    """
    path = directory / CONFIG_FILE
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DefinitionError(f"{path} is larger than {_MOST_BYTES} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DefinitionError(f"{directory} has no {CONFIG_FILE}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DefinitionError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("model_type"), str):
        raise DefinitionError(f"{path} has no model_type")
    return content


def why_not_covered(given: Mapping[str, Any], wanted_class: str | None) -> str | None:
    """Returns why no architecture of ours computes a configuration; None if one does.

    Args:
      given: the content of `config.json`.
      wanted_class: transformers' class of the model.
    """
    rule = RULES.get(given["model_type"])
    if rule is None:
        return f"{given['model_type']} is not an architecture of the suite"
    if wanted_class not in rule.classes:
        return f"the suite implements {rule.classes[0]}, not {wanted_class}"
    try:
        config = rule.config(given)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        return f"its configuration cannot be read: {error}"
    return config if isinstance(config, str) else None


def config_of(directory: str, architecture: str) -> Mapping[str, Any]:
    """Returns the configuration of a directory with the keys of our implementations.

    Raises:
      DefinitionError: the file is missing, or the architecture does not support it.
    """
    file = Path(directory) / CONFIG_FILE
    changed_ns = file.stat().st_mtime_ns if file.is_file() else 0
    return _config_of(directory, architecture, changed_ns)


@functools.lru_cache(maxsize=64)
def _config_of(directory: str, architecture: str, _: int) -> Mapping[str, Any]:
    given = read_config(Path(directory))
    rule = RULES.get(given["model_type"])
    config: _Config | str = f"model_type {given['model_type']} is not {architecture}"
    if rule and rule.architecture == architecture:
        config = rule.config(given)
    if isinstance(config, str):
        raise DefinitionError(f"{directory}: {config}")
    return config


def weight_files(directory: Path) -> list[Path]:
    """Returns the safetensors files of a directory: a single one, or all that its index names.

    Raises:
      DefinitionError: a file is missing, or one in the index is outside.
    """
    if (directory / WEIGHTS_FILE).is_file():
        return [directory / WEIGHTS_FILE]
    index = directory / INDEX_FILE
    if not index.is_file():
        raise DefinitionError(f"{directory} has neither {WEIGHTS_FILE} nor {INDEX_FILE}")
    try:
        names = sorted(set(map(str, json.loads(index.read_bytes())["weight_map"].values())))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DefinitionError(f"{index} has no weight_map: {error}") from error
    if outside := [name for name in names if Path(name).name != name]:
        raise DefinitionError(f"{index} lists {outside[0]!r}, which is outside its directory")
    if missing := [name for name in names if not (directory / name).is_file()]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise DefinitionError(
            f"{directory} lacks {', '.join(missing[:3])}{more}, which {INDEX_FILE} lists"
        )
    return [directory / name for name in names]


def digest_of(directory: Path, weights: Sequence[Path]) -> str:
    """Returns the sha256 of the files that define a model: configuration, tokenizer and weights."""
    others = [directory / name for name in (CONFIG_FILE, TOKENIZER_FILE)]
    files = [path for path in (*others, *weights) if path.is_file()]
    lines = sorted(f"{path.name} {sha256_of(path)}" for path in files)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
