"""Whisper in TensorFlow: Keras layers of our own on the shared checkpoint."""

from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import whisper
from openxla.benchmark.models.tf import weight_names
from openxla.benchmark.models.tf.activations import gelu
from openxla.benchmark.models.tf.attention import attention
from openxla.benchmark.models.tf.causal_lm import tied_head
from openxla.benchmark.models.tf.keras_model import KerasModel, Weight
from openxla.benchmark.models.tf.layers import Layer, LayerNorm, Linear

_CONV = (2, 1, 0)  # [out, in, width] -> [width, in, out]
_EPSILON = 1e-5  # of the norms; transformers has it in its source, not in the configuration


class Conv1d(Layer):
    """Convolution over time with three taps, channels last; variables `kernel` and `bias`."""

    def __init__(self, inputs: int, outputs: int, *, stride: int = 1) -> None:
        super().__init__()
        self.stride = stride
        self.kernel = self.weight(3, inputs, outputs)
        self.bias = self.weight(outputs)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[batch, frames, inputs] -> [batch, frames / stride, outputs]."""
        # Explicit symmetric padding: "SAME" would shift strided windows by one frame. Only the
        # convolution of pictures takes it, so time becomes the width of a picture of height one.
        padding = (0, 0), (0, 0), (1, 1), (0, 0)
        rows, kernel = x[:, tf.newaxis], tf.convert_to_tensor(self.kernel)[tf.newaxis]
        y = tf.nn.conv2d(rows, kernel, (1, 1, self.stride, 1), padding)
        return tf.squeeze(tf.nn.bias_add(y, self.bias), 1)


class Attention(Layer):
    """Multi-head attention of a sequence to itself or to another; keys have no bias."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = Linear(width, width)
        self.key = Linear(width, width, bias=False)
        self.value = Linear(width, width)
        self.merge = Linear(width, width)

    def call(self, x: tf.Tensor, context: tf.Tensor, *, causal: bool = False) -> tf.Tensor:
        """[batch, queries, width], [batch, keys, width] -> [batch, queries, width]."""
        query, key, value = self.query(x), self.key(context), self.value(context)
        return self.merge(attention(query, key, value, heads=self.heads, causal=causal))


class SideLayer(Layer):
    """Attention and feed-forward, each with a layer norm before it and a residual sum.

    A layer of the decoder is causal, and attends to the encoder's output in between.
    """

    def __init__(self, config: Mapping[str, Any], side: str) -> None:
        super().__init__()
        width, heads = config["d_model"], config[f"{side}_attention_heads"]
        intermediate = config[f"{side}_ffn_dim"]
        self.attention_norm = LayerNorm(width, _EPSILON)
        self.attention = Attention(width, heads)
        if side == "decoder":
            self.cross_norm = LayerNorm(width, _EPSILON)
            self.cross = Attention(width, heads)
        self.mlp_norm = LayerNorm(width, _EPSILON)
        self.up = Linear(width, intermediate)
        self.down = Linear(intermediate, width)

    def call(self, x: tf.Tensor, context: tf.Tensor | None = None) -> tf.Tensor:
        """[batch, seq, width], for a decoder also [batch, positions, width]; first shape out."""
        y = self.attention_norm(x)
        x += self.attention(y, y, causal=context is not None)
        if context is not None:
            x += self.cross(self.cross_norm(x), context)
        return x + self.down(gelu(self.up(self.mlp_norm(x))))


