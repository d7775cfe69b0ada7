"""A JAX function of keywords that returns a dataclass."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass
class Out:
    y: jax.Array
    other: jax.Array


def create_model():
    params = {"w": jnp.ones((8, 4)) * 0.1}

    def f(params, *, x, opts):
        h = jnp.tanh(x @ params["w"]) * opts["scale"]
        return Out(h, h.sum(-1))

    return f, params


def example_inputs():
    r = np.random.default_rng(0)
    return {
        "x": r.standard_normal((2, 8)).astype(np.float32),
        "opts": {"scale": np.float32(3) * np.ones(4, np.float32), "n": 3},
    }
