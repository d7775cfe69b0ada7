"""Whisper in TensorFlow: our own Keras layers on the shared checkpoint."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import whisper
from openxla.benchmark.models.tf import keras_model
from openxla.benchmark.models.tf.causal_lm import tied_head
from openxla.benchmark.models.tf.layers import Layer, LayerNorm, Linear, MultiHeadAttention
from openxla.benchmark.models.tf.operations import conv2d, gelu

_EPSILON = 1e-5  # of the norms; hard-coded in transformers
_BIASES = ("query", "value")  # keys have none


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
        # two-dimensional convolution supports it, so time becomes the width of a picture of height
        # one.
        rows, kernel = x[:, tf.newaxis], tf.convert_to_tensor(self.kernel)[tf.newaxis]
        y = conv2d(rows, kernel, (1, self.stride), ((0, 0), (1, 1)))
        return tf.squeeze(tf.nn.bias_add(y, self.bias), 1)


class SideLayer(Layer):
    """Attention and feed-forward, each with a layer norm before it and a residual sum.

    A layer of the decoder is causal, and attends to the encoder's output in between.
    """

    def __init__(self, config: Mapping[str, Any], side: str) -> None:
        super().__init__()
        width, heads = config["d_model"], config[f"{side}_attention_heads"]
        intermediate = config[f"{side}_ffn_dim"]
        self.attention_norm = LayerNorm(width, _EPSILON)
        self.attention = MultiHeadAttention(width, heads, biases=_BIASES)
        if side == "decoder":
            self.cross_norm = LayerNorm(width, _EPSILON)
            self.cross = MultiHeadAttention(width, heads, biases=_BIASES)
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

    def __init__(self, config: Mapping[str, Any]) -> None:
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


create_model = keras_model.creator(whisper.ARCHITECTURE, Whisper)


if __name__ == "__main__":
    shared_model.run_once(create_model, **whisper.ARCHITECTURE.example)
