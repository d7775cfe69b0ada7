"""The ceilings of a GPU, from doubles of the libraries and of the driver."""

import argparse
import contextlib
import importlib.util
import json
import math
import os
import types

import numpy as np
import pytest

from comparative_benchmark.analysis.machine import gpu_state
from comparative_benchmark.analysis.machine.gpu_state import GpuClocks
from comparative_benchmark.analysis.roofline import _gpu_rates, ceilings
from comparative_benchmark.analysis.roofline._gpu_rates import (
    Jax,
    NoDeviceError,
    Product,
    Torch,
    UnmeasurableError,
    is_out_of_memory,
    time_calls,
)
from comparative_benchmark.analysis.roofline.ceilings import Answer, Budget
from comparative_benchmark.cli.commands import doctor as command
from comparative_benchmark.cli.options import maintenance as options
from comparative_benchmark.errors import UsageError

H100 = "NVIDIA H100 80GB HBM3"
TINY = (16, 32, 64, 128)


class OutOfMemoryError(RuntimeError):
    """Named as PyTorch's."""


class Clock:
    """A clock that moves when a device works."""

    def __init__(self, monkeypatch):
        self.now_s = 0.0
        monkeypatch.setattr(_gpu_rates.time, "perf_counter", lambda: self.now_s)


class Library:
    """A GPU on which a product takes its flops divided by a rate; the time passes in a wait.

    Attributes:
      rates: GFLOP/s by size.
      full_from: size from which products are out of memory.
    """

    version, device_name = "1", H100

    def __init__(self, clock, rates, *, free=2**40, full_from=math.inf, cache=0, noise=0.0):
        self.clock, self.rates, self.full_from = clock, rates, full_from
        self.free, self.cache, self.noise = free, cache, noise
        self.pending_s, self.sizes, self.released = 0.0, [], 0

    def free_bytes(self):
        return self.free

    def cache_bytes(self):
        return self.cache

    def product(self, data_type, size):
        if size >= self.full_from:
            raise OutOfMemoryError("CUDA error")
        self.sizes.append(size)
        left, right = (np.random.default_rng(size).normal(size=(size, size)) for _ in range(2))
        result = left @ right
        result *= 1 + self.noise * np.random.default_rng(1).normal(size=result.shape)

        def call():
            self.pending_s += 2 * size**3 / self.rates[size] / 1e9
            return result

        return Product(call, left, right)

    def copy(self, size_bytes):
        if size_bytes >= self.full_from:
            raise OutOfMemoryError("CUDA error")

        def call():
            self.pending_s += 2 * size_bytes / self.rates["copy"] / 1e9

        return call

    def wait(self, result):
        self.clock.now_s += self.pending_s
        self.pending_s = 0.0

    def to_host(self, matrix):
        return matrix

    def release(self):
        self.released += 1


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(gpu_state, "read_gpus", tuple)
    return Clock(monkeypatch)


def printed(capsys):
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_best_of_the_largest_sizes_counts(clock, capsys):
    library = Library(clock, {16: 900.0, 32: 10.0, 64: 50.0, 128: 40.0})
    _gpu_rates.measure_product(library, "bf16", TINY)
    assert library.sizes == [32, 64, 128]
    rates = printed(capsys)
    assert [(rate["size"], rate["gflops"]) for rate in rates] == [
        (32, pytest.approx(10.0)),
        (64, pytest.approx(50.0)),
    ]
    assert rates[-1]["device_name"] == H100


@pytest.mark.parametrize(
    ("data_type", "free_bytes", "expected"),
    [
        ("fp32", 2**40, [32, 64, 128, 16]),
        ("fp32", 2 * 3 * 4 * 64**2, [16, 32, 64]),
        ("bf16", 2 * 3 * 4 * 64**2, [16, 32, 64]),
        ("bf16", 2 * 3 * 2 * 128**2, [32, 64, 128, 16]),
        # Made from bf16.
        ("fp8", 2 * 3 * 2 * 128**2 - 1, [16, 32, 64]),
        ("fp32", 0, [16]),
    ],
)
def test_sizes_fit_into_half_of_the_memory(data_type, free_bytes, expected):
    assert _gpu_rates.sizes_to_try(TINY, data_type, free_bytes) == expected


def test_an_80_gb_gpu_is_tried_at_the_largest_sizes_and_a_small_slice_at_less():
    assert _gpu_rates.sizes_to_try(_gpu_rates.SIZES, "fp32", 79 * 2**30)[:3] == [4096, 8192, 16384]
    assert _gpu_rates.sizes_to_try(_gpu_rates.SIZES, "fp32", 5 * 2**30)[:3] == [2048, 4096, 8192]
    assert _gpu_rates.sizes_to_try(_gpu_rates.SIZES, "bf16", 40 * 2**20)[:3] == [512, 1024]