class Encoder(Layer):
    """Two convolutions over time, positions, layers, norm."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        super().__init__()
        width = config["d_model"]
        self.conv1 = Conv1d(config["num_mel_bins"], width)
        self.conv2 = Conv1d(width, width, stride=whisper.FRAMES_PER_POSITION)
        self.positions = self.weight(config["max_source_positions"], width)
        self.layers = [SideLayer(config, "encoder") for _ in range(config["encoder_layers"])]
        self.norm = LayerNorm(width, _EPSILON)

    def call(self, input_features: tf.Tensor) -> tf.Tensor:
        """[batch, bands, frames] -> [batch, frames / 2, width]."""
        x = gelu(self.conv1(tf.transpose(input_features, (0, 2, 1))))
        x = gelu(self.conv2(x)) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Whisper(Layer):
    """Encoder, decoder, and logits by the decoder's own token embeddings."""

    def __init__(self, config: Mapping[str, Any], _dtype: str) -> None:
        super().__init__()
        width = config["d_model"]
        self.encoder = Encoder(config)
        self.tokens = self.weight(config["vocab_size"], width)
        self.positions = self.weight(config["max_target_positions"], width)
        self.layers = [SideLayer(config, "decoder") for _ in range(config["decoder_layers"])]
        self.norm = LayerNorm(width, _EPSILON)

    def call(self, input_features: tf.Tensor, decoder_input_ids: tf.Tensor) -> tf.Tensor:
        """[batch, bands, frames] and i32[batch, seq] -> logits [batch, seq, vocab]."""
        context = self.encoder(input_features)
        # Position i is row i.
        x = tf.gather(self.tokens, decoder_input_ids)
        x += self.positions[: decoder_input_ids.shape[1]]
        for layer in self.layers:
            x = layer(x, context)
        return tied_head(self.norm(x), self.tokens)


def weights(config: Mapping[str, Any]) -> Iterator[Weight]:
    """Where each tensor of the checkpoint goes."""
    encoder, decoder = "model.encoder", "model.decoder"
    for part in ("conv1", "conv2"):
        yield from weight_names.conv(f"encoder/{part}", f"{encoder}.{part}", _CONV)
    yield "encoder/positions", f"{encoder}.embed_positions.weight", None
    for table in ("tokens", "positions"):
        yield table, f"{decoder}.embed_{table}.weight", None
    for index in range(config["encoder_layers"]):
        name = f"{encoder}.layers.{index}"
        yield from _layer_weights(f"encoder/layers/{index}", name, ("attention",))
    for index in range(config["decoder_layers"]):
        name = f"{decoder}.layers.{index}"
        yield from _layer_weights(f"layers/{index}", name, ("attention", "cross"))
    yield from weight_names.norm("encoder/norm", f"{encoder}.layer_norm")
    yield from weight_names.norm("norm", f"{decoder}.layer_norm")


def _layer_weights(path: str, name: str, attentions: tuple[str, ...]) -> Iterator[Weight]:
    for part, theirs in zip(attentions, ("self_attn", "encoder_attn")):
        yield from weight_names.norm(f"{path}/{part}_norm", f"{name}.{theirs}_layer_norm")
        for ours, letter in (("query", "q"), ("key", "k"), ("value", "v"), ("merge", "out")):
            yield from weight_names.linear(
                f"{path}/{part}/{ours}", f"{name}.{theirs}.{letter}_proj", bias=letter != "k"
            )
    yield from weight_names.norm(f"{path}/mlp_norm", f"{name}.final_layer_norm")
    yield from weight_names.linear(f"{path}/up", f"{name}.fc1")
    yield from weight_names.linear(f"{path}/down", f"{name}.fc2")


def create_model(
    batch_size: int = 1,
    data_type: str = "fp32",
    seq_len: int = 64,
    model_name: str = "openai/whisper-tiny",
    **parameters: Any,
) -> KerasModel:
    """Returns Whisper on the checkpoint of `model_name`.

    Inputs: input_features [batch, 80, frames], decoder_input_ids i32[batch, seq]; output: logits
    [batch, seq, vocab]. Further parameter: `seed` of the checkpoint.
    """
    given = {
        "batch_size": batch_size,
        "data_type": data_type,
        "seq_len": seq_len,
        "model_name": model_name,
        **parameters,
    }
    return KerasModel(whisper.ARCHITECTURE, given, Whisper, weights)


if __name__ == "__main__":
    shared_model.run_once(
        create_model, batch_size=1, data_type="fp32", seq_len=16, model_name="whisper-tiny-test"
    )
