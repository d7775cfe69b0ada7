"""IREE on a missing GPU: the target, the declarations of its PTX, and programs of others."""

import json
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.iree import conventions

PTX = b"vmfb\0//\n.version 7.6\n.target sm_80\n.address_size 64\n\tfma.rn.f32 \t%r1, %r2, %r3;\n\0"


@pytest.mark.parametrize(
    ("capability", "target"),
    [
        ((6, 1), "sm_61"),  # GTX 1080
        ((7, 5), "sm_75"),  # T4
        ((8, 0), "sm_80"),  # A100
        ((8, 6), "sm_86"),  # A10
        ((8, 9), "sm_89"),  # L4
        ((9, 0), "sm_89"),  # H100: the compiler refuses sm_90
        ((10, 0), "sm_89"),  # B200
        ((12, 0), "sm_120"),
        ((5, 2), "sm_80"),
        (None, "sm_80"),
    ],
)
def test_the_newest_target_that_the_gpu_runs_is_compiled_for(capability, target):
    assert conventions.cuda_target_for(capability) == target


@pytest.mark.parametrize(
    ("dtype", "name"),
    [(ml_dtypes.bfloat16, "bf16"), (np.bool_, "i1"), (np.uint8, "i8"), (np.float64, "f64")],
)
def test_arrays_are_described_in_the_notation_of_iree(dtype, name):
    assert conventions.type_of(np.ones((1, 8), dtype)) == f"1x8x{name}"


@pytest.mark.parametrize("dtype", [np.complex64, ml_dtypes.float8_e4m3fn])
def test_types_that_iree_does_not_read_are_unsupported_by_name(dtype):
    with pytest.raises(UnsupportedError, match=f"type {np.dtype(dtype).name} here: choose another"):
        conventions.type_of(np.ones(2, dtype))


class Driver:
    """CUDA's driver, with the functions that are used."""

    def __init__(self, capability, *, fails=None):
        self._values, self._fails = dict(zip((75, 76), capability, strict=True)), fails

    def _answer(self, name):
        return 100 if name == self._fails else 0

    def cuInit(self, flags):  # noqa: N802  # the driver's names
        return self._answer("cuInit")

    def cuDeviceGet(self, device, ordinal):  # noqa: N802
        device._obj.value = ordinal
        return self._answer("cuDeviceGet")

    def cuDeviceGetAttribute(self, value, attribute, device):  # noqa: N802
        value._obj.value = self._values[attribute]
        return self._answer("cuDeviceGetAttribute")


def test_the_driver_is_asked_for_the_compute_capability():
    assert conventions.compute_capability(lambda name: Driver((9, 0))) == (9, 0)


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGet", "cuDeviceGetAttribute"])
def test_a_gpu_that_does_not_answer_has_no_compute_capability(call):
    assert conventions.compute_capability(lambda name: Driver((9, 0), fails=call)) is None


def test_without_a_driver_there_is_no_compute_capability():
    def load(name):
        assert name == "libcuda.so.1"
        raise OSError(name)

    assert conventions.compute_capability(load) is None


def test_ptx_tells_its_target_and_tf32():
    found = conventions.ptx_of(PTX)
    assert (found.target, found.uses_tf32) == ("sm_80", False)
    product = b"\tmma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1}, {%r1};\n"
    assert conventions.ptx_of(PTX + product).uses_tf32 is True
    # A kernel may be called after anything.
    assert conventions.ptx_of(PTX + b".visible .entry main_dispatch_0_tf32(").uses_tf32 is False
    assert conventions.ptx_of(PTX.replace(b"sm_80", b"sm_120")).capability == (12, 0)
    assert conventions.ptx_of(b"vmfb\0 machine code") is None


def test_ptx_runs_on_gpus_that_are_as_new():
    found = conventions.ptx_of(PTX)
    assert [found.runs_on(item) for item in ((7, 5), (8, 0), (9, 0), (12, 0), None)] == [
        *(False, True, True, True, True)
    ]


