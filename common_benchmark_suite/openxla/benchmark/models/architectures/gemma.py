"""Gemma: the decoder of the Gemma team 2024 (arXiv:2403.08295).

Llama's pattern with these differences: one group of keys and values, heads wider than the hidden
size, GELU, norms with weights 1 + weight, and an embedding table that is scaled by the root of the
hidden size and shared with the head.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.models.architectures.causal_lm import (
    ROTARY_MODULE_NAMES,
    CausalLM,
    rotary_layers,
)


def _config(hidden: int, layers: int, heads: int, **changes: Any) -> Mapping[str, Any]:
    return {
        "architectures": ["GemmaForCausalLM"],
        "model_type": "gemma",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "max_position_embeddings": 8192,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": 1,
        "pad_token_id": None,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "vocab_size": 256000,
        **changes,
    }


class Gemma(CausalLM):
    """Input: input_ids i32[batch, seq]; outputs: see `CausalLM`."""

    name = "gemma"
    version = 1
    configs = {
        "gemma-tiny": _config(
            128,
            2,
            4,
            head_dim=64,
            intermediate_size=512,
            vocab_size=1024,
            max_position_embeddings=128,
        ),
        # Pretrained weights need a licence and have two files: only seeded ones are supported.
        "google/gemma-2b-it": _config(2048, 18, 8, intermediate_size=16384),
    }

    standard = {"model_name": "google/gemma-2b-it", "seq_len": 1024}
    example = {"model_name": "gemma-tiny", "seq_len": 32}
    module_names = ROTARY_MODULE_NAMES

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names as in transformers' `GemmaForCausalLM`."""
        hidden = config["hidden_size"]
        # The table is also the head. Its rows, scaled by sqrt(hidden), must not outweigh the
        # layers: otherwise each token would by far have the largest logit for its own successor. So
        # they enter at 1 / sqrt(hidden), and the last norm compensates: logits are of order one.
        yield TensorInit(
            name="model.embed_tokens.weight",
            shape=(config["vocab_size"], hidden),
            stddev=1 / hidden,
        )
        yield from rotary_layers(config, norm_mean=0.0)
        gain = math.sqrt(hidden)
        yield TensorInit(
            name="model.norm.weight", shape=(hidden,), mean=gain - 1, stddev=0.2 * gain
        )


ARCHITECTURE = Gemma()
