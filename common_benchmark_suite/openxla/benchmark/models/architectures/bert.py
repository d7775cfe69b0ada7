"""BERT: the encoder of Devlin et al. 2018 (arXiv:1810.04805), last hidden state as output."""

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openxla.benchmark import testdata
from openxla.benchmark.def_types import DefinitionError, Parameters, TensorSpec
from openxla.benchmark.models.architectures.base import (
    Architecture,
    TensorInit,
    element_type,
    integer,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


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


def _linear(name: str, inputs: int, outputs: int) -> Iterator[TensorInit]:
    # Variance 1/fan_in keeps activations of order one; small biases keep a lost bias visible.
    yield TensorInit(name=f"{name}.weight", shape=(outputs, inputs), stddev=1 / math.sqrt(inputs))
    yield TensorInit(name=f"{name}.bias", shape=(outputs,), stddev=0.1)


def _layer_norm(name: str, size: int) -> Iterator[TensorInit]:
    yield TensorInit(name=f"{name}.weight", shape=(size,), mean=1.0, stddev=0.2)
    yield TensorInit(name=f"{name}.bias", shape=(size,), stddev=0.1)


class Bert(Architecture):
    """Inputs: input_ids and attention_mask, i32[batch, seq]; output: [batch, seq, hidden]."""

    name = "bert"
    version = 1
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

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names are those of transformers' `BertModel`."""
        hidden, intermediate = config["hidden_size"], config["intermediate_size"]
        for name, rows in (
            ("word_embeddings", config["vocab_size"]),
            ("position_embeddings", config["max_position_embeddings"]),
            ("token_type_embeddings", config["type_vocab_size"]),
        ):
            yield TensorInit(name=f"embeddings.{name}.weight", shape=(rows, hidden), stddev=1.0)
        yield from _layer_norm("embeddings.LayerNorm", hidden)
        for index in range(config["num_hidden_layers"]):
            layer = f"encoder.layer.{index}"
            for part in ("self.query", "self.key", "self.value", "output.dense"):
                yield from _linear(f"{layer}.attention.{part}", hidden, hidden)
            yield from _layer_norm(f"{layer}.attention.output.LayerNorm", hidden)
            yield from _linear(f"{layer}.intermediate.dense", hidden, intermediate)
            yield from _linear(f"{layer}.output.dense", intermediate, hidden)
            yield from _layer_norm(f"{layer}.output.LayerNorm", hidden)
        yield from _linear("pooler.dense", hidden, hidden)

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Token ids and attention mask, both i32[batch, seq]."""
        shape = (integer(parameters, "batch_size"), integer(parameters, "seq_len"))
        longest = self.config(str(parameters["model_name"]))["max_position_embeddings"]
        if shape[1] > longest:
            # XLA clamps an index that is out of range: a wrong answer, not an error.
            raise DefinitionError(f"parameter 'seq_len' is {shape[1]}, more than {longest}")
        return (TensorSpec(shape=shape, dtype="i32"), TensorSpec(shape=shape, dtype="i32"))

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """The last hidden state, [batch, seq, hidden]."""
        hidden = self.config(str(parameters["model_name"]))["hidden_size"]
        shape = (integer(parameters, "batch_size"), integer(parameters, "seq_len"), hidden)
        return (TensorSpec(shape=shape, dtype=element_type(parameters.get("data_type"))),)

    def default_input_files(self) -> tuple[Path, ...]:
        """The bundled text and tokenizer."""
        return (testdata.DEFAULT_TEXT, testdata.TOKENIZER)

    def default_inputs(self, parameters: Parameters) -> str:
        """The bundled text."""
        return testdata.load_text()

    def preprocess(
        self, raw_input: Any, parameters: Parameters, checkpoint: Path
    ) -> "tuple[npt.NDArray[np.generic], ...]":
        """Cuts the text into token windows, a different one for each row of the batch."""
        from openxla.benchmark.models import preprocessing

        return preprocessing.token_batch(
            raw_input,
            checkpoint / "tokenizer.json",
            batch_size=integer(parameters, "batch_size"),
            seq_len=integer(parameters, "seq_len"),
        )

    def canonical_weight_name(self, name: str) -> str:
        """Google's checkpoints put `bert.` in front and call weight and bias gamma and beta."""
        name = name.removeprefix("bert.")
        return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
            "LayerNorm.beta", "LayerNorm.bias"
        )

    def checkpoint_files(self) -> Mapping[str, Path]:
        """The bundled tokenizer."""
        return {"tokenizer.json": testdata.TOKENIZER}


ARCHITECTURE = Bert()