RUN = """
import json, sys
from contextlib import contextmanager
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import iree_doubles
iree_doubles.install()
work, options = Path(sys.argv[2]), json.loads(sys.argv[3])
iree_doubles.STATE |= options["state"]

import numpy as np
from comparative_benchmark.backends.api import BackendContext, ModelDefinition
from comparative_benchmark.iree import conventions
from comparative_benchmark.iree.backend import Iree
from openxla.benchmark import devices

here = options["capability"]
conventions.compute_capability = lambda: here and tuple(here)
phases, answer = [], {}

@contextmanager
def phase(name):
    phases.append(name)
    yield

exported = {"vmfb_cuda": (work / "model_cuda.vmfb",), "irpa": (work / "parameters.irpa",)}
try:
    backend = Iree(BackendContext(
        compiler="cuda", options=(), device=devices.HOST_GPU, threads=1, work_dir=work,
        phase=phase, exported=exported,
    ))
    backend.load(ModelDefinition(module_path="nowhere", parameters={}), [np.arange(3.0)])
    backend.compile()
    outputs = backend.dispatch()
    backend.synchronize(outputs)
    answer["outputs"] = [value.tolist() for value in backend.fetch(outputs)]
    facts = backend.facts()
    for name in ("device_name", "device_memory_peak_bytes", "not_measurable", "weights", "notes"):
        answer[name] = getattr(facts, name)
except Exception as error:
    answer["error"] = [type(error).__name__, str(error)]
print(json.dumps({**answer, "phases": phases}))
"""


@pytest.fixture
def run(run_python, tmp_path):
    """Runs a published program on a GPU as described; returns the outcome."""
    (tmp_path / "parameters.irpa").write_bytes(b"weights")

    def call(*, program=PTX, capability=(9, 0), **state):
        (tmp_path / "model_cuda.vmfb").write_bytes(program)
        options = json.dumps({"state": state, "capability": capability})
        done = run_python(RUN, str(Path(__file__).parents[1]), str(tmp_path), options)
        assert done.returncode == 0, done.stderr
        return SimpleNamespace(**json.loads(done.stdout.splitlines()[-1]))

    return call


def test_a_published_program_runs_with_neither_compiler_nor_framework(run):
    found = run()
    assert found.outputs == [[1.0, 2.0, 3.0]]
    assert found.phases == ["load", "load", "h2d"]
    # The driver's compilation cannot be separated from loading; no one else compiles.
    assert found.not_measurable == ["compile"]
    assert "in the `load` phase" in found.notes["compile"]
    assert found.notes["starts_from"] == ["irpa", "vmfb_cuda"]
    assert "compiler_flags" not in found.notes


def test_the_gpu_and_its_memory_are_facts(run):
    found = run()
    assert found.device_name == "NVIDIA Double"
    assert found.device_memory_peak_bytes == 123_456
    assert (found.notes["cuda_target"], found.notes["tf32"]) == ("sm_80", False)


def test_a_runtime_that_does_not_count_has_no_peak(run):
    assert run(statistics=None).device_memory_peak_bytes is None


def test_a_program_for_newer_gpus_is_unsupported(run):
    kind, reason = run(capability=(7, 5)).error
    assert kind == "UnsupportedError"
    assert "compiled for sm_80, but this GPU has compute capability 7.5" in reason


@pytest.mark.parametrize(
    "said",
    [
        "Error creating driver: c/runtime/x.c:66: UNAVAILABLE; CUDA driver library not available",
        "c/runtime/x.c:9: FAILED_PRECONDITION; CUDA error 'CUDA_ERROR_NO_DEVICE' (100)",
    ],
)
def test_no_gpu_is_unsupported(run, said):
    found = run(refusal=said, capability=None)
    kind, reason = found.error
    assert kind == "UnsupportedError"
    assert f"IREE finds no cuda device ({said})" in reason
    assert "nvidia-smi" in reason
    assert found.phases == ["load"]


def test_a_driver_by_another_name_is_reported_with_what_to_do(run):
    _, reason = run(refusal="UNAVAILABLE; CUDA driver library 'libcuda.so' not available").error
    assert "this machine has only libcuda.so.1" in reason
    assert "LD_LIBRARY_PATH" in reason


@pytest.mark.parametrize("when", ["refusal", "failure"])
@pytest.mark.parametrize(
    "said",
    [
        "RESOURCE_EXHAUSTED; CUDA error 'CUDA_ERROR_OUT_OF_MEMORY' (2): out of memory",
        "ABORTED; CUDA error 'CUDA_ERROR_ILLEGAL_ADDRESS' (700)",
        "NOT_READY; CUDA error 'CUDA_ERROR_NOT_FOUND' (500)",
    ],
)
def test_a_gpu_that_fails_is_no_missing_gpu(run, when, said):
    assert run(**{when: said}).error == ["RuntimeError", said]
