"""T5: the encoder-decoder of Raffel et al. 2019 (arXiv:1910.10683), last hidden state as output.

Positions only enter through a bias on attention scores, one number per head and bucket of
distances; scores are not scaled by the head size.
"""

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openxla.benchmark.def_types import Parameters, TensorSpec
from openxla.benchmark.models.architectures.base import Arrays, TensorInit, tensor
from openxla.benchmark.models.architectures.causal_lm import BRANCH_GAIN, branch_gain, matrix
from openxla.benchmark.models.architectures.text import TextArchitecture

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

# The standard deviation of attention scores: each token attends to a few others.
_SCORES = 2.0


def _config(hidden: int, layers: int, heads: int, **changes: Any) -> Mapping[str, Any]:
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "d_ff": 4 * hidden,
        "d_kv": 64,
        "d_model": hidden,
        "decoder_start_token_id": 0,
        "dropout_rate": 0.0,
        "eos_token_id": 1,
        "feed_forward_proj": "relu",
        "initializer_factor": 1.0,
        "is_encoder_decoder": True,
        "layer_norm_epsilon": 1e-6,
        "num_decoder_layers": layers,
        "num_heads": heads,
        "num_layers": layers,
        "pad_token_id": 0,
        "relative_attention_max_distance": 128,
        "relative_attention_num_buckets": 32,
        "tie_word_embeddings": True,
        "vocab_size": 32128,
        **changes,
    }


class T5(TextArchitecture):
    """Inputs: input_ids and decoder_input_ids, i32[batch, seq]; output: [batch, seq, d_model]."""

    name = "t5"
    version = 1
    configs = {
        # Sizes that differ from each other where the real models' agree, and a `longest` distance
        # that short inputs exceed.
        "t5-tiny": _config(
            128,
            2,
            2,
            d_kv=32,
            num_decoder_layers=3,
            relative_attention_max_distance=32,
            relative_attention_num_buckets=16,
            vocab_size=1024,
        ),
        "t5-small": _config(512, 6, 8),
        "t5-large": _config(1024, 24, 16),
    }
    pretrained = {
        "t5-small": ("google-t5/t5-small", "df1b051c49625cf57a3d0d8d3863ed4d13564fe4"),
        "t5-large": ("google-t5/t5-large", "150ebc2c4b72291e770f58e6057481c8d2ed331a"),
    }

    # In the OpenXLA suite's 16-bit cases, only the model's name contains it.
    defaults = {"seq_len": 512}
    standard = {"model_name": "t5-large"}
    example = {"model_name": "t5-tiny", "seq_len": 32}
    token_inputs = 2
    module_names = (
        (r"^shared\b", "words"),
        (r"\bblock\.0\.layer\.0\.SelfAttention\.relative_attention_bias\.weight$", "biases"),
        (r"\bblock\b", "layers"),
        (r"\bfinal_layer_norm\b", "norm"),
        (r"^(decoder\..*)\blayer\.1\.layer_norm\b", r"\1cross_norm"),
        (r"\blayer\.0\.layer_norm\b", "attention_norm"),
        (r"\blayer\.[12]\.layer_norm\b", "norm"),
        (r"\blayer\.0\.SelfAttention\b", "attention"),
        (r"\blayer\.1\.EncDecAttention\b", "cross"),
        (r"\bq\b", "query"),
        (r"\bk\b", "key"),
        (r"\bv\b", "value"),
        (r"\bo\b", "output"),
        (r"\blayer\.[12]\.DenseReluDense\.wi\b", "up"),
        (r"\blayer\.[12]\.DenseReluDense\.wo\b", "down"),
    )

    def longest(self, config: Mapping[str, Any]) -> int | None:
        """Returns None: positions enter through distances, without a limit."""
        return None

    def tensors(self, config: Mapping[str, Any]) -> Iterable[TensorInit]:
        """See `Architecture.tensors`; names as in `T5ForConditionalGeneration`.

        Encoder, decoder and head share the table `shared.weight`.
        """
        hidden = config["d_model"]
        # The head divides by sqrt(d_model): rows of order one give logits of order one.
        yield TensorInit(name="shared.weight", shape=(config["vocab_size"], hidden), stddev=1.0)
        encoder, decoder = config["num_layers"], config["num_decoder_layers"]
        yield from _stack(config, "encoder", ("SelfAttention",), branch_gain(encoder))
        yield _norm("encoder.final_layer_norm", hidden)
        attentions = ("SelfAttention", "EncDecAttention")
        yield from _stack(config, "decoder", attentions, BRANCH_GAIN / math.sqrt(3 * decoder))
        # The table is also the head, so the last token read would by far have the largest logit for
        # its own successor, and be generated forever. Factors of either sign prevent this.
        yield _norm("decoder.final_layer_norm", hidden, mean=0.0, stddev=1.0)

    def output_specs(self, parameters: Parameters) -> tuple[TensorSpec, ...]:
        """The last hidden state of the decoder, [batch, seq, d_model]."""
        shape = self.token_spec(parameters).shape
        return (tensor(parameters, *shape, self.config_of(parameters)["d_model"]),)

    def preprocess(self, raw_input: Any, parameters: Parameters, checkpoint: Path) -> Arrays:
        """Cuts the text into token windows, different ones for encoder, decoder and each row.

        The decoder's tokens are shifted right by a start token, as in training.
        """
        import numpy as np

        batch = self.token_spec(parameters).shape[0]
        windows, _ = self.token_windows(
            raw_input, {**parameters, "batch_size": 2 * batch}, checkpoint
        )
        start = self.config_of(parameters)["decoder_start_token_id"]
        shifted = np.pad(windows[batch:, :-1], ((0, 0), (1, 0)), constant_values=start)
        return (windows[:batch], shifted)


