"""JAX and XLA on a GPU: no TF32 in the program, and the truth on the CPU."""

import contextlib
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from comparative_benchmark.backends.api import BackendContext  # noqa: E402
from comparative_benchmark.jax_xla import backend as jax_backend  # noqa: E402
from comparative_benchmark.jax_xla.backend import JaxXla  # noqa: E402
from comparative_benchmark.xla_hlo import exported_program  # noqa: E402
from comparative_benchmark.xla_hlo.export import JaxExporter  # noqa: E402
from comparative_benchmark.xla_hlo.exported_program import InputType  # noqa: E402
from openxla.benchmark.devices import HOST_CPU, HOST_GPU  # noqa: E402

pytestmark = pytest.mark.frameworks


class Network:
    """A product and a convolution; records the setting of its trace."""

    def __init__(self, dtype):
        self.params = {"w": np.ones((4, 4), dtype)}
        self.seen = []

    def apply(self, params, x):
        self.seen.append(jax.config.jax_default_matmul_precision)
        y = x @ params["w"]
        kernel = params["w"][None, None]
        return jax.lax.conv_general_dilated(y[None, None], kernel, (1, 1), "SAME")


@pytest.fixture
def loaded(monkeypatch, tmp_path):
    """Makes a backend that takes the CPU for its device."""
    monkeypatch.setattr(jax_backend, "_device", lambda _: jax.devices("cpu")[0])
    made = []

    def make(model, value, device=HOST_GPU):
        backend = JaxXla(
            BackendContext(
                compiler="xla",
                options=(),
                device=device,
                threads=1,
                work_dir=tmp_path,
                phase=lambda _: contextlib.nullcontext(),
            )
        )
        made.append(backend)
        backend.load(model, [value])
        backend.compile()
        return backend

    yield make
    for backend in made:
        backend.release()


@pytest.mark.parametrize(
    ("dtype", "device", "setting", "noted"),
    [
        (np.float32, HOST_GPU, "highest", False),
        (ml_dtypes.bfloat16, HOST_GPU, None, None),
        (np.float16, HOST_GPU, None, None),
        (np.float32, HOST_CPU, None, None),
    ],
)
def test_models_of_float32_are_compiled_without_tf32_on_a_gpu(
    loaded, dtype, device, setting, noted
):
    model = Network(dtype)
    value = np.ones((4, 4), dtype)
    backend = loaded(model, value, device)
    assert backend.facts().notes["tf32"] is noted
    backend.run_with([np.ones((2, 4), dtype)])
    assert model.seen == [setting, setting]
    assert jax.config.jax_default_matmul_precision is None


def test_a_model_of_two_types_is_compiled_as_it_is_and_may_use_tf32(loaded):
    model = Network(np.float32)
    model.params["half"] = np.ones(1, np.float16)
    assert loaded(model, np.ones((4, 4), np.float32)).facts().notes["tf32"] is True
    assert model.seen == [None]


@pytest.mark.parametrize("form", ["stablehlo", "hlo-text"])
@pytest.mark.parametrize(
    ("dtype", "platform", "exact"),
    [(np.float32, "cuda", True), (np.float32, "cpu", False), (np.float16, "cuda", None)],
)
def test_an_exported_program_says_that_it_wants_no_tf32(form, dtype, platform, exact):
    exporter = JaxExporter(
        Network(dtype), [InputType(shape=(4, 4), dtype=np.dtype(dtype).name)], platform
    )
    exporter.trace()
    exporter.lower(form)
    text = exporter.module().text()
    assert exported_program.is_exact(text) is exact
    assert text.count("operand_precision={highest,highest}") == (2 if exact else 0)


def test_one_product_of_float32_that_asks_for_less_is_enough():
    def apply(x):
        exact = jnp.dot(x, x, precision="highest")
        half = jnp.dot(x.astype(jnp.bfloat16), x.astype(jnp.bfloat16))
        return exact, half, jnp.dot(x, x, precision="high")

    exporter = JaxExporter(Closed(apply), [InputType(shape=(4, 4), dtype="float32")], "cpu")
    exporter.trace()
    exporter.lower("hlo-text")
    lines = exporter.module().text().splitlines()
    assert exported_program.is_exact("\n".join(lines)) is False
    [last] = [line for line in lines if "operand_precision={high,high}" in line]
    assert exported_program.is_exact("\n".join(line for line in lines if line != last)) is True


class Closed:
    def __init__(self, forward):
        self.forward = forward


TRUTH = """
import jax, numpy as np
from comparative_benchmark.jax_xla import reference

cpu, other = jax.devices("cpu")
jax.config.update("jax_default_device", other)
found = []

class Model:
    params = {"w": jax.numpy.ones((3, 3))}
    assert params["w"].device == other
    def apply(self, params, x):
        return x @ params["w"] + jax.numpy.arange(3)

as_tuple = reference.as_tuple
reference.as_tuple = lambda value: found.append(value.device) or as_tuple(value)
truth, same = reference.compute(Model(), [np.ones((3, 3), np.float32)])
assert found == [cpu, cpu], found
assert truth[0].dtype == np.float64 and same[0].dtype == np.float32
assert truth[0].tolist() == same[0].tolist() == [[3.0, 4.0, 5.0]] * 3
"""


def test_truth_and_reference_are_computed_on_the_cpu_wherever_the_weights_are():
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-c", TRUTH],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
