"""PyTorch, JAX and IREE on the tiny models, and the quickstart."""

import re
import subprocess
from pathlib import Path

import pytest
from tests_support import Run

ROOT = Path(__file__).resolve().parents[2]

TINY = "models/{}_TINY_{}_(PT|JAX)_.+_BATCH1/.+"
COMPETITORS = {
    ("PT", "pt_inductor:eager"): "parameters",
    ("PT", "pt_inductor:inductor"): "parameters",
    ("PT", "iree:llvm-cpu"): "parameters",
    ("PT", "iree:llvm-cpu-data-tiling"): "parameters",
    ("JAX", "jax_xla:xla"): "arguments",
    ("JAX", "iree:llvm-cpu"): "parameters",
}
BERT = ("-name", "models/BERT_TINY_FP32_.+_BATCH1/.+DEFAULT")


def _quickstart(output, environment, *arguments):
    done = subprocess.run(
        ["./scripts/quickstart.sh", "-o", str(output), *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    return Run(done.returncode, done.stdout, done.stderr, output)


def test_a_second_quickstart_reuses_environment_and_results(environment, tmp_path):
    fixed = ("--backend", "pt_inductor:eager,jax_xla", *BERT, "-w", "1", "-iter", "5")
    first = _quickstart(tmp_path / "results.json", environment, *fixed)
    assert first.code == 0, first.out + first.err
    assert list(first.statuses.values()) == ["ok"] * 2
    again = _quickstart(first.output, environment, *fixed, "--resume")
    assert again.code == 0, again.err
    assert "installing" not in again.err
    assert again.document["benchmarks"] == first.document["benchmarks"]
    for competitor in ("pt_inductor:eager", "jax_xla:xla"):
        assert competitor in again.out


# The README's race is in the default tier.
@pytest.mark.nightly
@pytest.mark.alone
def test_the_quickstart_races_and_says_what_took_how_long(environment, tmp_path):
    run = _quickstart(
        tmp_path / "results.json",
        environment,
        *("--backend", "pt_inductor:eager,jax_xla,test_absent", *BERT, "--trial-budget", "5"),
    )
    assert sorted(run.statuses.values()) == ["ok", "ok", "unsupported"], run.out + run.err
    assert run.code == 0
    for record in run.document["benchmarks"]:
        if record["status"] == "ok":
            [metrics] = record["metrics"].values()
            assert len(metrics["processes"]) == 3
            assert metrics["race"]["interleaved"]
    assert "speed-up (98 %)" in run.out
    assert re.search(r"jax_xla:xla +jax +[\d.]+ \([\d.]+-[\d.]+\)", run.out)
    # A sentence, and the command that repeats the run; no row.
    assert run.out.count("test_absent") == 2
    absent = "not installed: test_absent (pip install a-module-that-is-missing)"
    assert f"\nOther backends are {absent}.\n" in run.out
    assert re.search(r"^environment: \d+ s, race: \d+ s$", run.err, re.MULTILINE)


def test_frameworks_share_their_workloads(records):
    workloads = {
        record["definition"]["workload"]["digest"]
        for framework, competitor in COMPETITORS
        for record in records(competitor, framework)
    }
    assert len(workloads) == 2


@pytest.mark.parametrize(("framework", "competitor"), COMPETITORS)
def test_results_say_what_was_measured(records, framework, competitor):
    found = records(competitor, framework)
    assert len(found) == 2
    for record in found:
        [(level, metrics)] = record["metrics"].items()
        assert level == ("compiler_level" if "iree" in competitor else "framework_level")
        assert metrics["program"]["weights"] == COMPETITORS[framework, competitor]
        assert metrics["verification"]["passed"]
        assert metrics["final_verification"]["passed"]
        assert 0 < metrics["verification"]["relative_rmse"] < 1e-5
        assert len(metrics["latencies_ms"]) == 20
        assert all(0 < d <= t for d, t in zip(metrics["dispatch_ms"], metrics["latencies_ms"]))
        assert record["versions"]["numpy"]


def test_a_process_has_a_peak_of_memory(cbs_run):
    run = cbs_run("--backend", "pt_inductor:eager,jax_xla", *BERT, "-w", "1", "-iter", "2")
    for record in run.document["benchmarks"]:
        assert record["metrics"]["framework_level"]["host_memory_peak_mb"] > 30


def test_compile_phases_are_told_apart_where_the_stack_can(records):
    for record in records("jax_xla:xla"):
        phases = record["metrics"]["framework_level"]["phases"]
        for name in ("import", "load", "h2d", "trace", "lower", "compile", "first_run", "d2h"):
            assert phases[name]["ms"] > 0
    for record in records("pt_inductor:inductor"):
        metrics = record["metrics"]["framework_level"]
        phases = metrics["phases"]
        assert phases["lower"] == phases["first_run"] == "not_measurable"
        assert phases["trace"]["ms"] > 0
        assert metrics["compile_time_ms"] > 1000  # cold: C++ is compiled, nothing was cached
        assert metrics["program"]["notes"]["graphs"] == 1
    for record in records("pt_inductor:eager"):
        metrics = record["metrics"]["framework_level"]
        assert metrics["compile_time_ms"] is None
        assert "compile" not in metrics["phases"]
    for record in records("iree:llvm-cpu", "PT"):
        phases = record["metrics"]["compiler_level"]["phases"]
        assert phases["trace"] == "not_measurable"
        assert phases["compile"]["ms"] > 0


def test_iree_programs_hold_no_weights(records):
    for framework in ("PT", "JAX"):
        for record in records("iree:llvm-cpu", framework):
            program = record["metrics"]["compiler_level"]["program"]
            assert program["artifact_size_bytes"] < program["notes"]["parameters_size_bytes"]


def test_xla_tells_what_the_program_does(records):
    for record in records("jax_xla:xla"):
        program = record["metrics"]["framework_level"]["program"]
        assert program["flops"] > 1e5
        assert program["bytes_accessed"] > 1e5
        assert program["notes"]["memory_analysis"]["argument_size"] > 1e5


# IREE's data tiling does not compile bf16 for a CPU with AVX-512 that has no bf16 instructions.
@pytest.mark.parametrize(
    ("model", "data_type", "iree"),
    [
        ("BERT", "FP16", "llvm-cpu-data-tiling"),
        pytest.param("RESNET", "BF16", "llvm-cpu", marks=pytest.mark.nightly),
    ],
)
def test_sixteen_bit_types_are_right_on_every_backend_that_starts_fast(
    cbs_run, model, data_type, iree
):
    run = cbs_run(
        *("--backend", f"pt_inductor:eager,jax_xla,iree:{iree}"),
        *("-name", TINY.format(model, data_type), "-w", "1", "-iter", "2"),
    )
    assert run.code == 0, run.out + run.err
    assert len(run.statuses) == 4


@pytest.mark.nightly
def test_inductor_with_frozen_weights_reports_it(cbs_run):
    run = cbs_run(
        *("--backend", "pt_inductor:inductor+freezing"),
        *("-name", "models/EXAMPLE_FP32_PT_BATCH1/.+", "-w", "1", "-iter", "2"),
    )
    assert run.code == 0, run.out + run.err
    [record] = run.document["benchmarks"]
    assert record["definition"]["compiler"] == "inductor+freezing"
    assert record["metrics"]["framework_level"]["program"]["weights"] == "frozen"


@pytest.mark.parametrize(
    ("backends", "model"),
    [
        ("jax_xla,iree:llvm-cpu", "BERT_TINY_FP32_JAX"),
        # A third of the time of a network.
        pytest.param("pt_inductor:inductor", "EXAMPLE_FP32_PT", marks=pytest.mark.nightly),
    ],
)
def test_compile_only_finds_the_same_program_cold_and_warm(cbs_run, backends, model):
    run = cbs_run(
        *("--backend", backends, "--compile-only", "--processes", "1"),
        *("-name", f"models/{model}_.*BATCH1/.+"),
    )
    assert run.code == 0, run.out + run.err
    for record in run.document["benchmarks"]:
        [metrics] = record["metrics"].values()
        [cold, warm] = metrics["compile"]["processes"]
        assert cold["compile_ms"] > 0
        if record["definition"]["backend"] != "iree":  # which keeps no cache
            assert cold["cache_hits"] == 0 < cold["cache_misses"]
            assert warm["cache_misses"] == 0 < warm["cache_hits"]
        digests = {process["artifact_sha256"] for process in metrics["compile"]["processes"]}
        assert len(digests) == 1
        assert None not in digests


def test_without_a_gpu_gpu_trials_are_unsupported_with_a_reason(cbs_run):
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("there is a GPU here")
    run = cbs_run(
        *("--backend", "pt_inductor:eager,jax_xla,iree,tf_xla:xla,xla_hlo", "-device", "host-gpu"),
        *("-name", "models/RESNET_TINY_FP32_(PT|JAX|TF)_.+_BATCH1/.+", "-iter", "1"),
    )
    assert set(run.statuses.values()) == {"unsupported"}, run.out
    assert run.code == 3
    for record in run.document["benchmarks"]:
        [metrics] = record["metrics"].values()
        assert "nvidia-smi" in metrics["error"]
    # One line for each model, because its trials fail for the same reason.
    assert run.out.count("unsupported  RESNET_TINY") == 3 == run.out.count("nvidia-smi")
