"""PyTorch on a GPU, with doubles for the GPU: events, TF32, CUDA graphs."""

import contextlib
import warnings
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.utils import counters  # noqa: E402
from torch._inductor.codecache import PyCodeCache  # noqa: E402

from comparative_benchmark.backends.api import BackendContext, BackendFacts, UnsupportedError  # noqa: E402
from comparative_benchmark.backends.frameworks.torch_modules import to_numpy  # noqa: E402
from comparative_benchmark.engine.worker.sampling import measure_block, with_device_times  # noqa: E402
from openxla.benchmark.devices import HOST_CPU, HOST_GPU  # noqa: E402

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Inductor uses what PyTorch has deprecated
    from comparative_benchmark.pt_inductor import backend as pt_backend
    from comparative_benchmark.pt_inductor import cuda, exports
    from comparative_benchmark.pt_inductor.backend import PtInductor

pytestmark = pytest.mark.frameworks


@pytest.fixture(autouse=True)
def settings():
    """Leaves PyTorch's settings as it found them: TF32 in cuDNN and not in cuBLAS."""
    yield
    cuda.forbid_tf32()
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.fp32_precision = "none"
    for part in (torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
        part.fp32_precision = "tf32"
    torch.set_grad_enabled(True)
    counters.clear()


def context(tmp_path, device=HOST_GPU, compiler="eager", options=()):
    return BackendContext(
        compiler=compiler,
        options=options,
        device=device,
        threads=1,
        work_dir=tmp_path,
        phase=lambda _: contextlib.nullcontext(),
    )


@pytest.fixture
def on_gpu(monkeypatch, tmp_path):
    """Makes a backend that treats the CPU as a GPU."""
    monkeypatch.setattr(pt_backend, "_device", lambda _: torch.device("cpu"))
    initialised = []

    def reset_peak_memory_stats(_):
        if not initialised:  # as PyTorch does before its first use of the device
            raise RuntimeError("Invalid device argument")

    monkeypatch.setattr(torch.cuda, "init", lambda: initialised.append(True))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset_peak_memory_stats)
    for name, value in (
        ("synchronize", None),
        ("max_memory_allocated", 5),
        ("get_device_name", "double"),
    ):
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)

    class OnGpu(PtInductor):
        def __setattr__(self, name, value):
            super().__setattr__(name, True if name == "_on_gpu" else value)

    return lambda **given: OnGpu(context(tmp_path, **given))


class Scale(torch.nn.Module):
    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 2.0, dtype=dtype))

    def forward(self, x):
        return x * self.weight


def test_tf32_is_forbidden_whatever_was_set_before():
    assert cuda.allows_tf32()  # in cuDNN, by default
    cuda.forbid_tf32()
    assert not cuda.allows_tf32()
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert cuda.allows_tf32()
    cuda.forbid_tf32()
    assert not cuda.allows_tf32()
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    cuda.forbid_tf32()
    assert not cuda.allows_tf32()
    torch.backends.cudnn.rnn.fp32_precision = "tf32"
    assert cuda.allows_tf32()


def test_whoever_reads_the_old_names_gets_an_answer():
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    cuda.forbid_tf32()
    # These raise if the new names contradict them.
    assert torch.backends.cuda.matmul.allow_tf32 is False
    assert torch.backends.cudnn.allow_tf32 is False
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_new_names_are_those_of_products_convolutions_and_recurrences():
    assert len(cuda._new_settings()) == 3


def test_a_torch_that_has_the_old_names_alone(monkeypatch):
    monkeypatch.setattr(cuda, "_new_settings", list)
    assert cuda.allows_tf32()
    cuda.forbid_tf32()
    assert not cuda.allows_tf32()
    assert torch.backends.cudnn.allow_tf32 is False


@pytest.mark.parametrize(("dtype", "noted"), [(torch.float32, False), (torch.bfloat16, None)])
def test_a_model_on_a_gpu_is_computed_without_tf32_and_the_facts_say_so(on_gpu, dtype, noted):
    backend = on_gpu()
    value = np.ones(3, np.float32 if dtype is torch.float32 else ml_dtypes.bfloat16)
    # A module may allow it when it is imported.
    torch.set_float32_matmul_precision("high")
    backend.load(Scale(dtype), [value])
    assert not cuda.allows_tf32()
    assert backend.facts().notes["tf32"] is noted
    torch.set_float32_matmul_precision("high")
    assert backend.facts().notes["tf32"] is (None if noted is None else True)


def test_nothing_is_set_and_nothing_noted_on_the_cpu(tmp_path):
    backend = PtInductor(context(tmp_path, HOST_CPU))
    backend.load(Scale(), [np.ones(3, np.float32)])
    assert cuda.allows_tf32()
    assert backend.facts().notes["tf32"] is None


class Event:
    """Counts events; each recorded event has a time one later than the previous one."""

    made = 0
    clock = 0

    def __init__(self, *, enable_timing):
        assert enable_timing
        type(self).made += 1
        self.time = None

    def record(self):
        type(self).clock += 1
        self.time = self.clock

    def elapsed_time(self, later):
        return float(later.time - self.time)


@pytest.fixture
def events(monkeypatch):
    monkeypatch.setattr(Event, "made", 0)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return Event


def test_events_are_made_before_the_device_is_timed(events):
    timer = cuda.CudaEvents()
    timer.reserve(3)
    assert events.made == 6
    for _ in range(2):
        timer.start()
        timer.stop()
    assert events.made == 6
    assert timer.elapsed_ms() == [1.0, 1.0]
    assert timer.elapsed_ms() == []
    timer.start()
    timer.stop()
    assert timer.elapsed_ms() == [1.0]