def test_memory_that_is_full_all_the_same_leaves_smaller_sizes(clock, capsys):
    library = Library(clock, {16: 5.0}, full_from=32)
    _gpu_rates.measure_product(library, "bf16", TINY)
    assert [rate["size"] for rate in printed(capsys)] == [16]
    assert library.released == 4
    library.full_from = 16
    with pytest.raises(UnmeasurableError, match="not enough memory: 1048576 MiB free"):
        _gpu_rates.measure_product(library, "bf16", TINY)


def test_another_failure_comes_after_what_was_measured(clock, capsys):
    library = Library(clock, {32: 5.0})  # it knows no rate of 64
    with pytest.raises(KeyError):
        _gpu_rates.measure_product(library, "bf16", TINY)
    assert [rate["size"] for rate in printed(capsys)] == [32]


def test_a_product_that_would_take_long_is_not_tried(clock, capsys):
    slow = 2 * 32**3 / 0.2 / 1e9  # 0.2 s at 32, 1.6 s at 64
    library = Library(clock, dict.fromkeys(TINY, slow))
    _gpu_rates.measure_product(library, "bf16", TINY)
    assert library.sizes == [32]


def test_no_size_is_begun_after_the_time(clock, capsys, monkeypatch):
    library = Library(clock, dict.fromkeys(TINY, 10.0))
    monkeypatch.setattr(_gpu_rates.time, "monotonic", lambda: 100.0)
    _gpu_rates.measure_product(library, "bf16", TINY, until=99.0)
    assert library.sizes == [32]


@pytest.mark.parametrize(
    ("data_type", "noise", "complaint"),
    [
        ("fp32", 1e-6, None),
        ("fp32", 3e-4, "TF32 is on"),
        ("tf32", 3e-4, None),
        ("tf32", 1e-6, "TF32 is off"),
        ("bf16", 1e-2, None),
    ],
)
def test_a_product_is_of_the_type_that_was_asked_for(clock, data_type, noise, complaint):
    library = Library(clock, dict.fromkeys(TINY, 10.0), noise=noise)
    if complaint is None:
        _gpu_rates.measure_product(library, data_type, TINY)
    else:
        with pytest.raises(UnmeasurableError, match=complaint):
            _gpu_rates.measure_product(library, data_type, TINY)


def test_a_copy_counts_what_is_read_and_what_is_written(clock, capsys):
    _gpu_rates.measure_copy(Library(clock, {"copy": 3000.0}), 2**30)
    (rate,) = printed(capsys)
    assert (rate["buffer_bytes"], rate["gb_per_s"]) == (2**30, pytest.approx(3000.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"free": 2**20}, 2**18),
        ({"full_from": 2**28}, 2**27),
        ({"cache": 2**27}, 2**30),
        ({"cache": 2**28 + 1}, None),  # four times the cache does not fit
        ({"cache": 2**20, "full_from": 2**22}, None),
        ({"free": 8}, None),
    ],
)
def test_a_copy_is_as_large_as_memory_allows_and_beyond_the_cache(clock, capsys, limits, expected):
    library = Library(clock, {"copy": 3000.0}, **{"free": 2**40} | limits)
    if expected is None:
        with pytest.raises(UnmeasurableError, match="would stay in the cache"):
            _gpu_rates.measure_copy(library, 2**30)
    else:
        _gpu_rates.measure_copy(library, 2**30)
        assert printed(capsys)[0]["buffer_bytes"] == expected


def test_a_reading_is_of_many_calls_and_disturbed_ones_do_not_count(monkeypatch):
    monkeypatch.setattr(gpu_state, "read_gpus", tuple)
    clock, calls, waits = Clock(monkeypatch), [], []

    def wait(result):
        # 1 ms a call; every third wait is disturbed, and one reading is too fast.
        waits.append(len(calls))
        clock.now_s += len(calls) * (5e-4 if len(waits) == 16 else 1e-3)
        clock.now_s += 0.05 * (len(waits) % 3 == 0)
        calls.clear()

    timing = time_calls(lambda: calls.append(1), wait)
    assert timing.seconds == pytest.approx(1e-3)
    assert len(waits) > 16
    assert waits[-1] in (20, 21)  # 20 ms
    assert (timing.sm_mhz, timing.held_back_by) == (None, None)


