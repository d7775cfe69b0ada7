"""Programs that are compiled in part: Dynamo's spans, JAX's callbacks, TensorFlow's Python."""

import contextlib
import json

import numpy as np
import pytest
from agreement_support import need
from framework_process import run_script

from comparative_benchmark.backends.api import BackendContext, UnsupportedError
from openxla.benchmark.devices import HOST_CPU

pytestmark = pytest.mark.frameworks

ITERATION, MODEL, PROGRAM = "iteration", "compiled model", "compiled program"
GUARDS = "TorchDynamo Cache Lookup"


def _context(tmp_path):
    return BackendContext(
        compiler="xla",
        options=(),
        device=HOST_CPU,
        threads=1,
        work_dir=tmp_path,
        phase=lambda _: contextlib.nullcontext(),
    )


@pytest.mark.parametrize(
    ("spans", "share"),
    [
        # A program takes 900 of 1000 us, and the profiler may take 50 for each frame and its model.
        ([(ITERATION, 0, 1000), (GUARDS, 20, 30), (PROGRAM, 50, 950)], 1.0),
        ([(ITERATION, 0, 10_000), (GUARDS, 0, 100), (PROGRAM, 100, 5_000)], 0.51),
        # Operators count even if they are shorter than what a frame may take; those in programs do
        # not, and neither do operators in operators.
        (
            [
                *((ITERATION, 0, 200), (GUARDS, 10, 20), (PROGRAM, 60, 160)),
                *(("aten::addmm", 80, 120), ("aten::tanh", 165, 185), ("aten::copy_", 170, 180)),
            ],
            0.9,
        ),
        # The best iteration counts.
        (
            [(ITERATION, 0, 9000), (PROGRAM, 0, 1), (ITERATION, 9000, 9100), (PROGRAM, 9000, 9100)],
            1,
        ),
        # A training step: its optimizer is outside of the compiled model, and so is its backward.
        (
            [
                *((ITERATION, 0, 90_000), (MODEL, 0, 10_000), (GUARDS, 0, 50)),
                *((PROGRAM, 50, 7_600), ("aten::mm", 8_000, 10_000), (PROGRAM, 20_000, 50_000)),
                ("aten::add_", 60_000, 80_000),
            ],
            0.77,
        ),
    ],
)
def test_share_of_compiled_code(spans, share):
    pytest.importorskip("torch")
    from comparative_benchmark.pt_inductor.dynamo import compiled_shares

    found = compiled_shares(spans)
    assert found.pop("compiled_share") == pytest.approx(share)
    has_model = MODEL in (name for name, *_ in spans)
    assert found == ({"share_of_iteration": pytest.approx(1 / 9)} if has_model else {})


def test_operators_are_eager_even_if_no_python_is_left():
    pytest.importorskip("torch")
    from comparative_benchmark.pt_inductor.dynamo import compiled_shares

    iteration = [(ITERATION, 0, 1000), (PROGRAM, 0, 500)]
    found = compiled_shares(iteration, has_python=False)
    assert found["compiled_share"] == 1
    found = compiled_shares([*iteration, ("aten::mm", 600, 700)], has_python=False)
    assert found["compiled_share"] == pytest.approx(0.9)


def _jax_backend(tmp_path, function):
    from comparative_benchmark.jax_xla.backend import JaxXla

    class Model:
        def forward(self, x):
            return function(x)

    backend = JaxXla(_context(tmp_path))
    try:
        backend.load(Model(), [np.full((256, 256), 0.01, np.float32)])
        backend.compile()
        return backend.compiled_shares()
    finally:
        backend.release()


def test_jax_programs_that_are_mostly_python_are_unsupported(tmp_path):
    jax = pytest.importorskip("jax")
    import time

    def in_python(x):
        time.sleep(0.02)
        return np.asarray(x)

    def host(x):
        return jax.pure_callback(in_python, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def looped(x):
        return jax.lax.fori_loop(0, 2, lambda _, y: host(y) @ y, x)

    for function in (host, looped, lambda x: jax.lax.cond(x[0, 0] > 0, host, lambda y: y, x)):
        with pytest.raises(UnsupportedError, match=r"\(pure_callback\) take \d+% of its time"):
            _jax_backend(tmp_path, function)


def test_a_short_callback_in_a_long_jax_program_is_accepted(tmp_path):
    jax = pytest.importorskip("jax")
    seen = []

    def watched(x):
        jax.debug.callback(lambda value: seen.append(float(value)), x[0, 0])
        return jax.lax.fori_loop(0, 200, lambda _, y: jax.numpy.tanh(y @ x), x)

    shares = _jax_backend(tmp_path, watched)
    assert seen
    assert 0.95 < shares["compiled_share"] < 1
    assert _jax_backend(tmp_path, jax.numpy.tanh) == {}


TENSORFLOW = """
import contextlib, json, sys
from pathlib import Path
import numpy as np, tensorflow as tf
from comparative_benchmark.backends.api import BackendContext, UnsupportedError
from comparative_benchmark.tf_xla.backend import TfXla
from openxla.benchmark.devices import HOST_CPU

class Model:
    def __init__(self, function):
        self.forward = function

def outcome(compiler, function):
    made = TfXla(BackendContext(
        compiler=compiler, options=(), device=HOST_CPU, threads=1, work_dir=Path(),
        phase=lambda _: contextlib.nullcontext()))
    made.load(Model(function), [np.ones((2, 2), np.float32)])
    try:
        made.compile()
        return made.fetch(made.dispatch())[0].tolist()
    except UnsupportedError as error:
        return str(error)

def in_python(x):
    return tf.py_function(lambda value: value * 2, [x], tf.float32)

def nested(x):
    return tf.function(lambda y: tf.numpy_function(lambda v: v * 2, [y], tf.float32))(x)

found = {
    f"{compiler} {function.__name__}": outcome(compiler, function)
    for compiler in ("xla", "graph", "eager") for function in (tf.square, in_python, nested)
}
tf.config.run_functions_eagerly(True)
try:
    found["eagerly"] = outcome("xla", tf.square)
finally:
    tf.config.run_functions_eagerly(False)
Path(sys.argv[1]).write_text(json.dumps(found))
"""


def test_tensorflow_programs_that_call_python_are_not_measured_as_compiled(tmp_path, environment):
    need("tensorflow")
    output = tmp_path / "found.json"
    # In a new process: TensorFlow takes the number of threads only before its first use.
    run_script(TENSORFLOW, [str(output)], environment, framework="tensorflow-with-one-thread")
    found = json.loads(output.read_text())
    for compiler in ("xla", "graph", "eager"):
        assert found.pop(f"{compiler} square") == [[1.0, 1.0], [1.0, 1.0]]
    assert found.pop("eager in_python") == found.pop("eager nested") == [[2.0, 2.0], [2.0, 2.0]]
    assert "EagerPyFunc" in found.pop("graph in_python")
    assert "PyFunc" in found.pop("graph nested")
    assert "EagerPyFunc" in found.pop("xla in_python")
    assert "PyFunc" in found.pop("xla nested")
    assert "run_functions_eagerly" in found.pop("eagerly")
    assert not found
