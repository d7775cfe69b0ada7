"""An update alone: the arrays drawn for it, and the optimizers that it distinguishes."""

import attrs
import ml_dtypes
import numpy as np
import pytest

from openxla.benchmark.training import OPTIMIZERS
from openxla.benchmark.training.models import (
    COMPARED,
    draw_update,
    expected_update,
    worst_update_error,
)

NAMES = {"a.weight": 3000, "b.bias": 8}
CHANGES = {"learning_rate": 1.01, "weight_decay": 0.5, "momentum": 0.99, "epsilon": 1e-3}


def after(optimizer, dtype=np.float64):
    return {
        name: expected_update(optimizer, name, min(size, COMPARED))[1].astype(dtype)
        for name, size in NAMES.items()
    }


def test_what_is_drawn_depends_on_kind_and_name_and_fills_any_shape():
    np.testing.assert_array_equal(
        draw_update("weight", "a", (70, 70)), draw_update("weight", "a", (70, 70))
    )
    assert not np.array_equal(draw_update("weight", "a", (9,)), draw_update("weight", "b", (9,)))
    assert not np.array_equal(draw_update("first", "a", (9,)), draw_update("weight", "a", (9,)))
    whole = draw_update("weight", "a", (3, 5000))
    assert whole.shape == (3, 5000)
    np.testing.assert_array_equal(whole.ravel()[:100], draw_update("weight", "a", (100,)))
    assert draw_update("second", "a", (4096,)).min() > 0
    gradients = draw_update("gradient", "a", (4096,))
    np.testing.assert_array_equal(gradients.astype(ml_dtypes.bfloat16), gradients)


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_float32_is_right_and_bf16_is_not(optimizer):
    assert worst_update_error(optimizer, after(optimizer))[0] == 0
    assert worst_update_error(optimizer, after(optimizer, np.float32))[0] < 0.5
    assert worst_update_error(optimizer, after(optimizer, ml_dtypes.bfloat16))[0] > 10


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_number_of_an_optimizer_is_seen(name):
    right = OPTIMIZERS[name]
    seen = []
    for field, factor in CHANGES.items():
        if (value := getattr(right, field)) != 0:
            wrong = attrs.evolve(right, **{field: value * factor})
            error, where = worst_update_error(right, after(wrong, np.float32))
            assert error > 3, field
            assert where in NAMES
            seen.append(field)
    for index in range(2 * (name == "adamw")):
        betas = list(right.betas)
        betas[index] = 1 - 1.1 * (1 - betas[index])
        error, _ = worst_update_error(right, after(attrs.evolve(right, betas=tuple(betas))))
        assert error > 3
        seen.append(f"betas[{index}]")
    assert len(seen) == {"sgd": 3, "adamw": 5}[name]


def test_nan_is_wrong():
    optimizer = OPTIMIZERS["sgd"]
    found = after(optimizer)
    found["b.bias"][3] = np.nan
    assert worst_update_error(optimizer, found) == (np.inf, "b.bias")