@pytest.mark.parametrize("at_first", [0.1, 2.0])
def test_a_device_warms_up_before_it_is_measured(monkeypatch, at_first):
    """For 0.25 s, an idle GPU has lower clocks, or a cool one higher ones, than it will hold."""
    monkeypatch.setattr(gpu_state, "read_gpus", tuple)
    clock, pending = Clock(monkeypatch), []

    def wait(result):
        clock.now_s += len(pending) * 1e-3 / (at_first if clock.now_s < 0.25 else 1)
        pending.clear()

    assert time_calls(lambda: pending.append(1), wait).seconds == pytest.approx(1e-3)


def test_clocks_are_read_while_the_gpu_works(monkeypatch):
    clock, pending = Clock(monkeypatch), []

    def wait(result):
        clock.now_s += len(pending) * 1e-3
        pending.clear()

    def read():
        busy = bool(pending)
        mhz, reasons = (1755, ("power cap",)) if busy else (345, ())
        return (GpuClocks(index=0, sm_mhz=mhz, held_back_by=reasons, used=True),)

    monkeypatch.setattr(gpu_state, "read_gpus", read)
    timing = time_calls(lambda: pending.append(1), wait)
    assert (timing.sm_mhz, timing.held_back_by) == (1755, ("power cap",))


def torch_double(*, available=True, capability=(9, 0), fp8=True):
    cuda = types.SimpleNamespace(
        is_available=lambda: available,
        get_device_name=lambda device: H100,
        get_device_capability=lambda device: capability,
        mem_get_info=lambda device: (2**34, 2**36),
        get_device_properties=lambda device: types.SimpleNamespace(L2_cache_size=2**25),
        empty_cache=lambda: None,
    )
    found = types.SimpleNamespace(
        __version__="2.11.0",
        cuda=cuda,
        device=lambda *name: name,
        manual_seed=lambda seed: None,
        float32="f32",
        bfloat16="bf16",
        randn=lambda shape, **_: np.zeros(shape),
        empty_like=np.empty_like,
        precisions=[],
    )
    found.set_float32_matmul_precision = found.precisions.append
    if fp8:
        found.float8_e4m3fn = "e4m3"
    return found


def test_pytorch_tells_of_its_gpu():
    library = Torch(torch_double(), "gpu")
    assert (library.device_name, library.version) == (H100, "2.11.0")
    assert (library.free_bytes(), library.cache_bytes()) == (2**34, 2**25)
    old = torch_double()
    old.cuda.get_device_properties = lambda device: object()
    assert Torch(old, "gpu").cache_bytes() == 0


def test_pytorch_without_a_gpu_reports_it():
    with pytest.raises(NoDeviceError, match=r"torch 2.11.0 finds no CUDA device"):
        Torch(torch_double(available=False), "gpu")


@pytest.mark.parametrize(
    ("data_type", "torch", "complaint"),
    [
        (
            "fp8",
            torch_double(capability=(8, 6)),
            r"compute capability 8.6 does not support fp8 \(needs 8.9\)",
        ),
        (
            "tf32",
            torch_double(capability=(7, 5)),
            r"capability 7.5 does not support tf32 \(needs 8.0\)",
        ),
        ("fp8", torch_double(fp8=False), r"torch 2.11.0 does not support fp8 products"),
        (
            "fp8",
            torch_double(),
            r"torch 2.11.0 does not support fp8 products",
        ),  # the type, but no product
        (
            "int8",
            torch_double(capability=(7, 0)),
            r"capability 7.0 does not support int8 \(needs 7.5\)",
        ),
        ("int8", torch_double(), r"torch 2.11.0 does not support int8 products"),
    ],
)
def test_a_type_that_the_gpu_or_the_library_lacks_is_refused(data_type, torch, complaint):
    with pytest.raises(UnmeasurableError, match=complaint):
        Torch(torch, "gpu").product(data_type, 16)


@pytest.mark.parametrize(
    ("data_type", "precision"), [("fp32", "highest"), ("tf32", "high"), ("bf16", "highest")]
)
def test_pytorch_uses_tf32_where_it_is_asked_for_alone(data_type, precision):
    torch = torch_double()
    Torch(torch, "gpu").product(data_type, 16)
    assert torch.precisions == [precision]


