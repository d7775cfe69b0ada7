"""Generation with T5 in JAX, with a static cache; `apply` and `generate` are one function."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import shared_model
from openxla.benchmark.models.architectures import t5_for_cond_gen
from openxla.benchmark.models.jax.causal_lm import GreedyModel, at_least_float32
from openxla.benchmark.models.jax.layers import product
from openxla.benchmark.models.jax.t5 import T5, KeysValues


class Cache(NamedTuple):
    """State of a step other than the token; only `tokens` changes between steps.

    Attributes:
      tokens: keys and values of all decoder positions, by layer.
      prompt: keys and values of the encoder's output, for cross-attention.
      prompt_bias: hides the padding of the prompt, [batch, 1, 1, seq].
      bias: bias of self-attention, [heads, 2 * positions - 1]: by distance, the longest first, then
        the bias that hides unwritten positions. Each step's bias is a slice of it.
    """

    tokens: tuple[KeysValues, ...]
    prompt: tuple[KeysValues, ...]
    prompt_bias: jax.Array
    bias: jax.Array


class T5ForCondGen(GreedyModel):
    """Inputs: input_ids and attention_mask, i32[batch, seq].

    Outputs: see `GenerationModel.generate`.
    """

    def __init__(self, parameters: Parameters) -> None:
        super().__init__(t5_for_cond_gen.ARCHITECTURE, parameters, T5)
        self._config = self.architecture.config(str(parameters["model_name"]))

    def prefill(
        self, params: Any, input_ids: jax.Array, attention_mask: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """See `GenerationModel.prefill`: encodes the prompts and reads the start token."""
        model, batch = self.module(params), input_ids.shape[0]
        dtype = model.words.embedding[...].dtype
        wide = jnp.promote_types(dtype, jnp.float32)
        hidden = jnp.asarray(jnp.finfo(wide).min, wide)
        mask = jnp.where(attention_mask[:, None, None, :] > 0, jnp.zeros((), wide), hidden)
        prompt = model.prompt(model.encode(input_ids, mask))
        places = self.max_new_tokens
        shape = (batch, self._config["num_heads"], places, self._config["d_kv"])
        empty = jnp.zeros(shape, dtype)
        seen = model.decoder.bias(np.arange(1 - places, 1))
        unseen = jnp.full((seen.shape[0], places - 1), hidden)
        cache = Cache(
            tokens=((empty, empty),) * len(prompt),
            prompt=prompt,
            prompt_bias=mask,
            bias=jnp.concatenate([seen, unseen], axis=1),
        )
        start = jnp.full(batch, self._config["decoder_start_token_id"], jnp.int32)
        return self.decode(params, start, jnp.zeros((), jnp.int32), cache)

    def decode(
        self, params: Any, token: jax.Array, position: jax.Array, cache: Cache
    ) -> tuple[jax.Array, Cache]:
        """See `GenerationModel.decode`; positions are counted from the start token."""
        model, places = self.module(params), self.max_new_tokens
        bias = jax.lax.dynamic_slice_in_dim(cache.bias, places - 1 - position, places, axis=1)
        x, tokens = model.embed(token[:, None]), []
        for layer, prompt, old in zip(model.decoder.layers, cache.prompt, cache.tokens):
            x, new = layer(x, bias[:, None], prompt, cache.prompt_bias, position, old)
            tokens.append(new)
        x = model.decoder.norm(x)[:, -1] * jnp.asarray(self._config["d_model"] ** -0.5, x.dtype)
        logits = product("bh,vh->bv", x, model.words.embedding[...])
        return at_least_float32(logits), cache._replace(tokens=tuple(tokens))

    def first_position(self, *inputs: Any) -> int:
        """Returns the position after the start token."""
        return 1


create_model = shared_model.creator(t5_for_cond_gen.ARCHITECTURE, T5ForCondGen)


if __name__ == "__main__":
    shared_model.run_once(create_model, **t5_for_cond_gen.ARCHITECTURE.example)
