"""IREE gets the captures of a TensorFlow function, with each weight in its place."""

import numpy as np
import pytest
from agreement_support import need
from framework_process import run_script

pytestmark = pytest.mark.frameworks

# Captures alternate between tensors and variables of one shape and type, so that only the
# numbers distinguishes them. TensorFlow would make smaller tensors constants of the graph.
SCRIPT = """
import contextlib, sys
from pathlib import Path
import numpy as np
import tensorflow as tf
from comparative_benchmark.backends.api import BackendContext
from comparative_benchmark.backends.frameworks import tensorflow_models
from comparative_benchmark.iree.backend import Iree
from openxla.benchmark.devices import HOST_CPU

class Model(tf.Module):
    def __init__(self, held):
        self.tables = [tf.constant(value) for value in held[::2]]
        self.scales = [tf.Variable(value) for value in held[1::2]]

    def forward(self, x):
        for table, scale in zip(self.tables, self.scales):
            x = (x + table) * scale
        return x

@contextlib.contextmanager
def phase(name):
    yield

target = Path(sys.argv[1])
held, x = np.load(target / "held.npy"), np.load(target / "x.npy")
model = Model(held)
concrete = tf.function(model.forward).get_concrete_function(tf.TensorSpec(x.shape, tf.float32))
kinds = [item.dtype == tf.resource for item in concrete.captured_inputs]
assert kinds == [False, True] * (len(held) // 2), kinds
captured = list(tensorflow_models.captured(concrete).values())
np.save(target / "captured.npy", np.stack(captured))
context = BackendContext(
    compiler="llvm-cpu", options=(), device=HOST_CPU, threads=1, work_dir=target, phase=phase
)
backend = Iree(context)
backend.load(model, [x])
backend.compile()
(output,) = backend.fetch(backend.dispatch())
np.save(target / "output.npy", output)
"""


def test_weights_that_tensorflow_captures_in_turns_are_bound_in_their_order(tmp_path, environment):
    need("tensorflow")
    need("iree")
    rng = np.random.default_rng(0)
    held = rng.normal(size=(6, 256)).astype(np.float32)
    x = rng.normal(size=256).astype(np.float32)
    np.save(tmp_path / "held.npy", held)
    np.save(tmp_path / "x.npy", x)
    run_script(SCRIPT, [str(tmp_path)], environment, framework="tf")
    assert np.array_equal(np.load(tmp_path / "captured.npy"), held)
    due = x.astype(np.float64)
    for table, scale in zip(held[::2], held[1::2], strict=True):
        due = (due + table) * scale
    output = np.load(tmp_path / "output.npy")
    np.testing.assert_allclose(output, due, rtol=1e-5, atol=1e-5)
