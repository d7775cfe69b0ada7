"""Llama: the decoder of Touvron et al. 2023 (arXiv:2302.13971), with grouped keys and values.

RMS norms, rotary positions, gated feed-forward layers, no biases (grouped queries: Ainslie et al.
2023, arXiv:2305.13245).
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.models.architectures.causal_lm import (
    ROTARY_MODULE_NAMES,
    CausalLM,
    matrix,
    rotary_layers,
)


def _config(hidden: int, layers: int, heads: int, groups: int, **changes: Any) -> Mapping[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
        "head_dim": hidden // heads,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "max_position_embeddings": 2048,
        "mlp_bias": False,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": groups,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
        **changes,
    }


class Llama(CausalLM):
    """Input: input_ids i32[batch, seq]; outputs: see `CausalLM`."""

    name = "llama"
    version = 1
    configs = {
        "llama-tiny": _config(
            128, 2, 4, 2, intermediate_size=352, vocab_size=1024, max_position_embeddings=128
        ),
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0": _config(2048, 22, 32, 4, intermediate_size=5632),
    }
    pretrained = {
        "TinyLlama/TinyLlama-1.1B-Chat-v1.0": (
            "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
            "fe8a4ea1ffedaf415f4da2f062534de366a451e6",
        )
    }

    standard = {"model_name": "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "seq_len": 512}
    example = {"model_name": "llama-tiny", "seq_len": 32}
    module_names = ROTARY_MODULE_NAMES

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names as in transformers' `LlamaForCausalLM`."""
        hidden, vocabulary = config["hidden_size"], config["vocab_size"]
        yield TensorInit(
            name="model.embed_tokens.weight",
            shape=(vocabulary, hidden),
            stddev=1 / math.sqrt(2),  # smaller than the contribution of the layers
        )
        yield from rotary_layers(config, norm_mean=1.0)
        yield TensorInit(name="model.norm.weight", shape=(hidden,), mean=1.0, stddev=0.2)
        if not config["tie_word_embeddings"]:
            yield from matrix("lm_head", hidden, vocabulary)


ARCHITECTURE = Llama()
