"""BERT in TensorFlow: Keras layers of our own on the shared checkpoint."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import bert
from openxla.benchmark.models.tf import weight_names
from openxla.benchmark.models.tf.activations import gelu
from openxla.benchmark.models.tf.keras_model import KerasModel, Weight
from openxla.benchmark.models.tf.layers import (
    Layer,
    LayerNorm,
    Linear,
    SelfAttention,
    at_least_float32,
)


class EncoderLayer(Layer):
    """Attention and feed-forward, each with a residual sum and a layer norm after it."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        self.attention = SelfAttention(hidden, config["num_attention_heads"])
        self.attention_norm = LayerNorm(hidden, config["layer_norm_eps"])
        self.up = Linear(hidden, intermediate)
        self.down = Linear(intermediate, hidden)
        self.output_norm = LayerNorm(hidden, config["layer_norm_eps"])

    def call(self, x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        """[batch, seq, hidden] and bias [batch, 1, 1, seq] -> [batch, seq, hidden]."""
        x = self.attention_norm(x + self.attention(x, bias))
        return self.output_norm(x + self.down(gelu(self.up(x))))


class Bert(Layer):
    """Embeddings and encoder."""

    def __init__(self, config: Mapping[str, Any], _dtype: str) -> None:
        super().__init__()
        hidden = config["hidden_size"]
        self.words = self.weight(config["vocab_size"], hidden)
        self.positions = self.weight(config["max_position_embeddings"], hidden)
        self.types = self.weight(config["type_vocab_size"], hidden)
        self.norm = LayerNorm(hidden, config["layer_norm_eps"])
        self.layers = [EncoderLayer(config) for _ in range(config["num_hidden_layers"])]

    def call(self, input_ids: tf.Tensor, attention_mask: tf.Tensor) -> tf.Tensor:
        """input_ids and attention_mask i32[batch, seq] -> [batch, seq, hidden]."""
        seq = input_ids.shape[1]
        # All tokens are of type 0, position i is row i.
        x = tf.gather(self.words, input_ids) + self.types[0] + self.positions[:seq]
        x = self.norm(x)
        wide = at_least_float32(x.dtype)
        seen = attention_mask[:, tf.newaxis, tf.newaxis, :] > 0
        bias = tf.where(seen, tf.zeros((), wide), tf.constant(wide.min, wide))
        for layer in self.layers:
            x = layer(x, bias)
        return x


def weights(config: Mapping[str, Any]) -> Iterator[Weight]:
    """Where each tensor of the checkpoint goes."""
    for table, name in (("words", "word"), ("positions", "position"), ("types", "token_type")):
        yield table, f"embeddings.{name}_embeddings.weight", None
    yield from weight_names.norm("norm", "embeddings.LayerNorm")
    for index in range(config["num_hidden_layers"]):
        path, name = f"layers/{index}", f"encoder.layer.{index}"
        for part in ("query", "key", "value"):
            yield from weight_names.linear(
                f"{path}/attention/{part}", f"{name}.attention.self.{part}"
            )
        output = f"{name}.attention.output"
        yield from weight_names.linear(f"{path}/attention/merge", f"{output}.dense")
        yield from weight_names.norm(f"{path}/attention_norm", f"{output}.LayerNorm")
        yield from weight_names.linear(f"{path}/up", f"{name}.intermediate.dense")
        yield from weight_names.linear(f"{path}/down", f"{name}.output.dense")
        yield from weight_names.norm(f"{path}/output_norm", f"{name}.output.LayerNorm")


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 384,
    model_name: str = "bert-large-uncased",
    **parameters: Any,
) -> KerasModel:
    """Returns BERT on the checkpoint of `model_name`.

    Inputs: input_ids and attention_mask, i32[batch, seq]; output: [batch, seq, hidden]. Further
    parameters: `checkpoint` (`seeded` or `pretrained`) and `seed`.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "seq_len": seq_len,
        "model_name": model_name,
        **parameters,
    }
    return KerasModel(bert.ARCHITECTURE, given, Bert, weights)


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", seq_len=32, model_name="bert-tiny"
    )
