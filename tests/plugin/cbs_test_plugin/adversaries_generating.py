"""GPT-2s that generate wrongly in one way each, in PyTorch and JAX.

A fault wraps a right model's `decode`, which reads one token, or changes the output of a
whole generation. Judges compare the same text: an error in one of a few hundred steps is enough
to make it another model.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

# decode(token, position, cache) -> logits and cache.
Decode = Callable[[Any, Any, Any], tuple[Any, Any]]


def _stale_cache(decode: Decode, copied: Callable[[Any], Any]) -> Decode:
    """No step sees the tokens of previous steps."""

    def wrong(token: Any, position: Any, cache: Any) -> tuple[Any, Any]:
        logits, _ = decode(token, position, copied(cache))
        return logits, cache

    return wrong


def _one_position_behind(decode: Decode, copied: Callable[[Any], Any]) -> Decode:
    """Each step overwrites the previous one."""
    return lambda token, position, cache: decode(token, position - 1, cache)


def _token_of_another(decode: Decode, copied: Callable[[Any], Any]) -> Decode:
    """Each step reads another token than the chosen one."""
    return lambda token, position, cache: decode((token + 1) % 1000, position, cache)


STEPS: Mapping[str, Callable[[Decode, Callable[[Any], Any]], Decode]] = {
    "stale-cache": _stale_cache,
    "one-position-behind": _one_position_behind,
    "token-of-another": _token_of_another,
}


def _ends_early(tokens: Any, logits: Any, xp: Any) -> tuple[Any, Any]:
    """The output of a run that stops half-way and pads."""
    first = xp.arange(tokens.shape[1]) < tokens.shape[1] // 2
    return tokens * first[None, :], logits * first[None, :, None]


def _repeats(tokens: Any, logits: Any, xp: Any) -> tuple[Any, Any]:
    """Repeats one token and shifts all later tokens and logits by one place."""
    places = xp.arange(tokens.shape[1])
    places = xp.where(places < 4, places, places - 1)
    return tokens[:, places], logits[:, places]


def _second_best(tokens: Any, logits: Any, xp: Any) -> tuple[Any, Any]:
    """Right logits, but another token in the last step."""
    last = xp.arange(tokens.shape[1]) == tokens.shape[1] - 1
    return xp.where(last[None, :], (tokens + 1) % 1000, tokens), logits


def _last_step(tokens: Any, logits: Any, xp: Any) -> tuple[Any, Any]:
    """Right tokens, but logits that are 20 % larger in the last step."""
    last = xp.arange(tokens.shape[1]) == tokens.shape[1] - 1
    return tokens, xp.where(last[None, :, None], logits * 1.2, logits)


OUTPUTS: Mapping[str, Callable[[Any, Any, Any], tuple[Any, Any]]] = {
    "ends-early": _ends_early,
    "repeats-a-token": _repeats,
    "takes-second-best": _second_best,
    "last-step-scaled": _last_step,
}
# Right on the input that is timed.
FROM_A_TABLE = "from-a-table"
FAULTS = (*STEPS, *OUTPUTS, FROM_A_TABLE)


def _same(value: Any) -> Any:
    """JAX changes nothing in place."""
    return value


def create_model(*, fault: str = "none", framework: str, **parameters: Any) -> Any:
    """Returns GPT-2 with the given fault."""
    path = f"openxla.benchmark.models.{framework}.gpt2.gpt2_model"
    model = importlib.import_module(path).create_model(**parameters)
    if fault == "none":
        return model
    return (_in_jax if framework == "jax" else _in_torch)(model, fault)


def _in_torch(model: Any, fault: str) -> Any:
    import torch

    def copied(cache: Any) -> Any:
        return [tuple(part.clone() for part in layer) for layer in cache]

    if fault in STEPS:
        model.decode = STEPS[fault](model.decode, copied)
        return model
    right, kept = model.forward, {}

    def forward(*inputs: Any) -> Any:
        if fault == FROM_A_TABLE:
            if "outputs" not in kept:
                kept["outputs"] = right(*inputs)
            return kept["outputs"]
        return OUTPUTS[fault](*right(*inputs), torch)

    model.forward = forward
    return model


def _in_jax(model: Any, fault: str) -> Any:
    import jax.numpy as jnp

    if fault in STEPS:
        right_step = model.decode

        def decode(params: Any, token: Any, position: Any, cache: Any) -> Any:
            def step(*given: Any) -> Any:
                return right_step(params, *given)

            return STEPS[fault](step, _same)(token, position, cache)

        model.decode = decode
        return model
    right = model.apply
    # A compiled function keeps what it was compiled with.
    inputs = map(jnp.asarray, model.preprocess(model.generate_default_inputs()))
    table = right(model.params, *inputs) if fault == FROM_A_TABLE else None

    def apply(params: Any, *inputs: Any) -> Any:
        if table is not None:
            return table
        return OUTPUTS[fault](*right(params, *inputs), jnp)

    model.apply = apply
    return model
