"""Common parts of decoder-only language models: prompts in; logits or generated tokens out."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures.base import Arrays, TensorInit, tensor
from openxla.benchmark.models.architectures.layers import ATTENTION_GAIN, PROJECTIONS, linear
from openxla.benchmark.models.architectures.text import TextArchitecture

# Compensates for the loss of scale in a branch by the averaging of attention and by activations.
BRANCH_GAIN = 1.5

# Names in our own modules of the tensors of `rotary_layers` and of the rest of such a model.
ROTARY_MODULE_NAMES = (
    (r"^model\.embed_tokens\b", "words"),
    (r"^model\.layers\b", "layers"),
    (r"^model\.norm\b", "norm"),
    (r"^lm_head\b", "head"),
    (r"\binput_layernorm\b", "attention_norm"),
    (r"\bpost_attention_layernorm\b", "norm"),
    (r"\bself_attn\b", "attention"),
    *PROJECTIONS,
    (r"\bmlp\.(gate|up|down)_proj\b", r"\1"),
)


class CausalLM(TextArchitecture):
    """Input: input_ids i32[batch, seq].

    Output: logits [batch, seq, vocab]; with the parameter `max_new_tokens`, generated tokens and
    their logits (see `model_interfaces.GenerationModel`).
    """

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """The logits of each token, or the generated tokens and their logits."""
        shape = self.token_spec(parameters).shape
        new = self.new_tokens(parameters)
        if new is not None:
            return self.generated_specs(parameters, new)
        return (tensor(parameters, *shape, self.config_of(parameters)["vocab_size"]),)

    def label(self, parameters: Parameters) -> str:
        """Adds the number of generated tokens to the usual label."""
        new = self.new_tokens(parameters)
        return super().label(parameters) + (f"-{new}new" if new else "")

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Cuts the text into token windows, a different one for each row of the batch.

        The text is repeated until it fills the window, so no padding has to be masked.
        """
        text = raw_input
        while True:
            ids, mask = self.token_windows(text, parameters, checkpoint)
            if mask.all():
                return (ids,)
            text = f"{text} {raw_input}"


def matrix(name: str, inputs: int, outputs: int, gain: float = 1.0) -> Iterator[TensorInit]:
    """Yields the weight [out, in] of a linear layer that multiplies the scale by `gain`."""
    return linear(name, inputs, outputs, gain=gain, bias=False)


def branch_gain(layers: int) -> float:
    """Returns the gain of branches' last matrices that keeps the sum of 2 * layers of order one."""
    return BRANCH_GAIN / math.sqrt(2 * layers)


def rotary_layers(config: Mapping[str, Any], norm_mean: float) -> Iterator[TensorInit]:
    """Yields the layers of Llama's pattern, also used by Gemma, with transformers' names.

    Args:
      config: the configuration, with Hugging Face's keys.
      norm_mean: the weight at which an RMS norm is neutral.
    """
    hidden, intermediate = config["hidden_size"], config["intermediate_size"]
    queries = config["num_attention_heads"] * config["head_dim"]
    keys = config["num_key_value_heads"] * config["head_dim"]
    last = branch_gain(config["num_hidden_layers"])
    for index in range(config["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield TensorInit(
                name=f"{layer}.{norm}.weight", shape=(hidden,), mean=norm_mean, stddev=0.2
            )
        yield from matrix(f"{layer}.self_attn.q_proj", hidden, queries, ATTENTION_GAIN)
        yield from matrix(f"{layer}.self_attn.k_proj", hidden, keys, ATTENTION_GAIN)
        yield from matrix(f"{layer}.self_attn.v_proj", hidden, keys, ATTENTION_GAIN)
        yield from matrix(f"{layer}.self_attn.o_proj", queries, hidden, last)
        yield from matrix(f"{layer}.mlp.gate_proj", hidden, intermediate)
        yield from matrix(f"{layer}.mlp.up_proj", hidden, intermediate)
        yield from matrix(f"{layer}.mlp.down_proj", intermediate, hidden, last)


def rotary_frequencies(config: Mapping[str, Any]) -> list[float]:
    """Returns the angles per position of rotary embedding, head_dim / 2 of them.

    In float64 for all frameworks: if each computed them in its own type, they would differ in the
    seventh digit (Su et al. 2021, arXiv:2104.09864, equation 15).
    """
    size, theta = config["head_dim"], config["rope_theta"]
    return [float(theta ** (-2 * index / size)) for index in range(size // 2)]
