"""Runs next to a model: for integers and single numbers, with the reason if they are missing."""

import numpy as np

from comparative_benchmark.engine.worker import preparing

REFERENCE = f"{__name__}:compute"
INPUTS = [np.linspace(0, 1, 40, dtype=np.float32).reshape(4, 10)]


class Model:
    pass


def compute(model, inputs):
    outputs = [np.asarray(inputs[0], np.float64).argmax(-1)]
    return outputs, outputs


def fails(model, inputs):
    raise ValueError("a table of another length")


def save(tmp_path, function, truth):
    return preparing.save(
        tmp_path / "neighbours",
        reference=REFERENCE,
        compute=function,
        model=Model(),
        inputs=INPUTS,
        truth=truth,
    )


def test_integers_get_runs_on_slightly_different_inputs(tmp_path):
    assert save(tmp_path, compute, [np.zeros(4, np.int64)]) is None
    stacked = np.load(tmp_path / "neighbours" / "output_0.npy")
    assert stacked.shape == (preparing.NEIGHBOUR_COUNT, 4)


def test_a_model_that_cannot_be_changed_gives_the_reason(tmp_path):
    reason = save(tmp_path, fails, [np.zeros(4, np.int64)])
    assert reason == "ValueError: a table of another length"
    assert not (tmp_path / "neighbours").exists()


def test_outputs_of_another_shape_are_no_neighbours(tmp_path):
    assert save(tmp_path, compute, [np.zeros(5, np.int64)]) == "the output shapes change"


def test_many_floating_point_numbers_need_none(tmp_path):
    assert save(tmp_path, fails, [np.zeros((4, 10))]) is None
