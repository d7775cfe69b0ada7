"""BERT: the encoder of Devlin et al. 2018 (arXiv:1810.04805), last hidden state as output."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures import layers
from openxla.benchmark.models.architectures.base import Arrays, TensorInit, tensor
from openxla.benchmark.models.architectures.text import TextArchitecture


def _config(hidden: int, layers: int, heads: int, **changes: Any) -> Mapping[str, Any]:
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "attention_probs_dropout_prob": 0.0,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": 4 * hidden,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "pad_token_id": 0,
        "type_vocab_size": 2,
        "vocab_size": 30522,
        **changes,
    }


class Bert(TextArchitecture):
    """Inputs: input_ids and attention_mask, i32[batch, seq]; output: [batch, seq, hidden]."""

    name = "bert"
    version = 2
    configs = {
        "bert-tiny": _config(128, 2, 2, vocab_size=1024, max_position_embeddings=128),
        "bert-base-uncased": _config(768, 12, 12),
        "bert-large-uncased": _config(1024, 24, 16),
    }
    pretrained = {
        "bert-base-uncased": (
            "google-bert/bert-base-uncased",
            "86b5e0934494bd15c9632b12f734a8a67f723594",
        ),
        "bert-large-uncased": (
            "google-bert/bert-large-uncased",
            "6da4b6a26a1877e173fca3225479512db81a5e5b",
        ),
    }

    standard = {"model_name": "bert-large-uncased", "seq_len": 384}
    example = {"model_name": "bert-tiny", "seq_len": 32}
    token_inputs = 2
    module_names = (
        (r"^embeddings\.word_embeddings\b", "words"),
        (r"^embeddings\.position_embeddings\b", "positions"),
        (r"^embeddings\.token_type_embeddings\b", "types"),
        (r"^embeddings\.LayerNorm\b", "norm"),
        (r"^encoder\.layer\.", "layers."),
        (r"\battention\.self\b", "attention"),
        (r"\battention\.output\.dense\b", "attention.output"),
        (r"\battention\.output\.LayerNorm\b", "attention_norm"),
        (r"\bintermediate\.dense\b", "up"),
        (r"\boutput\.dense\b", "down"),
        (r"\boutput\.LayerNorm\b", "output_norm"),
    )
    unused_tensors = ("pooler.",)

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names as in transformers' `BertModel`."""
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        for name, rows in (
            ("word_embeddings", config["vocab_size"]),
            ("position_embeddings", config["max_position_embeddings"]),
            ("token_type_embeddings", config["type_vocab_size"]),
        ):
            yield TensorInit(name=f"embeddings.{name}.weight", shape=(rows, hidden), stddev=1.0)
        yield from layers.norm("embeddings.LayerNorm", hidden)
        for index in range(config["num_hidden_layers"]):
            layer = f"encoder.layer.{index}"
            for part in ("self.query", "self.key", "self.value", "output.dense"):
                yield from layers.linear(f"{layer}.attention.{part}", hidden, hidden)
            yield from layers.norm(f"{layer}.attention.output.LayerNorm", hidden)
            yield from layers.linear(f"{layer}.intermediate.dense", hidden, intermediate)
            yield from layers.linear(f"{layer}.output.dense", intermediate, hidden)
            yield from layers.norm(f"{layer}.output.LayerNorm", hidden)
        yield from layers.linear("pooler.dense", hidden, hidden)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """The last hidden state, [batch, seq, hidden]."""
        shape = self.token_spec(parameters).shape
        return (tensor(parameters, *shape, self.config_of(parameters)["hidden_size"]),)

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Cuts the text into padded token windows, a different one for each row of the batch."""
        return self.padded_windows(raw_input, parameters, checkpoint)

    def canonical_weight_name(self, name: str) -> str:
        """Google's checkpoints add the prefix `bert.`, and name weight and bias gamma and beta."""
        name = name.removeprefix("bert.")
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        )


ARCHITECTURE = Bert()
