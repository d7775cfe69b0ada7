"""GPT-2: the decoder of Radford et al. 2019, "Language models are unsupervised multitask learners".

The language-modelling head shares its weights with the token embeddings.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from openxla.benchmark.models.architectures import layers
from openxla.benchmark.models.architectures.base import TensorInit
from openxla.benchmark.models.architectures.causal_lm import CausalLM, branch_gain


def _config(hidden: int, layers: int, heads: int, **changes: Any) -> Mapping[str, Any]:
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "attn_pdrop": 0.0,
        "bos_token_id": None,
        "embd_pdrop": 0.0,
        "eos_token_id": None,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-5,
        "n_ctx": 1024,
        "n_embd": hidden,
        "n_head": heads,
        "n_layer": layers,
        "n_positions": 1024,
        "resid_pdrop": 0.0,
        "tie_word_embeddings": True,
        "vocab_size": 50257,
        **changes,
    }


def _linear(name: str, inputs: int, outputs: int, gain: float = 1.0) -> Iterator[TensorInit]:
    # GPT-2's own layout, [in, out], which transformers keeps.
    stddev = gain / math.sqrt(inputs)
    yield TensorInit(name=f"{name}.weight", shape=(inputs, outputs), stddev=stddev)
    yield TensorInit(name=f"{name}.bias", shape=(outputs,), stddev=0.1 * gain)


class Gpt2(CausalLM):
    """Input: input_ids i32[batch, seq]; outputs: see `CausalLM`."""

    name = "gpt2"
    version = 1
    defaults = {"seq_len": 512}  # in the OpenXLA suite, only part of the model's name
    configs = {
        "gpt2-tiny": _config(128, 2, 2, vocab_size=1024, n_positions=128, n_ctx=128),
        "gpt2": _config(768, 12, 12),
    }
    pretrained = {"gpt2": ("openai-community/gpt2", "607a30d783dfa663caf39e06633721c8d4cfcd7e")}

    standard = {"model_name": "gpt2"}
    example = {"model_name": "gpt2-tiny", "seq_len": 32}
    module_names = (
        (r"^transformer\.wte\b", "words"),
        (r"^transformer\.wpe\b", "positions"),
        (r"^transformer\.ln_f\b", "norm"),
        (r"^transformer\.h\b", "layers"),
        (r"\bln_1\b", "attention_norm"),
        (r"\battn\.c_attn\b", "query_key_value"),
        (r"\battn\.c_proj\b", "output"),
        (r"\bln_2\b", "norm"),
        (r"\bmlp\.c_fc\b", "up"),
        (r"\bmlp\.c_proj\b", "down"),
    )
    matrices_are_in_out = True

    def longest(self, config: Mapping[str, Any]) -> int | None:
        """GPT-2's configuration has a different key for it."""
        return int(config["n_positions"])

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names as in transformers' `GPT2LMHeadModel`."""
        hidden, depth = config["n_embd"], config["n_layer"]
        # The table is also the head: rows of length one give logits of order one. Layer norms scale
        # its small numbers up to order one, and the sum of the layers outweighs them: otherwise
        # each token would by far have the largest logit for its own successor.
        for name, rows in (("wte", config["vocab_size"]), ("wpe", config["n_positions"])):
            yield TensorInit(
                name=f"transformer.{name}.weight",
                shape=(rows, hidden),
                stddev=1 / math.sqrt(hidden),
            )
        for index in range(depth):
            layer = f"transformer.h.{index}"
            yield from layers.norm(f"{layer}.ln_1", hidden)
            yield from _linear(f"{layer}.attn.c_attn", hidden, 3 * hidden, layers.ATTENTION_GAIN)
            yield from _linear(f"{layer}.attn.c_proj", hidden, hidden, branch_gain(depth))
            yield from layers.norm(f"{layer}.ln_2", hidden)
            yield from _linear(f"{layer}.mlp.c_fc", hidden, 4 * hidden)
            yield from _linear(f"{layer}.mlp.c_proj", 4 * hidden, hidden, branch_gain(depth))
        yield from layers.norm("transformer.ln_f", hidden)

    def canonical_weight_name(self, name: str) -> str:
        """OpenAI's checkpoint holds the decoder without a head; its names have no prefix."""
        return name if name.startswith("transformer.") else f"transformer.{name}"


ARCHITECTURE = Gpt2()
