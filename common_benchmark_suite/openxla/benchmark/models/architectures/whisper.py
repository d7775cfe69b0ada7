"""Whisper: speech to text (Radford et al. 2022, arXiv:2212.04356), a single forward pass."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openxla.benchmark import testdata
from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures import layers
from openxla.benchmark.models.architectures.base import Arrays, TensorInit, tensor
from openxla.benchmark.models.architectures.text import TextArchitecture

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_SAMPLES_PER_FRAME = 160
# The second convolution of the encoder takes every other frame.
FRAMES_PER_POSITION = 2


def _config(hidden: int, depth: int, heads: int, **changes: Any) -> Mapping[str, Any]:
    return {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "activation_dropout": 0.0,
        "activation_function": "gelu",
        "attention_dropout": 0.0,
        "bos_token_id": 50257,
        "d_model": hidden,
        "decoder_attention_heads": heads,
        "decoder_ffn_dim": 4 * hidden,
        "decoder_layerdrop": 0.0,
        "decoder_layers": depth,
        "decoder_start_token_id": 50258,
        "dropout": 0.0,
        "encoder_attention_heads": heads,
        "encoder_ffn_dim": 4 * hidden,
        "encoder_layerdrop": 0.0,
        "encoder_layers": depth,
        "eos_token_id": 50257,
        "init_std": 0.02,
        "is_encoder_decoder": True,
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "num_mel_bins": 80,
        "pad_token_id": 50257,
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "vocab_size": 51865,
        **changes,
    }


class Whisper(TextArchitecture):
    """Inputs: input_features [batch, 80, frames], decoder_input_ids i32[batch, seq].

    Output: logits of the token after each, [batch, seq, vocab].
    """

    name = "whisper"
    version = 1
    configs = {
        "whisper-tiny-test": _config(
            64,
            2,
            2,
            bos_token_id=1,
            decoder_start_token_id=2,
            eos_token_id=1,
            max_source_positions=50,
            max_target_positions=64,
            pad_token_id=1,
            vocab_size=1024,
        ),
        "openai/whisper-tiny": _config(384, 4, 6),
        "openai/whisper-base": _config(512, 6, 8),
    }

    standard = {"model_name": "openai/whisper-tiny", "seq_len": 64}
    example = {"model_name": "whisper-tiny-test", "seq_len": 16}
    module_names = (
        (r"^model\.encoder\.embed_positions\b", "encoder.positions"),
        (r"^model\.encoder\b", "encoder"),
        (r"^model\.decoder\.(embed_)?", ""),
        (r"\bself_attn_layer_norm\b", "attention_norm"),
        (r"\bencoder_attn_layer_norm\b", "cross_norm"),
        (r"\bfinal_layer_norm\b", "mlp_norm"),
        (r"\blayer_norm\b", "norm"),
        (r"\bself_attn\b", "attention"),
        (r"\bencoder_attn\b", "cross"),
        *layers.PROJECTIONS,
        (r"\bfc1\b", "up"),
        (r"\bfc2\b", "down"),
    )

    def longest(self, config: Mapping[str, Any]) -> int | None:
        """Returns the decoder's limit."""
        return int(config["max_target_positions"])

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; transformers' `WhisperForConditionalGeneration`.

        The last layer shares the weights of the token embeddings, so the checkpoint omits it.
        """
        hidden, bands = config["d_model"], config["num_mel_bins"]
        encoder, decoder = "model.encoder", "model.decoder"
        gain = layers.AFTER_ACTIVATION_GAIN
        yield from layers.conv(f"{encoder}.conv1", bands, hidden, 3)
        yield from layers.conv(f"{encoder}.conv2", hidden, hidden, 3, gain=gain)
        positions = config["max_source_positions"]
        yield _table(f"{encoder}.embed_positions", positions, hidden, 0.5)
        for index in range(config["encoder_layers"]):
            yield from self._layer(f"{encoder}.layers.{index}", config, "encoder")
        yield from layers.norm(f"{encoder}.layer_norm", hidden)
        # These weights also make the logits: with this scale, logits have a standard deviation of
        # 2.
        stddev = 2 / math.sqrt(hidden)
        yield _table(f"{decoder}.embed_tokens", config["vocab_size"], hidden, stddev)
        yield _table(
            f"{decoder}.embed_positions", config["max_target_positions"], hidden, stddev / 2
        )
        for index in range(config["decoder_layers"]):
            yield from self._layer(f"{decoder}.layers.{index}", config, "decoder")
        yield from layers.norm(f"{decoder}.layer_norm", hidden)

    def _layer(self, name: str, config: Mapping[str, Any], side: str) -> Iterator[TensorInit]:
        hidden, intermediate = config["d_model"], config[f"{side}_ffn_dim"]
        attentions = ("self_attn", "encoder_attn") if side == "decoder" else ("self_attn",)
        # Keeps the sum over all branches of order one for any number of layers.
        branches = (len(attentions) + 1) * config[f"{side}_layers"]
        last = layers.AFTER_ACTIVATION_GAIN / math.sqrt(branches)
        for attention in attentions:
            yield from layers.norm(f"{name}.{attention}_layer_norm", hidden)
            for part, gain in (
                ("q_proj", layers.ATTENTION_GAIN),
                ("k_proj", layers.ATTENTION_GAIN),
                ("v_proj", 1.0),
                ("out_proj", last),
            ):
                yield from layers.linear(
                    f"{name}.{attention}.{part}", hidden, hidden, gain=gain, bias=part != "k_proj"
                )
        yield from layers.norm(f"{name}.final_layer_norm", hidden)
        yield from layers.linear(f"{name}.fc1", hidden, intermediate)
        yield from layers.linear(f"{name}.fc2", intermediate, hidden, gain=last)

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Log-mel features [batch, 80, frames] and token ids i32[batch, seq]."""
        config, tokens = self.config_of(parameters), self.token_spec(parameters)
        frames = FRAMES_PER_POSITION * config["max_source_positions"]
        return (tensor(parameters, tokens.shape[0], config["num_mel_bins"], frames), tokens)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Logits, [batch, seq, vocab]."""
        shape = self.token_spec(parameters).shape
        return (tensor(parameters, *shape, self.config_of(parameters)["vocab_size"]),)

    def label(self, parameters: Parameters) -> str:
        """Adds the number of the decoder's tokens to the usual label."""
        return f"{super().label(parameters)}-{parameters['seq_len']}tokens"

    def default_inputs(self, parameters: Parameters) -> "tuple[npt.NDArray[np.float32], str]":
        """A synthetic signal, float32[samples] at 16 kHz, and the bundled text."""
        from openxla.benchmark.models import preprocessing

        frames = self.input_specs(parameters)[0].shape[2]
        signal = preprocessing.synthetic_signal(frames * _SAMPLES_PER_FRAME, seed=0)
        return signal, testdata.load_text()

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Makes features and tokens, different ones for each row of the batch."""
        from openxla.benchmark.models import preprocessing

        signal, text = raw_input
        features, tokens = self.input_specs(parameters)
        ids, _ = self.token_windows(text, parameters, checkpoint)
        mels = preprocessing.log_mel(
            preprocessing.signal_batch(signal, batch_size=tokens.shape[0]), bands=features.shape[1]
        )
        return mels.astype(preprocessing.numpy_dtype(features.dtype)), ids


def _table(name: str, rows: int, width: int, stddev: float) -> TensorInit:
    return TensorInit(name=f"{name}.weight", shape=(rows, width), stddev=stddev)


ARCHITECTURE = Whisper()
