"""Configurations of Hugging Face's models by the folder's name, so that none is downloaded."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import attrs


@attrs.frozen
class Network:
    """Class of the model, class and arguments of its configuration, tokens a row by test.

    `on_cpu` divides the row's length on the CPU.
    """

    model: str
    config: str
    train: int = 512
    eval: int = 512
    on_cpu: int = 1
    arguments: Mapping[str, Any] = MappingProxyType({})


MASKED, CAUSAL, PAIRS = "AutoModelForMaskedLM", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"
_SOUNDS = "AutoModelForAudioClassification"


def _sized(width: int, layers: int, heads: int, inner: int, **more: Any) -> dict[str, Any]:
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        **more,
    }


def _t5(width: int, layers: int, heads: int, inner: int) -> dict[str, Any]:
    sizes = {"d_model": width, "num_layers": layers, "num_heads": heads, "d_ff": inner}
    return {**sizes, "decoder_start_token_id": 0}


_PHI = _sized(2048, 24, 32, 8192, partial_rotary_factor=0.5)
_LLAMA_8B = Network(
    CAUSAL,
    "LlamaConfig",
    arguments=_sized(4096, 32, 32, 14336, num_key_value_heads=8, vocab_size=128256),
)
_LLAMA_13B = _sized(5120, 40, 40, 13824)

# Sizes of the checkpoints that TorchBench's `basic_configs` names.
NETWORKS = MappingProxyType(
    {
        "hf_Bert": Network(MASKED, "BertConfig"),
        "hf_Bert_large": Network(MASKED, "BertConfig", arguments=_sized(1024, 24, 16, 3072)),
        "hf_GPT2": Network(CAUSAL, "GPT2Config", 512, 1024, 4),
        "hf_GPT2_large": Network(
            CAUSAL, "GPT2Config", 512, 1024, 1, {"n_embd": 1280, "n_layer": 36, "n_head": 20}
        ),
        "hf_T5": Network(PAIRS, "T5Config", 1024, 2048, 4, _t5(512, 6, 8, 2048)),
        "hf_T5_base": Network(PAIRS, "T5Config", 1024, 2048, 1, _t5(768, 12, 12, 3072)),
        "hf_T5_large": Network(PAIRS, "T5Config", arguments=_t5(1024, 24, 16, 4096)),
        "hf_Bart": Network(
            PAIRS,
            "BartConfig",
            arguments={
                "d_model": 768,
                **dict.fromkeys(("encoder_layers", "decoder_layers"), 6),
                **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 12),
                **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 3072),
            },
        ),
        "hf_Albert": Network(MASKED, "AlbertConfig", arguments=_sized(768, 12, 12, 3072)),
        "hf_DistilBert": Network(MASKED, "DistilBertConfig"),
        "hf_Reformer": Network(MASKED, "ReformerConfig", 4096, 4096, 2, {"num_buckets": 128}),
        "hf_BigBird": Network(
            MASKED, "BigBirdConfig", 1024, 4096, 5, {"attention_type": "block_sparse"}
        ),
        "hf_Longformer": Network(
            MASKED,
            "LongformerConfig",
            1024,
            4096,
            8,
            {"vocab_size": 50265, "max_position_embeddings": 4098, "type_vocab_size": 1},
        ),
        "hf_Roberta_base": Network(
            MASKED,
            "XLMRobertaConfig",
            arguments={"vocab_size": 250002, "max_position_embeddings": 514, "type_vocab_size": 1},
        ),
        "hf_Whisper": Network(_SOUNDS, "WhisperConfig", 1024, 1024),
        "hf_distil_whisper": Network(
            _SOUNDS,
            "WhisperConfig",
            1024,
            1024,
            1,
            {
                "vocab_size": 51864,
                "d_model": 1024,
                "encoder_layers": 24,
                "decoder_layers": 2,
                **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 16),
                **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 4096),
            },
        ),
        "phi_1_5": Network(CAUSAL, "PhiConfig", arguments=_PHI),
        "phi_2": Network(
            CAUSAL, "PhiConfig", arguments=_sized(2560, 32, 32, 10240, partial_rotary_factor=0.4)
        ),
        "moondream": Network("PhiForCausalLM", "PhiConfig", arguments=_PHI),
        "mistral_7b_instruct": Network(CAUSAL, "MistralConfig", 128, 128),
        "hf_mixtral": Network(CAUSAL, "MixtralConfig"),
        "hf_MPT_7b_instruct": Network(
            CAUSAL,
            "MptConfig",
            arguments={"d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432},
        ),
        "hf_Yi": Network(
            CAUSAL,
            "LlamaConfig",
            arguments=_sized(4096, 32, 32, 11008, num_key_value_heads=4, vocab_size=64000),
        ),
        "llama_v2_7b_16h": Network(
            CAUSAL, "LlamaConfig", 128, 512, arguments={"num_hidden_layers": 16}
        ),
        "llama_v2_7b": Network(CAUSAL, "LlamaConfig"),
        "llama_v2_13b": Network(CAUSAL, "LlamaConfig", arguments=_LLAMA_13B),
        "llama_v2_70b": Network(
            CAUSAL, "LlamaConfig", arguments=_sized(8192, 80, 64, 28672, num_key_value_heads=8)
        ),
        **dict.fromkeys(("llama_v3_8b", "llama_v31_8b"), _LLAMA_8B),
        "codellama": Network(CAUSAL, "LlamaConfig", arguments={"vocab_size": 32016}),
        "orca_2": Network(CAUSAL, "LlamaConfig", arguments={**_LLAMA_13B, "vocab_size": 32003}),
    }
)