def test_a_timer_that_reserved_nothing_makes_events_as_it_goes(events):
    timer = cuda.CudaEvents()
    timer.start()
    timer.stop()
    assert timer.elapsed_ms() == [1.0]


def test_no_timed_iteration_pays_for_events(on_gpu, events):
    backend = on_gpu()
    backend.load(Scale(), [np.ones(3, np.float32)])
    block = measure_block(backend, 30)
    assert events.made == 0
    assert with_device_times(backend, block).device_ms == [1.0] * 20


def test_cuda_graphs_are_not_supported_without_a_gpu(tmp_path):
    with pytest.raises(
        UnsupportedError, match=r"CUDA graphs need an NVIDIA GPU, but the device is host-cpu"
    ):
        PtInductor(context(tmp_path, HOST_CPU, "inductor", ("cuda-graphs",)))


def test_inductor_is_told_of_cuda_graphs_and_records_them_while_it_compiles(on_gpu, monkeypatch):
    patches, calls = [], []

    def compile_fx(graph, inputs, inner_compile, config_patches):
        patches.append(config_patches)
        return graph.forward

    class Counting(Scale):
        @torch.compiler.disable
        def count(self):
            calls.append(1)

        def forward(self, x):
            self.count()
            return super().forward(x)

    monkeypatch.setattr(pt_backend, "compile_fx", compile_fx)
    backend = on_gpu(compiler="inductor", options=("cuda-graphs",))
    backend.load(Counting(), [np.ones(3, np.float32)])
    backend.compile()
    assert patches
    assert all(found == {"triton.cudagraphs": True} for found in patches)
    assert len(calls) == 2  # one warms up, the other one records
    assert backend.facts().notes["graphs_without_cuda_graph"] == 0
    torch._dynamo.reset()


def test_cuda_graphs_that_inductor_leaves_out_are_not_measured_as_such(on_gpu, monkeypatch):
    """Inductor itself decides: what it takes for a GPU's graph is one of the CPU."""
    backend = on_gpu(compiler="inductor", options=("cuda-graphs",))
    backend.load(Scale(), [np.ones(3, np.float32)])
    with pytest.raises(UnsupportedError, match="runs none of this model's graphs"):
        backend.compile()
    monkeypatch.setattr(cuda, "forget_graphs", lambda: None)
    backend.release()


def test_what_a_replay_would_write_over_is_copied(on_gpu):
    place = torch.zeros(3)
    backend = on_gpu(compiler="inductor", options=("cuda-graphs",))
    kept = backend.retain((place, place))
    place.fill_(7)
    assert [value.tolist() for value in kept] == [[0.0] * 3] * 2
    assert [value.tolist() for value in backend.fetch(backend.retain(place))] == [[7.0] * 3]
    other = on_gpu(compiler="inductor")
    assert other.retain(place) is place


def test_parts_of_a_generation_are_not_measured_as_cuda_graphs(on_gpu):
    with pytest.raises(UnsupportedError, match="each step needs its own graph"):
        on_gpu(compiler="inductor", options=("cuda-graphs",)).generation_parts()


def test_inductor_compiles_without_a_warning_after_tf32_was_forbidden():
    cuda.forbid_tf32()
    torch.set_grad_enabled(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = torch.compile(torch.nn.Linear(4, 4))
        assert compiled(torch.ones(1, 4)).shape == (1, 4)
    torch._dynamo.reset()


@pytest.mark.parametrize("device", [HOST_CPU, HOST_GPU])
def test_a_package_stays_unpacked_until_a_gpu_has_loaded_its_kernels(tmp_path, monkeypatch, device):
    unpacked, seen = tmp_path / "unpacked", []

    def load(_):
        unpacked.mkdir()
        seen.append(unpacked)
        return SimpleNamespace(loader=SimpleNamespace(run=lambda inputs: inputs))

    def package(_, package_path):
        Path(package_path).touch()

    monkeypatch.setattr(exports, "_require_compiler", lambda: None)
    monkeypatch.setattr(exports, "_check_outputs", lambda _: None)
    monkeypatch.setattr(exports, "_digest", lambda _: "")
    monkeypatch.setattr(exports, "_extracted", lambda: iter(seen))
    monkeypatch.setattr(exports.torch_export, "export", lambda *_: None)
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", package)
    monkeypatch.setattr(torch._inductor, "aoti_load_package", load)
    program = exports.AotProgram(Scale(), [torch.ones(3)], context(tmp_path, device))
    assert unpacked.exists() is (device is HOST_GPU)
    program.run(torch.ones(3))
    program.describe(BackendFacts())
    assert not unpacked.exists()


def test_the_code_of_a_model_does_not_include_that_of_earlier_ones(tmp_path):
    PyCodeCache.cache_clear()
    (tmp_path / "code.py").write_text("x = 1")
    for _ in range(2):  # a released model may be compiled again
        PyCodeCache.load_by_key_path("key", str(tmp_path / "code.py"))
        assert pt_backend._generated_code() == [b"x = 1"]
        PtInductor(context(tmp_path, HOST_CPU)).release()
        assert pt_backend._generated_code() == []


def test_conjugates_are_computed_before_an_output_is_read():
    value = torch.tensor([1 + 2j, 3 - 4j])
    np.testing.assert_array_equal(to_numpy(value.conj()), [1 - 2j, 3 + 4j])
    np.testing.assert_array_equal(to_numpy(value.conj().imag), [-2, 4])
