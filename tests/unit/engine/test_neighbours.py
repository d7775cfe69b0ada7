"""Runs next to a model: for integers and single numbers, with the reason if they are missing."""

import contextlib

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


def test_a_model_without_a_float64_run_gets_plain_runs(tmp_path):
    judged_by = preparing.JudgedBy(
        compute=fails,
        reference=REFERENCE,
        model=Model(),
        generates=False,
        in_own_type=lambda model, inputs: [
            np.float32(0.7) * inputs[0],
            inputs[0] * 100 // 1 % 2 > 0,
        ],
    )
    judged_by.save(INPUTS, tmp_path)
    assert "a table of another length" in judged_by.model.without_float64
    assert judged_by.without_neighbours is None
    runs = np.load(tmp_path / "neighbours" / "output_1.npy")
    assert len(runs) == preparing.NEIGHBOUR_COUNT
    assert (runs != runs[0]).any()


def test_neighbours_do_not_change_what_is_known_of_the_truth(tmp_path):
    class Exported(Model):
        without_float64, truth_check = None, "two routes agree"

        def truth_and_reference(self, inputs):
            self.without_float64, self.truth_check = "a size is 3 instead of 4", "in doubt"
            return compute(self, inputs)

    model = Exported()
    truth = [np.zeros(4, np.int64)]
    preparing.save(
        tmp_path, reference=REFERENCE, compute=fails, model=model, inputs=INPUTS, truth=truth
    )
    assert (model.without_float64, model.truth_check) == (None, "two routes agree")


def test_a_model_may_move_its_own_weights(tmp_path):
    class Moved(Model):
        bias = 0

        @contextlib.contextmanager
        def changed_weights(self, random, spacings):
            self.bias = random.integers(100)
            yield

    preparing.save(
        tmp_path,
        reference=REFERENCE,
        compute=lambda model, inputs: ([np.full(3, model.bias)], []),
        model=Moved(),
        inputs=[np.zeros(2, np.uint8)],
        truth=[np.zeros(3, np.int64)],
    )
    assert len(set(np.load(tmp_path / "output_0.npy")[:, 0])) > 1


def test_many_floating_point_numbers_need_none(tmp_path):
    assert save(tmp_path, fails, [np.zeros((4, 10))]) is None
