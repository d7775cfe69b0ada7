"""The layer at which two implementations drift apart, from the outputs of their layers."""

import numpy as np
import pytest

from comparative_benchmark.studies.parity.drift import Trace, compare, difference
from openxla.benchmark.artifacts import array_files

NAMES = ["embeddings", "layer.0.dense", "layer.0.norm", "layer.1.dense", "layer.1.norm", "head"]
_rng = np.random.default_rng(0)
VALUES = {name: _rng.normal(size=(2, 3, 4)) for name in NAMES}


@pytest.fixture
def trace(tmp_path):
    """Writes a trace of given layers, whose last one is the output."""
    made = []

    def make(layers):
        folder = tmp_path / str(len(made))
        made.append(folder)
        array_files.save_all(folder, "layer", list(layers.values()))
        array_files.save_all(folder, "output", [list(layers.values())[-1]])
        paths = array_files.numbered(folder, "layer")
        return Trace(
            layers=dict(zip(layers, paths)), outputs=array_files.numbered(folder, "output")
        )

    return make


def changed(from_layer, by=1e-3):
    """The layers of an implementation that is wrong from one layer on."""
    start = NAMES.index(from_layer)
    return {
        name: value + (by if number >= start else 1e-14)
        for number, (name, value) in enumerate(VALUES.items())
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_first_layer_that_differs_is_named_and_the_last_that_agrees(trace, name):
    found = compare("bert", ("pytorch", "jax"), trace(VALUES), trace(changed(name)))
    assert found.first == name
    assert found.first_error == pytest.approx(1e-3, rel=0.3)
    before = NAMES[: NAMES.index(name)]
    assert found.last_good == (before[-1] if before else None)
    assert name in str(found)
    assert found.compared == len(NAMES)


def test_small_differences_of_double_precision_are_none(trace):
    found = compare("bert", ("pytorch", "jax"), trace(VALUES), trace(changed("head", 1e-12)))
    assert found.first is None
    assert "agree in float64" in str(found)


def test_a_layer_of_another_meaning_is_no_drift_while_the_outputs_agree(trace):
    other = {**VALUES, "layer.0.norm": VALUES["layer.0.norm"] * 2}
    found = compare("bert", ("pytorch", "jax"), trace(VALUES), trace(other))
    assert found.first is None
    assert found.output_error == 0


def test_layers_that_only_one_has_are_left_out(trace):
    ours = {f"mine.{name}" if name == "layer.0.norm" else name: v for name, v in VALUES.items()}
    found = compare("bert", ("pytorch", "jax"), trace(VALUES), trace(ours))
    assert found.compared == len(NAMES) - 1


def test_a_fault_that_no_layer_shows_is_reported_as_such(trace):
    ours = trace(VALUES)
    np.save(ours.outputs[0], VALUES["head"] + 1)
    found = compare("bert", ("pytorch", "jax"), trace(VALUES), ours)
    assert found.first is None
    assert "all comparable layers (6) agree" in str(found)


def test_another_number_of_outputs_can_not_be_compared_and_the_layer_is_found(trace):
    ours = trace(changed("layer.1.dense"))
    found = compare(
        "bert",
        ("pytorch", "jax"),
        trace(VALUES),
        Trace(layers=ours.layers, outputs=[*ours.outputs, *ours.outputs]),
    )
    assert found.output_error is None
    assert found.first == "layer.1.dense"


def test_not_a_number_is_infinitely_far_off(trace):
    broken = changed("layer.1.norm")
    broken["layer.1.norm"] = np.full((2, 3, 4), np.nan)
    found = compare("bert", ("pytorch", "jax"), trace(VALUES), trace(broken))
    assert (found.first, found.first_error) == ("layer.1.norm", float("inf"))


def test_pictures_may_have_their_channels_last():
    picture = _rng.normal(size=(2, 3, 8, 8))
    assert difference(picture, picture.transpose(0, 2, 3, 1)) == 0
    assert difference(picture.transpose(0, 2, 3, 1), picture) == 0
    # The same shape in both orders: the better one counts.
    square = _rng.normal(size=(2, 4, 4, 4))
    assert difference(square, square.transpose(0, 2, 3, 1)) == 0


def test_rows_may_be_flattened_and_other_shapes_are_not_compared():
    rows = _rng.normal(size=(2, 3, 4))
    assert difference(rows, rows.reshape(6, 4)) == 0
    assert difference(rows, rows[:, :2]) is None


def test_infinities_and_nan_that_are_meant_do_not_differ():
    masked = np.array([1.0, -np.inf, np.nan, 2.0])
    assert difference(masked, masked.copy()) == 0
    assert difference(masked, np.array([1.0, np.inf, np.nan, 2.0])) == float("inf")
    assert difference(masked, np.array([1.5, -np.inf, np.nan, 2.0])) == pytest.approx(
        0.5 / 2.5**0.5
    )
    assert difference(np.full(2, np.nan), np.full(2, np.nan)) == 0


def test_complex_numbers_are_compared():
    waves = _rng.normal(size=(4, 4)) + 1j * _rng.normal(size=(4, 4))
    assert difference(waves, waves.copy()) == 0
    assert difference(waves, waves.conj()) > 0.1


def test_constants_of_zero_are_compared_too():
    zeros = np.zeros((2, 2))
    assert difference(zeros, zeros) == 0
    assert difference(zeros, zeros + 1e-30) == float("inf")
