"""Generation with T5 in TensorFlow, with a static cache; `forward` and `generate` are one."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import t5_for_cond_gen
from openxla.benchmark.models.tf.causal_lm import GreedyModel, LayerCache, tied_head, widened
from openxla.benchmark.models.tf.operations import at_least_float32
from openxla.benchmark.models.tf.t5 import T5


class Cache(NamedTuple):
    """State of a step other than the token; only `tokens` changes between steps.

    Attributes:
      tokens: keys and values of all decoder positions, by layer.
      prompt: keys and values of the encoder's output, for cross-attention.
      prompt_bias: hides the padding of the prompt, [batch, 1, 1, seq].
      bias: bias of self-attention, [heads, 2 * positions - 1]: by distance, the longest first, then
        the bias that hides unwritten positions. Each step's bias is a slice of it.
    """

    tokens: tuple[LayerCache, ...]
    prompt: tuple[LayerCache, ...]
    prompt_bias: tf.Tensor
    bias: tf.Tensor


class T5ForCondGen(GreedyModel):
    """Inputs: input_ids and attention_mask, i32[batch, seq].

    Outputs: see `GenerationModel.generate`.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(t5_for_cond_gen.ARCHITECTURE, parameters, T5)
        config = self.architecture.config(str(parameters["model_name"]))
        self._cache_shape = (config["num_heads"], self.max_new_tokens, config["d_kv"])
        self._start_token: int = config["decoder_start_token_id"]
        self._head_scale: float = config["d_model"] ** -0.5

    def prefill(self, input_ids: tf.Tensor, attention_mask: tf.Tensor) -> tuple[tf.Tensor, Cache]:
        """See `GenerationModel.prefill`: encodes the prompts and reads the start token."""
        model, batch, places = self.layer, input_ids.shape[0], self.max_new_tokens
        dtype = tf.as_dtype(model.words.dtype)
        wide = at_least_float32(dtype)
        seen = attention_mask[:, tf.newaxis, tf.newaxis, :] > 0
        prompt_bias = tf.where(seen, tf.zeros((), wide), tf.constant(wide.min, wide))
        prompt = model.prompt(model.encode(input_ids, prompt_bias))
        empty = tf.zeros((batch, *self._cache_shape), dtype)
        bias = model.decoder.bias(np.arange(1 - places, 1))
        unseen = tf.fill((bias.shape[0], places - 1), tf.constant(wide.min, wide))
        cache = Cache(
            tokens=((empty, empty),) * len(prompt),
            prompt=prompt,
            prompt_bias=prompt_bias,
            bias=tf.concat([bias, unseen], axis=1),
        )
        start = tf.fill((batch,), tf.constant(self._start_token, tf.int32))
        return self.decode(start, tf.constant(0, tf.int32), cache)

    def decode(
        self, token: tf.Tensor, position: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, Cache]:
        """See `GenerationModel.decode`; positions are counted from the start token."""
        model, places = self.layer, self.max_new_tokens
        bias = tf.slice(cache.bias, (0, places - 1 - position), (cache.bias.shape[0], places))
        x, tokens = model.embed(token[:, tf.newaxis]), []
        layers = zip(model.decoder.layers, cache.prompt, cache.tokens, strict=True)
        for layer, prompt, earlier in layers:
            x, new = layer(
                x, bias[:, tf.newaxis], prompt, cache.prompt_bias, position=position, cache=earlier
            )
            tokens.append(new)
        x = model.decoder.norm(x)[:, -1]
        logits = tied_head(x * tf.constant(self._head_scale, x.dtype), model.words)
        return widened(logits), cache._replace(tokens=tuple(tokens))

    def first_position(self, *inputs: Any) -> int:
        """Returns the position after the start token."""
        return 1


create_model = shared_model.creator(t5_for_cond_gen.ARCHITECTURE, T5ForCondGen)


if __name__ == "__main__":
    shared_model.run_once(create_model, **t5_for_cond_gen.ARCHITECTURE.example)
