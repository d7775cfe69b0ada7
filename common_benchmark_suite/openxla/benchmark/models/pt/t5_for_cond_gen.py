"""Generation with T5 in PyTorch: transformers' model with our own static cache.

Masks are ours, too, because transformers would rebuild them for each token.
"""

from typing import Any

import attrs
import torch
import transformers

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import t5_for_cond_gen
from openxla.benchmark.models.architectures.base import integer
from openxla.benchmark.models.pt import tensors
from openxla.benchmark.models.pt.greedy import GreedyModel, KeysValues, StaticCache
from openxla.benchmark.models.pt.t5 import T5Model
from openxla.benchmark.models.pt.tensors import as_tensor


@attrs.define(eq=False)
class Cache:
    """State of a step other than the token.

    Attributes:
      tokens: keys and values of all decoder positions.
      prompt: keys and values of the encoder's output, for cross-attention.
      visible: positions of the prompt that are not padding, bool[batch, 1, 1, seq].
      encoded: the encoder's output, [batch, seq, d_model]; required by transformers.
    """

    tokens: KeysValues
    prompt: KeysValues
    visible: torch.Tensor
    encoded: torch.Tensor


class _Insert(StaticCache):
    """Self-attention cache, whose length is the position."""

    def get_seq_length(self, *_: Any) -> torch.Tensor:
        return self.position


class _Layer:
    """Keys and values of the prompt in one layer, under transformers' names."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
        self.keys = keys
        self.values = values


class _Prompt:
    """Replaces transformers' cross-attention cache."""

    def __init__(self, layers: KeysValues) -> None:
        self.layers = [_Layer(keys, values) for keys, values in layers]


class _OneToken(transformers.EncoderDecoderCache):
    """Both caches of transformers' decoder; the prompt's is complete."""

    def __init__(self, cache: Cache, position: torch.Tensor) -> None:
        # Skips the parent's constructor, which requires transformers' own caches.
        self.is_updated = dict.fromkeys(range(len(cache.prompt)), True)
        self.self_attention_cache: Any = _Insert(cache.tokens, position)
        self.cross_attention_cache: Any = _Prompt(cache.prompt)


class T5ForCondGenModel(T5Model, GreedyModel):
    """Inputs: input_ids and attention_mask, int32[batch, seq].

    Outputs: see `GenerationModel.generate`.
    """

    prompt_inputs = 2
    model_class = transformers.T5ForConditionalGeneration
    architecture = t5_for_cond_gen.ARCHITECTURE

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(parameters)
        self.max_new_tokens = integer(parameters, "max_new_tokens")

    def prefill(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> tuple[torch.Tensor, Cache]:
        """See `GenerationModel.prefill`: encodes the prompts and reads the start token."""
        batch, config = input_ids.shape[0], self.model.config
        visible = attention_mask[:, None, None, :] > 0
        encoder = self.model.encoder(input_ids=input_ids, attention_mask=visible)
        encoded = encoder.last_hidden_state
        attentions = [block.layer[1].EncDecAttention for block in self.model.decoder.block]
        prompt = [
            (_split_heads(part.k(encoded), part), _split_heads(part.v(encoded), part))
            for part in attentions
        ]
        shape = (batch, config.num_heads, self.max_new_tokens, config.d_kv)
        tokens = [(encoded.new_zeros(shape), encoded.new_zeros(shape)) for _ in attentions]
        cache = Cache(tokens, prompt, visible, encoded)
        start = input_ids.new_full((batch,), config.decoder_start_token_id)
        position = torch.zeros(1, dtype=torch.int64, device=input_ids.device)
        return self.decode(start, position, cache)

    def decode(
        self, token: torch.Tensor, position: torch.Tensor, cache: Cache
    ) -> tuple[torch.Tensor, Cache]:
        """See `GenerationModel.decode`; position is i64[1], the cache is written into.

        Positions are counted from the start token.
        """
        places = torch.arange(self.max_new_tokens, device=position.device)
        output = self.model(
            decoder_input_ids=token[:, None],
            decoder_attention_mask=(places <= position)[None, None, None],
            encoder_outputs=(cache.encoded,),
            attention_mask=cache.visible,
            past_key_values=_OneToken(cache, position),
            use_cache=False,
        )
        logits = output.logits[:, -1]
        return logits.to(tensors.at_least_float32(logits.dtype)), cache

    def first_position(self, *inputs: Any) -> int:
        """Returns the position after the start token."""
        return 1

    def forward(self, input_ids: Any, attention_mask: Any, forced_tokens: Any = None) -> Any:
        """Generates."""
        forced = () if forced_tokens is None else (forced_tokens,)
        return self.generate(*map(as_tensor, (input_ids, attention_mask, *forced)))


def _split_heads(x: torch.Tensor, attention: Any) -> torch.Tensor:
    """[batch, seq, heads * d_kv] -> [batch, heads, seq, d_kv]."""
    return x.unflatten(-1, (attention.n_heads, attention.key_value_proj_dim)).transpose(1, 2)


create_model = shared_model.creator(t5_for_cond_gen.ARCHITECTURE, T5ForCondGenModel)


if __name__ == "__main__":
    shared_model.run_once(create_model, **t5_for_cond_gen.ARCHITECTURE.example)
