"""The lowest float32 number is replaced everywhere in a JAX program, and nothing else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from openxla.benchmark.models.tflite.conversion import MASK, clamp_jax

LEAST = np.finfo(np.float32).min
TRIANGLE = np.tri(3, dtype=np.bool_)


def as_literal(x):
    return jnp.where(TRIANGLE, x, LEAST)


def as_array(x):
    return jnp.where(TRIANGLE, x, np.full((3, 3), LEAST))


def as_output(x):
    return jnp.where(TRIANGLE, x, 0.0) + jnp.where(TRIANGLE, 0.0, LEAST)


def in_a_called_function(x):
    return jax.jit(as_literal)(x)


def in_a_loop(x):
    def step(carry, _):
        return as_literal(carry), None

    return jax.lax.scan(step, x, None, length=2)[0]


def in_a_branch(x):
    return jax.lax.cond(x[0, 0] > 0, as_literal, lambda y: y, x)


FUNCTIONS = (as_literal, as_array, as_output, in_a_called_function, in_a_loop, in_a_branch)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_masks_are_found_and_the_rest_is_left_alone(function):
    x = np.arange(1, 10, dtype=np.float32).reshape(3, 3)
    counts = []
    clamped = clamp_jax(function, counts.append)
    expected = np.where(np.asarray(function(x)) == LEAST, np.float32(MASK), function(x))
    for call in (clamped, jax.jit(clamped)):
        np.testing.assert_array_equal(call(x), expected)
    assert counts
    assert all(count > 0 for count in counts)


def test_trees_come_back_and_other_types_are_left_alone():
    def function(tree, scale):
        return {"a": tree["a"] * scale, "b": (jnp.full(2, -jnp.inf), jnp.int32(-(2**31)))}

    counts = []
    arguments = ({"a": jnp.ones(3, jnp.bfloat16), "unused": jnp.zeros(1)}, jnp.bfloat16(2))
    found, expected = clamp_jax(function, counts.append)(*arguments), function(*arguments)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert counts == [0]
