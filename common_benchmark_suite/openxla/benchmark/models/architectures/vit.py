"""ViT: the vision transformer of Dosovitskiy et al. 2020 (arXiv:2010.11929), as a classifier."""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from openxla.benchmark.models.architectures import layers
from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.models.architectures.image_classifier import LABEL_CONFIG, ImageClassifier

# Names in checkpoints of the hub (older than transformers 5), and ours (transformers 5).
_OLDER_NAMES = (
    (r"^vit\.encoder\.layer\.", "vit.layers."),
    (r"\.attention\.attention\.query\.", ".attention.q_proj."),
    (r"\.attention\.attention\.key\.", ".attention.k_proj."),
    (r"\.attention\.attention\.value\.", ".attention.v_proj."),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
)


def _config(hidden: int, layers: int, heads: int, image_size: int, patch_size: int) -> Any:
    return {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        **LABEL_CONFIG,
        "attention_probs_dropout_prob": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": hidden,
        "image_size": image_size,
        "initializer_range": 0.02,
        "intermediate_size": 4 * hidden,
        "layer_norm_eps": 1e-12,
        "num_attention_heads": heads,
        "num_channels": 3,
        "num_hidden_layers": layers,
        "patch_size": patch_size,
        "qkv_bias": True,
    }


class ViT(ImageClassifier):
    """Input: pixels [batch, 3, height, width]; output: logits [batch, 1000]."""

    name = "vit"
    version = 1
    configs = {
        "vit-tiny": _config(64, 2, 2, image_size=32, patch_size=8),
        "google/vit-base-patch16-224": _config(768, 12, 12, image_size=224, patch_size=16),
    }
    pretrained = {
        "google/vit-base-patch16-224": (
            "google/vit-base-patch16-224",
            "3f49326eb077187dfe1c2a2bb15fbd74e6ab91e3",
        )
    }
    # The OpenXLA suite's definition of ViT in JAX omits the type.
    defaults = {"data_type": "fp32"}
    pixel_mean = (0.5, 0.5, 0.5)
    pixel_stddev = (0.5, 0.5, 0.5)

    standard = {"model_name": "google/vit-base-patch16-224"}
    example = {"model_name": "vit-tiny"}
    module_names = (
        (r"^vit\.embeddings\.cls_token$", "class_token"),
        (r"^vit\.embeddings\.position_embeddings$", "positions"),
        (r"^vit\.embeddings\.patch_embeddings\.projection\b", "patches"),
        (r"^vit\.layers\b", "layers"),
        (r"^vit\.layernorm\b", "norm"),
        (r"\blayernorm_before\b", "attention_norm"),
        (r"\blayernorm_after\b", "mlp_norm"),
        *layers.PROJECTIONS,
        (r"\bmlp\.fc1\b", "up"),
        (r"\bmlp\.fc2\b", "down"),
    )

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names are transformers' `ViTForImageClassification`."""
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        patch = config["patch_size"]
        pixels = config["num_channels"] * patch * patch
        positions = (config["image_size"] // patch) ** 2 + 1
        name = "vit.embeddings"
        yield TensorInit(name=f"{name}.cls_token", shape=(1, 1, hidden), stddev=1.0)
        yield TensorInit(
            name=f"{name}.position_embeddings", shape=(1, positions, hidden), stddev=0.5
        )
        yield TensorInit(
            name=f"{name}.patch_embeddings.projection.weight",
            shape=(hidden, config["num_channels"], patch, patch),
            # Twice the usual scale: pixels of a picture are about half of one.
            stddev=2 / math.sqrt(pixels),
        )
        yield TensorInit(
            name=f"{name}.patch_embeddings.projection.bias", shape=(hidden,), stddev=0.1
        )
        for index in range(config["num_hidden_layers"]):
            layer = f"vit.layers.{index}"
            yield from layers.norm(f"{layer}.layernorm_before", hidden)
            for part in ("q_proj", "k_proj", "v_proj", "o_proj"):
                yield from layers.linear(f"{layer}.attention.{part}", hidden, hidden)
            yield from layers.norm(f"{layer}.layernorm_after", hidden)
            yield from layers.linear(f"{layer}.mlp.fc1", hidden, intermediate)
            yield from layers.linear(f"{layer}.mlp.fc2", intermediate, hidden)
        yield from layers.norm("vit.layernorm", hidden)
        yield from layers.linear("classifier", hidden, len(config["id2label"]))

    def canonical_weight_name(self, name: str) -> str:
        """The hub's checkpoint has the names of older transformers releases."""
        for pattern, ours in _OLDER_NAMES:
            name = re.sub(pattern, ours, name)
        return name


ARCHITECTURE = ViT()
