"""GPT-2 in TensorFlow: Keras layers of our own on the shared checkpoint."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import gpt2
from openxla.benchmark.models.tf import causal_lm, weight_names
from openxla.benchmark.models.tf.activations import gelu_tanh
from openxla.benchmark.models.tf.attention import split_heads
from openxla.benchmark.models.tf.greedy import Cache, LayerCache
from openxla.benchmark.models.tf.keras_model import KerasModel, Weight
from openxla.benchmark.models.tf.layers import Layer, LayerNorm, Linear


class DecoderLayer(Layer):
    """Attention and feed-forward, each after a layer norm, added to its input."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, epsilon = config["n_embd"], config["layer_norm_epsilon"]
        self.head_size = hidden // config["n_head"]
        self.attention_norm = LayerNorm(hidden, epsilon)
        self.query_key_value = Linear(hidden, 3 * hidden)
        self.merge = Linear(hidden, hidden)
        self.norm = LayerNorm(hidden, epsilon)
        self.up = Linear(hidden, 4 * hidden)
        self.down = Linear(4 * hidden, hidden)

    def call(
        self, x: tf.Tensor, *, position: tf.Tensor | int, cache: LayerCache | None
    ) -> tuple[tf.Tensor, LayerCache]:
        """[batch, seq, hidden], same shape out, and keys and values."""
        query, key, value = (
            split_heads(part, self.head_size)
            for part in tf.split(self.query_key_value(self.attention_norm(x)), 3, axis=-1)
        )
        context, cache = causal_lm.attention(query, key, value, position, cache)
        x += self.merge(context)
        return x + self.down(gelu_tanh(self.up(self.norm(x)))), cache


class Gpt2(causal_lm.Decoder):
    """Embeddings, layers, and a head that is the table of tokens."""

    def __init__(self, config: Mapping[str, Any], _dtype: str) -> None:
        super().__init__()
        hidden = config["n_embd"]
        self.words = self.weight(config["vocab_size"], hidden)
        self.positions = self.weight(config["n_positions"], hidden)
        self.layers = [DecoderLayer(config) for _ in range(config["n_layer"])]
        self.norm = LayerNorm(hidden, config["layer_norm_epsilon"])

    def hidden(
        self, tokens: tf.Tensor, position: tf.Tensor | int = 0, cache: Cache | None = None
    ) -> tuple[tf.Tensor, Cache]:
        """See `Decoder.hidden`."""
        places = position + tf.range(tokens.shape[1])
        x = tf.gather(self.words, tokens) + tf.gather(self.positions, places)
        layers = []
        for index, layer in enumerate(self.layers):
            x, kept = layer(x, position=position, cache=None if cache is None else cache[index])
            layers.append(kept)
        return self.norm(x), tuple(layers)

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """See `Decoder.logits`."""
        return causal_lm.tied_head(x, self.words)


def weights(config: Mapping[str, Any]) -> Iterator[Weight]:
    """Where each tensor of the checkpoint goes; GPT-2's matrices are [in, out] already."""

    def linear(path: str, name: str) -> Iterator[Weight]:
        yield f"{path}/kernel", f"{name}.weight", None
        yield f"{path}/bias", f"{name}.bias", None

    yield "words", "transformer.wte.weight", None
    yield "positions", "transformer.wpe.weight", None
    for index in range(config["n_layer"]):
        path, name = f"layers/{index}", f"transformer.h.{index}"
        yield from weight_names.norm(f"{path}/attention_norm", f"{name}.ln_1")
        yield from linear(f"{path}/query_key_value", f"{name}.attn.c_attn")
        yield from linear(f"{path}/merge", f"{name}.attn.c_proj")
        yield from weight_names.norm(f"{path}/norm", f"{name}.ln_2")
        yield from linear(f"{path}/up", f"{name}.mlp.c_fc")
        yield from linear(f"{path}/down", f"{name}.mlp.c_proj")
    yield from weight_names.norm("norm", "transformer.ln_f")


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 512,
    model_name: str = "gpt2",
    **parameters: Any,
) -> KerasModel:
    """Returns GPT-2 on the checkpoint of `model_name`.

    Input: input_ids i32[batch, seq]; output: logits [batch, seq, vocab]. Further parameters:
    `max_new_tokens` (generates instead, see `GenerationModel`), `checkpoint` (`seeded` or
    `pretrained`) and `seed`.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "seq_len": seq_len,
        "model_name": model_name,
        **parameters,
    }
    return causal_lm.create(gpt2.ARCHITECTURE, given, Gpt2, weights)


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", seq_len=32, model_name="gpt2-tiny"
    )