def jax_double(capability="9.0", statistics=None):
    device = types.SimpleNamespace(
        device_kind=H100, compute_capability=capability, memory_stats=lambda: statistics
    )

    def devices(kind):
        if capability is None:
            raise RuntimeError("Unknown backend: 'gpu' requested\nand more")
        return [device]

    random = types.SimpleNamespace(
        key=lambda seed: seed,
        split=lambda key: (key, key),
        normal=lambda key, shape, dtype: np.zeros(shape),
    )
    return types.SimpleNamespace(
        __version__="0.11.2",
        devices=devices,
        random=random,
        jit=lambda function: function,
        block_until_ready=lambda value: value,
        default_device=lambda _: contextlib.nullcontext(),
        lax=types.SimpleNamespace(
            Precision=types.SimpleNamespace(DEFAULT="default", HIGH="high", HIGHEST="highest")
        ),
        numpy=types.SimpleNamespace(
            float32="f32", bfloat16="bf16", matmul=lambda left, right, precision: precision
        ),
    )


def test_jax_tells_of_its_gpu():
    library = Jax(jax_double(statistics={"bytes_limit": 100, "bytes_in_use": 30}), "gpu")
    assert (library.device_name, library.free_bytes()) == (H100, 70)
    with pytest.raises(UnmeasurableError, match=r"7.5 does not support tf32"):
        Jax(jax_double("7.5"), "gpu").product("tf32", 16)
    with pytest.raises(NoDeviceError, match=r"JAX 0.11.2 has no gpu device: Unknown .* requested$"):
        Jax(jax_double(None), "gpu")


@pytest.mark.parametrize(
    ("data_type", "precision"), [("fp32", "highest"), ("tf32", "high"), ("bf16", None)]
)
def test_jax_uses_tf32_where_it_is_asked_for_alone(data_type, precision):
    """Its default would be TF32 for fp32 matrices."""
    assert Jax(jax_double(), "gpu").product(data_type, 16).call() == precision


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OutOfMemoryError("x"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate"), True),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
    ],
)
def test_memory_errors_are_told_from_others(error, full):
    assert is_out_of_memory(error) is full


def test_a_library_that_cannot_be_imported_is_absent(monkeypatch, capsys):
    def fail(name):
        raise OSError("libcudart.so.13: cannot open shared object file\nmore")

    monkeypatch.setattr(_gpu_rates.importlib, "import_module", fail)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "true")
    _gpu_rates.main(["torch", "bf16"])
    assert os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    reason = "cannot be imported: libcudart.so.13: cannot open shared object file"
    assert printed(capsys) == [{"no_device": reason}]


class Children:
    """Answers for `ceilings.ask`; other questions fail."""

    def __init__(self, monkeypatch, answers, installed=("torch", "jax")):
        self.answers, self.asked = answers, []
        monkeypatch.setattr(ceilings, "ask", self)
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name: object() if name in installed else None
        )

    def __call__(self, module, arguments, budget):
        assert module == "_gpu_rates"
        library, what = arguments[:2]
        self.asked.append((library, what, *arguments[2:]))
        if budget.ends_s is not None and len(self.asked) > 2:
            return Answer(problem=ceilings.NO_TIME_LEFT)
        found = self.answers.get((library, what), self.answers.get(library, "a fault"))
        return Answer(problem=found) if isinstance(found, str) else found


def rate(**values):
    fields = {"device_name": H100, "version": "1", "sm_mhz": 1755, "held_back_by": ["power cap"]}
    return Answer(values=fields | values)


COPIED = rate(buffer_bytes=2**31, gb_per_s=3000.0)
NO_DEVICE = Answer(values={"no_device": "sees none"})
ALL = {
    ("torch", "copy"): COPIED,
    ("jax", "copy"): COPIED,
    "torch": rate(size=8192, gflops=8e5),
    "jax": rate(size=4096, gflops=7e5),
}


def measured(*, budget_s=None):
    said = []
    found = ceilings.measure_ceilings(say=said.append, device="host-gpu", budget_s=budget_s)
    return found, said


def test_every_library_and_type_is_measured_in_the_order_of_worth(monkeypatch):
    children = Children(monkeypatch, ALL)
    found, said = measured()
    assert children.asked == [
        *(("torch", what) for what in ("copy", "bf16", "fp32", "tf32", "fp16", "fp8", "int8")),
        *(("jax", what) for what in ("bf16", "fp32", "tf32", "fp16")),
    ]
    assert (found.gpu, found.threads, found.skipped, found.schema) == (H100, None, (), 2)
    assert found.best_gemm("bf16").gflops == 8e5
    assert found.best_gemm("fp8").held_back_by == ("power cap",)
    assert (found.best_copy().gb_per_s, found.best_copy().library) == (3000.0, "torch")
    assert "torch bf16: 800 TFLOP/s at size 8192" in said
    assert "torch copy: 3000 GB/s" in said


