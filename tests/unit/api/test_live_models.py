"""Live models of the Python API, without a framework."""

import sys
import types

import numpy as np
import pytest

import comparative_benchmark as cb
from comparative_benchmark.api import live_models


class Net:
    """A stand-in of `torch.nn.Module`."""


def square(x):
    return x * x


@pytest.fixture(autouse=True)
def no_frameworks(monkeypatch):
    for name in ("torch", "torch.nn", "jax", "jax.export", "keras"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def imported(monkeypatch, name, **contents):
    """Makes a module with these contents an imported one."""
    module = types.ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (3, "or a Keras model, got int"),
        (Net(), "or a Keras model, got Net"),
        (square, "or a Keras model, got function; import jax before you pass a function"),
    ],
)
def test_an_object_of_an_unknown_type_is_refused(model, message, tmp_path):
    before = set(sys.modules)
    with pytest.raises(cb.UsageError) as caught:
        cb.run(model, np.ones(3), output=tmp_path / "r.json")
    assert str(caught.value).endswith(message)
    assert "\n" not in str(caught.value)
    assert not {"torch", "jax", "tensorflow", "keras"} & (set(sys.modules) - before)
    assert not list(tmp_path.iterdir())


def test_a_model_without_inputs_is_refused(monkeypatch, tmp_path):
    imported(monkeypatch, "torch.nn", Module=Net)
    with pytest.raises(cb.UsageError, match=r"given for Net; call cb\.run\(model, inputs\)"):
        cb.run(Net(), output=tmp_path / "r.json")


def test_a_failed_export_quotes_its_first_line_and_the_way_out(monkeypatch, tmp_path):
    def flatten(_):
        raise ValueError("\nAbstract tracer value encountered\nThe problem arose with `bool`")

    imported(monkeypatch, "jax", tree=types.SimpleNamespace(flatten=flatten))
    imported(monkeypatch, "jax.export")
    with pytest.raises(cb.UsageError) as caught:
        live_models.export(square, np.ones(3), tmp_path)
    assert str(caught.value) == (
        "jax.export cannot export square: ValueError: Abstract tracer value encountered; "
        "instead, pass the Python file that creates the model (PATH.py:CALLABLE)"
    )


def test_arrays_go_with_live_models_alone(tmp_path):
    with pytest.raises(cb.UsageError, match="arrays are supported only for live models"):
        cb.run("models/BERT_TINY_FP32_.+", np.ones(3), output=tmp_path / "r.json")
