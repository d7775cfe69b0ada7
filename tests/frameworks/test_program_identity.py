"""The digest of a compiled program: the same for the same program, and for no other."""

import jax
import jax.numpy as jnp
import pytest

from comparative_benchmark.backends.frameworks.xla_executables import fingerprint, serialize


def _compiled(function, size=8):
    return jax.jit(function).lower(jnp.ones((size,))).compile().runtime_executable()


def test_names_and_source_lines_do_not_matter():
    def one(x):
        return x * 2.5

    def other(x):
        # Elsewhere in the source.
        return x * 2.5

    other.__name__ = one.__name__
    assert fingerprint(_compiled(one)) == fingerprint(_compiled(other))


@pytest.mark.parametrize(
    "other",
    [lambda x: x * 3.5, lambda x: x * 2.5 + 1, lambda x: x * jnp.arange(8) * 2.5],
    ids=["constant", "operation", "table"],
)
def test_constants_and_operations_do(other):
    assert fingerprint(_compiled(lambda x: x * 2.5)) != fingerprint(_compiled(other))


def test_shapes_do():
    def double(x):
        return x * 2

    assert fingerprint(_compiled(double, 8)) != fingerprint(_compiled(double, 9))


def test_more_code_is_larger():
    def long(x):
        for _ in range(50):
            x = jnp.sort(x) * 1.5
        return x

    small, large = (len(serialize(_compiled(f))) for f in (lambda x: x * 2, long))
    assert 0 < small < large
