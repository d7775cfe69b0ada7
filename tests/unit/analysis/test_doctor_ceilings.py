"""The ceilings of a machine, and how close to them a result comes."""

import json
import os
import subprocess

import attrs
import pytest

from comparative_benchmark.analysis.roofline import _cpu_rates, ceilings
from comparative_benchmark.analysis.roofline.ceilings import (
    Answer,
    Budget,
    Ceilings,
    Copy,
    Gemm,
    share_of_roof,
)

CPU = "sys/devices/system/cpu"

# 100 GFLOP/s and 10 GB/s: the ridge is at 10 flops a byte.
ROOF = Ceilings(
    cpu_model="Some CPU @ 2.0 GHz",
    threads=2,
    date="2026-01-01T00:00:00+00:00",
    gemms=(
        Gemm(data_type="fp32", library="numpy", version="1", size=512, gflops=50.0),
        Gemm(data_type="fp32", library="torch", version="1", size=1024, gflops=100.0),
        Gemm(data_type="bf16", library="torch", version="1", size=1024, gflops=400.0),
    ),
    copies=(
        Copy(threads=1, buffer_bytes=1, version="1", gb_per_s=8.0),
        Copy(threads=2, buffer_bytes=1, version="1", gb_per_s=10.0),
    ),
)


@pytest.mark.parametrize(
    ("flops", "bytes_moved", "latency_ms", "data_type", "share"),
    [
        (1e9, 1e6, 20.0, "fp32", 0.5),  # 10 ms of arithmetic, 0.1 ms of transfers
        (1e9, 1e6, 20.0, "bf16", 0.125),  # 2.5 ms of arithmetic
        (1e6, 1e8, 40.0, "fp32", 0.25),  # 10 ms of transfers, 0.01 ms of arithmetic
        (1e9, 1e8, 10.0, "fp32", 1.0),  # on the ridge
        (0.0, 1e8, 20.0, "fp32", 0.5),
        (2e9, 1e6, 10.0, "fp32", 2.0),  # a count or a ceiling that does not fit: shown, not hidden
        (None, 1e6, 20.0, "fp32", None),
        (1e9, None, 20.0, "fp32", None),
        (1e9, 1e6, 20.0, "fp16", None),
        (1e9, 1e6, 0.0, "fp32", None),
        (1e9, 1e6, -1.0, "fp32", None),
        (1e9, 1e6, float("nan"), "fp32", None),
        (float("inf"), 1e6, 1.0, "fp32", None),
        (-1.0, 1e6, 1.0, "fp32", None),
        (0.0, 0.0, 1.0, "fp32", None),
    ],
)
def test_share_of_roof(flops, bytes_moved, latency_ms, data_type, share):
    found = share_of_roof(flops, bytes_moved, latency_ms, ROOF, data_type)
    assert found == (share if share is None else pytest.approx(share))


def test_ceilings_come_back_from_their_file(root, monkeypatch):
    monkeypatch.setattr(ceilings, "_cpu_model", lambda: ROOF.cpu_model)
    assert ceilings.load_ceilings(2) is None
    path = ceilings.save_ceilings(ROOF)
    assert path == root / "ceilings-some-cpu-2-0-ghz-2.json"
    assert ceilings.load_ceilings(2) == ROOF
    assert ceilings.load_ceilings(1) is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", json.dumps(attrs.asdict(ROOF) | {"schema": 0}),
     json.dumps(attrs.asdict(ROOF) | {"copies": [{"threads": 1, "gb_per_s": -1}]})],
)  # fmt: skip
def test_a_damaged_file_gives_none(root, monkeypatch, text):
    monkeypatch.setattr(ceilings, "_cpu_model", lambda: ROOF.cpu_model)
    path = ceilings.save_ceilings(ROOF)
    path.write_text(text)
    assert ceilings.load_ceilings(2) is None


def test_files_of_the_first_schema_still_load(root, monkeypatch):
    """The file of `cbs doctor --ceilings` when it supported only CPUs."""
    monkeypatch.setattr(ceilings, "_cpu_model", lambda: ROOF.cpu_model)
    first = {
        "cpu_model": ROOF.cpu_model, "threads": 2, "date": ROOF.date, "skipped": [],
        "contended": False, "schema": 1,
        "gemms": [
            {"data_type": "fp32", "library": "numpy", "version": "1", "size": 512, "gflops": 5.0}
        ],
        "copies": [{"threads": 2, "buffer_bytes": 1, "version": "1", "gb_per_s": 10.0}],
    }  # fmt: skip
    path = root / "ceilings-some-cpu-2-0-ghz-2.json"
    path.parent.mkdir()
    path.write_text(json.dumps(first))
    found = ceilings.load_ceilings(2)
    assert (found.gpu, found.best_gemm("fp32").gflops) == (None, 5.0)
    assert (found.best_copy().gb_per_s, found.best_copy().library) == (10.0, "numpy")


