"""Grids of recipes: which numbers they hold, and which numbers share a scale."""

import json
import re
from pathlib import Path

import attrs
import numpy as np
import pytest

from comparative_benchmark.backends.recipes import parse
from comparative_benchmark.backends.recipes.definition import Grid, Rounding, rounded
from comparative_benchmark.backends.recipes.registry import RECIPES

VALUES = np.random.default_rng(0).standard_normal((6, 64)).astype(np.float32)


def error(grid, values=VALUES, axes=(-1,)):
    return float(np.sqrt(np.mean((rounded(values, grid, axes) - values) ** 2)))


def test_integers_reach_from_the_largest_number_to_its_opposite():
    held = rounded(np.array([[-3.0, 1.1, 3.0]]), Grid("int3"))
    np.testing.assert_allclose(held, [[-3, 1, 3]])


def test_the_full_range_clips_the_largest_number_above_zero():
    held = rounded(np.array([[-4.0, 1.1, 4.0]]), Grid("int3", full_range=True))
    np.testing.assert_allclose(held, [[-4, 1, 3]])


def test_fewer_numbers_to_a_scale_and_more_bits_make_less_noise():
    spread = VALUES * np.geomspace(1, 100, 64, dtype=np.float32)
    errors = [error(Grid("int4", share), spread) for share in ("tensor", "row", 16, 4)]
    assert errors == sorted(errors, reverse=True)
    bits = [error(Grid(f"int{number}")) for number in (2, 3, 4, 8)]
    assert bits == sorted(bits, reverse=True)
    assert bits[2] / bits[3] == pytest.approx(127 / 7, rel=0.2)


def test_a_scale_is_shared_along_the_axes_that_are_summed():
    columns = VALUES * np.geomspace(1, 1000, 64, dtype=np.float32)
    along, across = rounded(columns, Grid("int8"), (0,)), rounded(columns, Grid("int8"))
    assert np.abs(along - columns)[:, 0].max() < 0.02
    assert np.abs(across - columns)[:, 0].max() > 0.5
    both = rounded(VALUES.reshape(2, 3, 64), Grid("int8"), (1, 2))
    np.testing.assert_array_equal(both.reshape(2, -1), rounded(VALUES.reshape(2, -1), Grid("int8")))


def test_a_row_that_groups_do_not_divide_ends_in_a_shorter_one():
    held = rounded(VALUES[:, :50], Grid("int8", 32))
    np.testing.assert_array_equal(held[:, :32], rounded(VALUES[:, :32], Grid("int8")))
    np.testing.assert_array_equal(held[:, 32:], rounded(VALUES[:, 32:50], Grid("int8")))


@pytest.mark.parametrize(
    ("grid", "relative"),
    [
        (Grid("fp8"), 0.03),
        (Grid("fp8", 32, "power of two"), 0.04),
        (Grid("fp4", 16, "fp8"), 0.12),
        (Grid("uint8", "tensor"), 0.01),
        (Grid("2:4"), 0.5),
    ],
)
def test_every_kind_is_as_coarse_as_its_bits(grid, relative):
    assert relative / 4 < error(grid) < relative


@pytest.mark.parametrize("kind", ["int8", "uint8", "fp8", "fp4", "2:4"])
def test_zeros_and_nothing_stay_what_they_are(kind):
    assert not rounded(np.zeros((3, 8), np.float32), Grid(kind)).any()
    assert rounded(np.zeros((3, 0), np.float32), Grid(kind)).shape == (3, 0)


def test_a_mask_leaves_no_range_and_is_left_alone():
    masked = np.array([[-1e9, 0.0, 1.5]], np.float32)
    np.testing.assert_array_equal(rounded(masked, Grid("uint8", "tensor")), masked)


def test_types_are_kept():
    assert rounded(VALUES.astype(np.float16), Grid("int8")).dtype == np.float16


def test_a_rounding_is_sent_to_a_worker_as_json():
    one = Rounding(weights=Grid("int4", 32), activations=Grid("int8"), convolutions=True)
    assert Rounding.read(json.loads(json.dumps(attrs.asdict(one)))) == one


def test_every_recipe_says_what_it_rounds():
    samples = {"bits": "4", "group": "32", "size": "64"}
    without = set()
    # Recipes that the page does not show yet may give no grid.
    page = (Path(__file__).parents[3] / "docs" / "concepts" / "recipes.md").read_text()
    shown = [one for one in RECIPES if re.search(rf"`{re.escape(one.name)}[-`]", page)]
    assert len(shown) > 10
    for recipe in shown:
        name = recipe.name
        chosen = parse("-".join([name, *(samples[p.name] for p in recipe.parameters)]))
        rounding = chosen.rounding_in("pt_inductor")
        if rounding is None:
            without.add(name)
        else:
            assert rounding.weights or rounding.activations, name
    # Zeros that are left out change nothing, and gemlite is gone.
    assert without == {"block", "gemlitewo"}
    nncf = parse("int8wo").rounding_in("openvino")
    assert nncf.convolutions
    assert nncf.weights.full_range