def test_without_pytorch_jax_measures_the_copy_too(monkeypatch):
    children = Children(monkeypatch, ALL, installed=["jax"])
    found, _ = measured()
    assert children.asked[0] == ("jax", "copy")
    assert found.best_copy().library == "jax"
    assert found.skipped == ("torch: not installed",)


def test_a_library_without_a_gpu_is_asked_once(monkeypatch):
    children = Children(monkeypatch, ALL | {("torch", "copy"): NO_DEVICE})
    found, _ = measured()
    assert [asked for asked in children.asked if asked[0] == "torch"] == [("torch", "copy")]
    assert {gemm.library for gemm in found.gemms} == {"jax"}
    assert found.skipped == ("torch: sees none",)


def test_what_fails_is_skipped_with_its_reason_and_keeps_what_it_had(monkeypatch):
    broken = Answer(values=rate(size=8192, gflops=5e5).values, problem="no answer within 120 s")
    Children(monkeypatch, ALL | {("torch", "fp8"): "no fp8", ("torch", "fp32"): broken})
    found, said = measured()
    assert found.skipped == (
        "torch fp32 after size 8192: no answer within 120 s",
        "torch fp8: no fp8",
    )
    assert found.best_gemm("fp8") is None
    assert found.best_gemm("fp32").gflops == 7e5
    assert "torch fp8: no fp8" in said


def test_what_does_not_fit_into_the_budget_is_skipped(monkeypatch):
    children = Children(monkeypatch, ALL)
    found, _ = measured(budget_s=60.0)
    assert [gemm.data_type for gemm in found.gemms] == ["bf16"]
    assert found.best_copy() is not None
    assert found.skipped[0] == "torch fp32: no time left"
    assert len(found.skipped) == 9
    assert children.asked[0][2] == "--until"


def test_no_library_that_sees_a_gpu_is_a_failure_with_reasons(monkeypatch, capsys):
    Children(monkeypatch, {("torch", "copy"): NO_DEVICE}, installed=["torch"])
    with pytest.raises(ceilings.CeilingsError) as failure:
        measured()
    assert failure.value.summary == "no library could measure the GPU"
    assert failure.value.reasons == ("torch: sees none", "jax: not installed")


def test_doctor_lists_why_no_library_could_measure(monkeypatch, capsys):
    Children(monkeypatch, {("torch", "copy"): NO_DEVICE}, installed=["torch"])
    monkeypatch.setattr(command, "examine", lambda _: [])
    assert run_doctor("--ceilings", "-device", "host-gpu") == 1
    assert capsys.readouterr().err.endswith(
        "cbs: no library could measure the GPU\n    torch: sees none\n    jax: not installed\n"
    )


def test_doctor_keeps_and_prints_the_ceilings_of_a_gpu(monkeypatch, capsys, root):
    Children(monkeypatch, ALL)
    monkeypatch.setattr(command, "examine", lambda _: [])
    assert run_doctor("--ceilings", "--target_device", "host-gpu") == 0
    out, err = capsys.readouterr()
    assert H100 in out
    assert "800 TFLOP/s *" in out
    assert "3000 GB/s" in out
    assert "1755 MHz, held back by power cap" in out
    assert "ceilings-nvidia-h100-80gb-hbm3.json" in err
    assert ceilings.load_ceilings(gpu=H100).best_gemm("bf16").gflops == 8e5


def test_doctor_takes_no_longer_than_it_may(monkeypatch, capsys):
    Children(monkeypatch, ALL)
    monkeypatch.setattr(command, "examine", lambda _: [])
    assert run_doctor("--ceilings", "-device", "host-gpu", "--budget", "60") == 0
    assert "torch fp32: no time left" in capsys.readouterr().err
    assert [gemm.data_type for gemm in ceilings.load_ceilings(gpu=H100).gemms] == ["bf16"]


@pytest.mark.parametrize("device", ["pixel-6-pro", "host-tpu"])
def test_doctor_has_no_ceilings_of_other_devices(device):
    with pytest.raises(UsageError, match=f"no ceilings available for -device '{device}'"):
        run_doctor("-device", device)


def run_doctor(*arguments):
    parser = argparse.ArgumentParser()
    options.add_doctor_arguments(parser)
    return command.run(parser.parse_args(arguments))


def test_the_budget_of_all_is_handed_to_each_process(monkeypatch):
    monkeypatch.setattr(ceilings.time, "monotonic", lambda: 100.0)
    children = Children(monkeypatch, ALL)
    ceilings.measure_gpu("CPU", lambda _: None, Budget.of(20.0), child_options=["--device", "cpu"])
    assert children.asked[0] == ("torch", "copy", "--device", "cpu", "--until", "120.0")