def test_a_gpu_has_a_file_of_its_own(root):
    ceilings.save_ceilings(ROOF)
    own = attrs.evolve(
        ROOF,
        gpu="NVIDIA H100 80GB HBM3",
        threads=None,
        gemms=(attrs.evolve(ROOF.gemms[0], sm_mhz=1755, held_back_by=("power cap",)),),
        copies=(Copy(threads=None, library="torch", buffer_bytes=1, version="1", gb_per_s=3e3),),
    )
    assert ceilings.save_ceilings(own) == root / "ceilings-nvidia-h100-80gb-hbm3.json"
    assert ceilings.load_ceilings(2, gpu="NVIDIA H100 80GB HBM3") == own
    assert own.best_copy().gb_per_s == 3e3
    assert ceilings.load_ceilings(2, gpu="NVIDIA H200") is None
    assert ceilings.load_ceilings(2, ROOF.cpu_model) == ROOF


def test_all_last_level_caches_count_once(tmp_path):
    for cpu, shared in enumerate(["0-1", "0-1", "2-3", "2-3"]):
        for index, size in ((0, "32K"), (3, "16384K")):
            path = tmp_path / CPU / f"cpu{cpu}" / "cache" / f"index{index}"
            path.mkdir(parents=True)
            (path / "size").write_text(size + "\n")
            (path / "shared_cpu_list").write_text((shared if index else str(cpu)) + "\n")
    assert ceilings.last_level_cache_bytes(tmp_path) == 2 * 16384 * 1024
    assert ceilings.last_level_cache_bytes(tmp_path / "nowhere") == 0


def test_measured_ceilings_name_what_could_not_be_measured(monkeypatch):
    answers = {
        ("_cpu_rates", "gemm", "torch", "fp32"): {"version": "1", "size": 512, "gflops": 5.0},
        ("_cpu_rates", "copy"): {"version": "1", "gb_per_s": 2.0},
    }

    def ask(module, arguments, budget):
        asked = (module, *arguments)
        values = next((answers[key] for key in answers if asked[: len(key)] == key), None)
        return Answer(values=values, problem="" if values else "no such thing")

    monkeypatch.setattr(ceilings, "ask", ask)
    monkeypatch.setattr(ceilings, "products", lambda: [("torch", "fp32"), ("jax", "bf16")])
    found = ceilings.measure_ceilings(1)
    assert [gemm.gflops for gemm in found.gemms] == [5.0]
    assert [copy.threads for copy in found.copies] == [1]
    assert found.skipped == ("jax bf16: no such thing",)
    assert found.gpu is None
    answers.clear()
    with pytest.raises(ceilings.CeilingsError, match="jax bf16: no such thing"):
        ceilings.measure_ceilings(1)


@pytest.mark.parametrize("device", ["host-cpu", "host-gpu"])
def test_a_spent_budget_starts_no_process(monkeypatch, device):
    monkeypatch.setattr(ceilings.subprocess, "run", None)
    with pytest.raises(ceilings.CeilingsError, match="no time left"):
        ceilings.measure_ceilings(1, device=device, budget_s=1.0)


def test_a_child_that_fails_gives_the_reason():
    assert (
        "numpy cannot compute bf16 products"
        in ask("_cpu_rates", "gemm", "numpy", "bf16", "1").problem
    )
    assert "only" in ask("_cpu_rates", "gemm", "numpy", "fp32", "100000").problem
    assert ask("_cpu_rates", "gemm", "numpy", "fp32", "100000").values is None


def test_a_child_that_ends_badly_keeps_what_it_measured(monkeypatch):
    def ends(printed, complaint, code):
        def run(command, *, timeout, **_):
            if code is None:
                raise subprocess.TimeoutExpired(command, timeout, output=printed.encode())
            return subprocess.CompletedProcess(command, code, printed, complaint)

        monkeypatch.setattr(ceilings.subprocess, "run", run)
        return ask("_cpu_rates")

    lines = '{"size": 1}\n{"size": 2}\noutput of a library\n'
    assert ends(lines, "", 0) == Answer(values={"size": 2})
    assert ends(lines, "Traceback ...\nRuntimeError: a fault\n", 1) == Answer(
        values={"size": 2}, problem="RuntimeError: a fault"
    )
    assert ends(lines + '{"size"', "", None) == Answer(
        values={"size": 2}, problem="no answer within 120 s"
    )
    assert ends("", "", -9) == Answer(problem="exit code -9, without output")
    assert ends("3\n", "", 0) == Answer(problem="exit code 0, without output")


def test_a_process_has_what_is_left_of_the_budget(monkeypatch):
    monkeypatch.setattr(ceilings.time, "monotonic", lambda: 100.0)
    assert Budget.of(None).timeout_s() == 120.0
    assert Budget.of(300.0).timeout_s() == 120.0
    assert Budget.of(50.0).timeout_s() == 50.0
    assert Budget.of(3.9).timeout_s() == 0.0


@pytest.mark.slow
def test_the_children_measure():
    copied = ask("_cpu_rates", "copy", str(2**20), "1").values
    assert copied["gb_per_s"] > 0
    product = ask("_cpu_rates", "gemm", "numpy", "fp32", "1").values
    assert product["gflops"] > 0.1
    assert product["size"] >= 512


def ask(module, *arguments):
    return ceilings.ask(module, arguments, Budget())


def test_a_product_of_two_threads_uses_two_cores(monkeypatch):
    pinned = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cpus: pinned.append(set(cpus)))
    monkeypatch.setattr(_cpu_rates, "spread", lambda _: [0, 2, 1, 3])
    monkeypatch.setattr(os, "environ", {})
    _cpu_rates._limit_threads(2)
    assert pinned == [{0, 2}]
