"""Variables of workers: devices of frameworks, and caches of drivers."""

from pathlib import Path

import pytest
from tests_support import shipped

from comparative_benchmark.backends.api import BACKENDS_GROUP, BackendInfo, get_backend
from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.results.record import Status
from openxla.benchmark.devices import HOST_CPU, HOST_GPU

ON_GPU = ("pt_inductor", "jax_xla", "tf_xla", "xla_hlo", "onnxruntime", "iree")

# Each backend's compile caches, and the driver's. JAX puts XLA's autotuning results below its
# own. IREE, LiteRT and ONNX Runtime are given none.
CACHES = {
    "pt_inductor": {
        "TORCHINDUCTOR_CACHE_DIR": "/cache/inductor",
        "TRITON_CACHE_DIR": "/cache/triton",
    },
    "jax_xla": {"JAX_COMPILATION_CACHE_DIR": "/cache/jax"},
    "tf_xla": {"TF_XLA_FLAGS": "--tf_xla_persistent_cache_directory=/cache/tf_xla"},
    "openvino": {"CBS_OPENVINO_CACHE_DIR": "/cache/openvino"},
    "xla_hlo": {"CBS_XLA_HLO_CACHE_DIR": "/cache/xla_hlo"},
    "iree": {},
    "tflite": {},
    "onnxruntime": {},
}


def environment(settings, name):
    return settings.environment(get_backend(name), Path("/work"), Path("/cache"))


@pytest.mark.parametrize("name", ON_GPU)
def test_the_drivers_cache_is_empty_in_a_cold_process(name):
    assert environment(RunSettings(device=HOST_GPU), name)["CUDA_CACHE_PATH"] == "/cache/cuda"


def test_every_backends_caches_are_in_the_table():
    assert set(shipped(BACKENDS_GROUP)) == set(CACHES)


@pytest.mark.parametrize("name", CACHES)
def test_compile_caches_are_the_trials_own(name):
    variables = environment(RunSettings(device=HOST_CPU), name)
    found = {variable: value for variable, value in variables.items() if "/cache" in value}
    assert found == {"CUDA_CACHE_PATH": "/cache/cuda", **CACHES[name]}


def test_jax_has_the_cpu_next_to_a_gpu_and_asks_for_no_other_vendors_plug_in():
    assert environment(RunSettings(device=HOST_GPU), "jax_xla")["JAX_PLATFORMS"] == "cuda,cpu"
    assert environment(RunSettings(device=HOST_CPU), "jax_xla")["JAX_PLATFORMS"] == "cpu"


@pytest.mark.parametrize("name", ON_GPU)
def test_a_worker_for_the_cpu_sees_no_gpu(name):
    assert environment(RunSettings(device=HOST_CPU), name)["CUDA_VISIBLE_DEVICES"] == ""
    assert "CUDA_VISIBLE_DEVICES" not in environment(RunSettings(device=HOST_GPU), name)
    # The next worker may need the GPU, and it is this process.
    here = RunSettings(device=HOST_CPU, in_process=True)
    assert "CUDA_VISIBLE_DEVICES" not in environment(here, name)


def test_truth_is_computed_on_the_cpu(make_trial, monkeypatch):
    opened = []

    def open_session(self, backend: BackendInfo, *_, work_dir, cache_dir, **__):
        opened.append(self.environment(backend, work_dir, cache_dir))
        raise SessionEnded(Status.FAILED, "start", "seen enough")

    monkeypatch.setattr(RunSettings, "open_session", open_session)
    settings = RunSettings(device=HOST_GPU, use_locks=False)
    Preparation(settings, lambda _: None).run([make_trial()])
    [variables] = opened
    assert variables["JAX_PLATFORMS"] == "cpu"
    assert variables["CUDA_VISIBLE_DEVICES"] == ""


def test_in_this_process_truth_takes_the_settings_of_what_follows():
    settings = RunSettings(device=HOST_GPU, in_process=True)
    assert settings.for_truth() is settings
