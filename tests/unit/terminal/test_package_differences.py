"""Remarks on the packages of a run of several environments."""

import pytest
from results_support import completed

from comparative_benchmark.terminal.tables import package_differences


def record(environment, **versions):
    named = None if environment is None else {"name": environment, "python": "python"}
    [found] = completed(
        {"benchmarks": [{"definition": {"environment": named}, "versions": versions}]}
    ).benchmarks
    return found


@pytest.mark.parametrize(
    ("records", "lines"),
    [
        ([record(None, jax="1")], []),
        ([record("old", jax="1"), record("old", jax="1")], []),
        (
            [record("old", jax="1", numpy="2"), record("new", jax="1.1", numpy="2")],
            ["old: jax 1", "new: jax 1.1"],
        ),
        (
            [record("old", jax="1"), record("new", jax="1", flax="0.1")],
            ["old: flax not imported", "new: flax 0.1"],
        ),
        (
            [record("base", jax="1"), record("head", jax="1")],
            ["base, head: same versions of all imported packages"],
        ),
    ],
)
def test_packages_that_differ_are_named(records, lines):
    assert package_differences(records) == lines
