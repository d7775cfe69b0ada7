"""TensorFlow on a GPU, with doubles for the GPU: TF32."""

import json

import pytest
from agreement_support import need
from framework_process import run_script

pytestmark = pytest.mark.frameworks

DOUBLES = """
import contextlib, json, sys
from pathlib import Path
from unittest import mock
import ml_dtypes, numpy as np, tensorflow as tf
from comparative_benchmark.backends.api import BackendContext
from comparative_benchmark.tf_xla import backend
from openxla.benchmark.devices import HOST_CPU, HOST_GPU

class Model:
    def __init__(self, *types):
        self.weights = [tf.Variable(tf.ones((2, 2), type_)) for type_ in types]
        self.variables = self.weights
    def forward(self, x):
        return x @ self.weights[0]

def allowed():
    return tf.config.experimental.tensor_float_32_execution_enabled()

def run(device, value, *types):
    tf.config.experimental.enable_tensor_float_32_execution(True)
    made = backend.TfXla(BackendContext(
        compiler="eager", options=(), device=device, threads=1, work_dir=Path(),
        phase=lambda _: contextlib.nullcontext()))
    made.load(Model(*types), [np.ones((2, 2), value)])
    return [allowed(), made.facts().notes["tf32"]]

experimental = tf.config.experimental
with contextlib.ExitStack() as stack:
    stack.callback(experimental.enable_tensor_float_32_execution, True)
    for where, name, double in (
        (backend, "_configure", lambda _: None),
        (backend, "_GPU", "CPU:0"),
        (tf.config, "list_physical_devices", lambda *_: ["double"]),
        (experimental, "get_device_details", lambda _: {}),
        (experimental, "get_memory_info", lambda _: {"peak": 1}),
    ):
        stack.enter_context(mock.patch.object(where, name, double))
    found = {
        "float32": run(HOST_GPU, np.float32, tf.float32),
        "bfloat16": run(HOST_GPU, ml_dtypes.bfloat16, tf.bfloat16),
        "both": run(HOST_GPU, np.float32, tf.float32, tf.float16),
        "cpu": run(HOST_CPU, np.float32, tf.float32),
    }
Path(sys.argv[1]).write_text(json.dumps(found))
"""

EXPORT = """
import json, sys
from pathlib import Path
import numpy as np, tensorflow as tf
from comparative_benchmark.xla_hlo import exported_program
from comparative_benchmark.xla_hlo.exported_program import InputType
from comparative_benchmark.xla_hlo.export import TensorFlowExporter

class Model:
    def __init__(self, type_):
        self.weight = tf.Variable(tf.ones((4, 4), type_))
        self.kernel = tf.Variable(tf.ones((2, 2, 1, 1), type_))
    def forward(self, x):
        return x @ self.weight, tf.nn.conv2d(x[None, ..., None], self.kernel, 1, "SAME")

class ForTheCpu:
    # The bridge of this build knows no CUDA; the precision that it writes does not depend on it.
    def __init__(self, function):
        self.function = function
    def experimental_get_compiler_ir(self, *inputs):
        generate = self.function.experimental_get_compiler_ir(*inputs)
        return lambda stage, platform_name: generate(stage=stage, platform_name="CPU")

found = {}
try:
    for name, platform in (("float32", "cuda"), ("float32", "cpu"), ("float16", "cuda")):
        tf.config.experimental.enable_tensor_float_32_execution(True)
        inputs = [InputType(shape=(4, 4), dtype=name)]
        exporter = TensorFlowExporter(Model(name), inputs, platform)
        exporter.trace()
        exporter._function = ForTheCpu(exporter._function)
        exporter.lower("hlo-proto")
        text = exporter.module().text()
        exact = exported_program.is_exact(text)
        found[f"{name} {platform}"] = [exact, text.count("{highest,highest}")]
finally:
    tf.config.experimental.enable_tensor_float_32_execution(True)
Path(sys.argv[1]).write_text(json.dumps(found))
"""


@pytest.fixture(autouse=True)
def _tensorflow():
    need("tensorflow")


def _found(script, tmp_path, environment):
    target = tmp_path / "found.json"
    run_script(script, [str(target)], environment, framework="tf")
    return json.loads(target.read_text())


def test_models_of_float32_are_computed_without_tf32_on_a_gpu(tmp_path, environment):
    """Pairs of TensorFlow's setting and the recorded one."""
    assert _found(DOUBLES, tmp_path, environment) == {
        "float32": [False, False],
        "bfloat16": [True, None],
        "both": [True, True],
        "cpu": [True, None],
    }


def test_an_exported_program_says_that_it_wants_no_tf32(tmp_path, environment):
    pytest.importorskip("jaxlib")
    assert _found(EXPORT, tmp_path, environment) == {
        "float32 cuda": [True, 2],
        "float32 cpu": [False, 0],
        "float16 cuda": [None, 0],
    }
