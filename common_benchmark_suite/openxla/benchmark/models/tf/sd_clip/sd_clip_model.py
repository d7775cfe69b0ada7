"""The text encoder of Stable Diffusion in TensorFlow: Keras layers of our own."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import sd_clip
from openxla.benchmark.models.tf import weight_names
from openxla.benchmark.models.tf.attention import attention
from openxla.benchmark.models.tf.keras_model import KerasModel, Weight
from openxla.benchmark.models.tf.layers import Layer, LayerNorm, Linear


class CausalSelfAttention(Layer):
    """Multi-head attention of a sequence to itself, each token to those up to it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.query = Linear(hidden, hidden)
        self.key = Linear(hidden, hidden)
        self.value = Linear(hidden, hidden)
        self.merge = Linear(hidden, hidden)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, seq, hidden] -> [batch, seq, hidden]."""
        query, key, value = self.query(x), self.key(x), self.value(x)
        return self.merge(attention(query, key, value, heads=self.heads, causal=True))


class EncoderLayer(Layer):
    """Attention and feed-forward, each with a layer norm before it and a residual sum."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention_norm = LayerNorm(hidden, config["layer_norm_eps"])
        self.attention = CausalSelfAttention(config)
        self.mlp_norm = LayerNorm(hidden, config["layer_norm_eps"])
        self.up = Linear(hidden, intermediate)
        self.down = Linear(intermediate, hidden)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, seq, hidden] -> [batch, seq, hidden]."""
        x += self.attention(self.attention_norm(x))
        y = self.up(self.mlp_norm(x))
        # CLIP's approximation of GELU (Hendrycks and Gimpel 2016, arXiv:1606.08415).
        return x + self.down(y * tf.sigmoid(1.702 * y))


class SdClip(Layer):
    """Embeddings, encoder, norm."""

    def __init__(self, config: Mapping[str, Any], _dtype: str) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        self.words = self.weight(config["vocab_size"], hidden)
        self.positions = self.weight(config["max_position_embeddings"], hidden)
        self.layers = [EncoderLayer(config) for _ in range(config["num_hidden_layers"])]
        self.norm = LayerNorm(hidden, config["layer_norm_eps"])

    def call(self, input_ids: tf.Tensor) -> tf.Tensor:
        """input_ids i32[batch, seq] -> [batch, seq, hidden]."""
        # Position i is row i.
        x = tf.gather(self.words, input_ids) + self.positions[: input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


def weights(config: Mapping[str, Any]) -> Iterator[Weight]:
    """Where each tensor of the checkpoint goes."""
    for table, name in (("words", "token"), ("positions", "position")):
        yield table, f"embeddings.{name}_embedding.weight", None
    for index in range(config["num_hidden_layers"]):
        path, name = f"layers/{index}", f"encoder.layers.{index}"
        yield from weight_names.norm(f"{path}/attention_norm", f"{name}.layer_norm1")
        for part, theirs in (("query", "q"), ("key", "k"), ("value", "v"), ("merge", "out")):
            yield from weight_names.linear(
                f"{path}/attention/{part}", f"{name}.self_attn.{theirs}_proj"
            )
        yield from weight_names.norm(f"{path}/mlp_norm", f"{name}.layer_norm2")
        yield from weight_names.linear(f"{path}/up", f"{name}.mlp.fc1")
        yield from weight_names.linear(f"{path}/down", f"{name}.mlp.fc2")
    yield from weight_names.norm("norm", "final_layer_norm")


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 77,
    model_name: str = "sd-clip",
    **parameters: Any,
) -> KerasModel:
    """Returns the text encoder on the checkpoint of `model_name`.

    Input: input_ids i32[batch, seq]; output: [batch, seq, hidden]. Further parameter: `seed` of
    the checkpoint.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "seq_len": seq_len,
        "model_name": model_name,
        **parameters,
    }
    return KerasModel(sd_clip.ARCHITECTURE, given, SdClip, weights)


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", seq_len=32, model_name="sd-clip-tiny"
    )
