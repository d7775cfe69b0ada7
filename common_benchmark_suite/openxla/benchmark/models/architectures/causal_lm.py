"""What decoder-only language models share: prompts in; logits, or generated tokens, out."""

import math
from collections.abc import Iterator, Mapping
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
from openxla.benchmark.models.generation import max_new_tokens

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# Queries and keys this much larger than their inputs give scores with a standard deviation of 2:
# each token attends to a few others. At 1, attention would be nearly the mean over all of them, and
# an implementation that mixes up keys or positions would go unnoticed.
ATTENTION_GAIN = math.sqrt(2)
# Attention averages and activations cut off: what a branch loses by it, its last matrix restores.
BRANCH_GAIN = 1.5


class CausalLM(Architecture):
    """Input: input_ids i32[batch, seq].

    Output: logits [batch, seq, vocab]; with the parameter `max_new_tokens`, what
    `generation.GenerationModel` generates: tokens and their logits.
    """

    # The key of the longest sequence in `config.json`.
    longest_key = "max_position_embeddings"
    default_seq_len: int | None = None

    def seq_len(self, parameters: Parameters) -> int:
        """Returns the number of tokens of a prompt.

        Raises:
          DefinitionError: it is not given, or prompt and new tokens are more than the model takes.
        """
        seq_len = integer({"seq_len": self.default_seq_len, **parameters}, "seq_len")
        longest = self.config(str(parameters["model_name"]))[self.longest_key]
        total = seq_len + (max_new_tokens(parameters) or 0)
        if total > longest:
            # XLA clamps an index that is out of range: a wrong answer, not an error.
            raise DefinitionError(
                f"'seq_len' and 'max_new_tokens' are {total}, more than {longest}"
            )
        return seq_len

    def generates(self, parameters: Parameters) -> bool:
        """If `max_new_tokens` says how many."""
        return max_new_tokens(parameters) is not None

    def input_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """Token ids, i32[batch, seq]."""
        shape = (integer(parameters, "batch_size"), self.seq_len(parameters))
        return (TensorSpec(shape=shape, dtype="i32"),)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """The logits of each token, or the generated tokens and their logits."""
        batch, seq = self.input_specs(parameters)[0].shape
        vocabulary = self.config(str(parameters["model_name"]))["vocab_size"]
        data_type = element_type(parameters.get("data_type"))
        new = max_new_tokens(parameters)
        if new is None:
            return (TensorSpec(shape=(batch, seq, vocabulary), dtype=data_type),)
        return (
            TensorSpec(shape=(batch, new), dtype="i32"),
            TensorSpec(shape=(batch, new, vocabulary), dtype="f32"),
        )

    def label(self, parameters: Parameters) -> str:
        """Adds the number of generated tokens to the usual label."""
        new = max_new_tokens(parameters)
        return super().label(parameters) + (f"-{new}new" if new else "")

    def default_input_files(self) -> tuple[Path, ...]:
        """The bundled text and tokenizer."""
        return (testdata.DEFAULT_TEXT, testdata.TOKENIZER)

    def default_inputs(self, parameters: Parameters) -> str:
        """The bundled text."""
        return testdata.load_text()

    def preprocess(
        self, raw_input: Any, parameters: Parameters, checkpoint: Path
    ) -> "tuple[npt.NDArray[np.generic], ...]":
        """Cuts the text into token windows, a different one for each row of the batch.

        The text is repeated until it fills the window: there is no padding to be masked.
        """
        from openxla.benchmark.models import preprocessing

        text = raw_input
        while True:
            ids, mask = preprocessing.token_batch(
                text,
                checkpoint / "tokenizer.json",
                batch_size=integer(parameters, "batch_size"),
                seq_len=self.seq_len(parameters),
            )
            if mask.all():
                return (ids,)
            text = f"{text} {raw_input}"

    def checkpoint_files(self) -> Mapping[str, Path]:
        """The bundled tokenizer."""
        return {"tokenizer.json": testdata.TOKENIZER}


def matrix(name: str, inputs: int, outputs: int, gain: float = 1.0) -> Iterator[TensorInit]:
    """Yields the weight [out, in] of a linear layer that multiplies the scale by `gain`."""
    stddev = gain / math.sqrt(inputs)
    yield TensorInit(name=f"{name}.weight", shape=(outputs, inputs), stddev=stddev)


def branch_gain(layers: int) -> float:
    """Returns the gain of a branch's last matrix: the sum of all 2 * layers is of order one."""
    return BRANCH_GAIN / math.sqrt(2 * layers)


def rotary_layers(config: Mapping[str, Any], norm_mean: float) -> Iterator[TensorInit]:
    """Yields the layers of Llama's pattern, by transformers' names; Gemma follows it, too.

    Args:
      config: the configuration, in Hugging Face's keys.
      norm_mean: the weight of an RMS norm that changes nothing.
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

    In float64 for all frameworks: computed by each in its own type, they would differ in the
    seventh digit (Su et al. 2021, arXiv:2104.09864, equation 15).
    """
    size, theta = config["head_dim"], config["rope_theta"]
    return [float(theta ** (-2 * index / size)) for index in range(size // 2)]