def distances(length: int) -> "npt.NDArray[Any]":
    """Returns the position of the key minus the position of the query, [query, key]."""
    import numpy as np

    positions = np.arange(length)
    return positions[None, :] - positions[:, None]


def relative_buckets(
    distances: "npt.NDArray[np.integer]", *, count: int, longest: int, bidirectional: bool
) -> "npt.NDArray[np.int32]":
    """Returns the bucket of each distance, position of the key minus position of the query.

    There is a bucket for each short distance, then buckets that grow by a constant factor up to
    `longest`, `count` in all; the last is unbounded. With `bidirectional`, one half of them is for
    keys after the query; otherwise such keys share bucket 0. Bucket boundaries are computed with
    integers: a logarithm that is off in its last digit would move some distances to a neighbouring
    bucket.
    """
    import numpy as np

    first: npt.NDArray[np.int32] = np.zeros(distances.shape, np.int32)
    if bidirectional:
        count //= 2
        first[distances > 0] = count
        distances = np.abs(distances)
    else:
        distances = np.maximum(-distances, 0)
    starts = np.array(_bucket_starts(count, longest))
    return first + (np.searchsorted(starts, distances, side="right") - 1).astype(np.int32)


def _bucket_starts(count: int, longest: int) -> list[int]:
    """Returns the smallest distance of each bucket."""
    exact = count // 2
    steps = count - exact
    # Bucket exact + j begins where (distance / exact)^steps >= (longest / exact)^j.
    return [*range(exact + 1)] + [
        next(d for d in itertools.count(exact) if d**steps * exact**j >= longest**j * exact**steps)
        for j in range(1, steps)
    ]


def _stack(
    config: Mapping[str, Any], stack: str, attentions: tuple[str, ...], last: float
) -> Iterator[TensorInit]:
    """Yields the layers of encoder or decoder; `last` is the gain of a branch's last matrix."""
    hidden, heads, size = config["d_model"], config["num_heads"], config["d_kv"]
    layers = config["num_decoder_layers" if stack == "decoder" else "num_layers"]
    buckets = config["relative_attention_num_buckets"]
    for index in range(layers):
        block = f"{stack}.block.{index}.layer"
        for number, attention in enumerate(attentions):
            part = f"{block}.{number}.{attention}"
            yield from matrix(f"{part}.q", hidden, heads * size, _SCORES / math.sqrt(size))
            yield from matrix(f"{part}.k", hidden, heads * size)
            yield from matrix(f"{part}.v", hidden, heads * size)
            yield from matrix(f"{part}.o", heads * size, hidden, last)
            if index == number == 0:
                name = f"{part}.relative_attention_bias.weight"
                yield TensorInit(name=name, shape=(buckets, heads), stddev=1.0)
            yield _norm(f"{block}.{number}.layer_norm", hidden)
        number = len(attentions)
        part = f"{block}.{number}.DenseReluDense"
        yield from matrix(f"{part}.wi", hidden, config["d_ff"])
        yield from matrix(f"{part}.wo", config["d_ff"], hidden, last)
        yield _norm(f"{block}.{number}.layer_norm", hidden)


def _norm(name: str, size: int, mean: float = 1.0, stddev: float = 0.2) -> TensorInit:
    return TensorInit(name=f"{name}.weight", shape=(size,), mean=mean, stddev=stddev)


ARCHITECTURE = T5()
