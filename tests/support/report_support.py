"""Results for tests of the report, small and made up."""

import json

import numpy as np
from results_support import completed, decoded

from comparative_benchmark.reporting.report import inputs
from comparative_benchmark.results.results_file import encode

HOST = {
    "cpu_model": "A CPU",
    "threads": 2,
    "governor": "performance",
    "load_average": [0.1, 0.1, 0.1],
}


def metrics(scale=1.0, *, seed=0, processes=4, rounds=6, race="race"):
    """Metrics of an ok result whose latency is about `scale` ms."""
    random = np.random.default_rng(seed)
    blocks = [
        [
            {
                "round": number,
                "latencies_ms": list(scale * (1 + 0.003 * random.standard_normal(5))),
                "contended": False,
            }
            for number in range(rounds)
        ]
        for _ in range(processes)
    ]
    values = [v for process in blocks for block in process for v in block["latencies_ms"]]
    return {
        "processes": [{"blocks": process} for process in blocks],
        "latencies_ms": values,
        "median_latency_ms": float(np.median(values)),
        "mad_latency_ms": 0.01,
        "compile_time_ms": 100.0,
        "compile": {"cold_ms": [100.0], "warm_ms": [10.0, 12.0]},
        "host_memory_peak_mb": 50.0,
        "device_memory_peak_mb": None,
        "phases": {
            "import": {"ms": 5.0, "host_memory_peak_bytes": None},
            "trace": "not_measurable",
            "compile": {"ms": 100.0, "host_memory_peak_bytes": None},
        },
        "final_verification": {
            "relative_rmse": 1e-7,
            "reference_relative_rmse": 2e-7,
            "allowed_relative_rmse": 1e-6,
            "max_abs_error": 1e-6,
            "sqnr_db": None,
        },
        "program": {"weights": "arguments"},
        "workload_cost": {"flops": 1000, "bytes": 100, "flops_source": "the model"},
        "contention": {"contended": False, "reasons": []},
        "stop_reason": "converged",
        **({"race": {"id": race}} if race else {}),
    }


def record(name="w1", competitor="jax_xla:xla", *, scale=1.0, status="ok", **changes):
    """A record; `changes` are of the definition, `run_id`, `level` and `reason` of the record."""
    backend, compiler = competitor.split(":")
    framework = "PYTORCH" if backend == "pt_inductor" else "JAX"
    run_id, level = changes.pop("run_id", "r"), changes.pop("level", "framework_level")
    reason = changes.pop("reason", "no memory")
    found = metrics(scale, seed=len(name) + len(competitor))
    if status != "ok":
        for metric in ("processes", "latencies_ms", "median_latency_ms", "mad_latency_ms"):
            del found[metric]
    found.update(changes.pop("metrics", {}))
    return {
        "run_id": run_id,
        "definition": {
            "benchmark_name": f"models/{name.upper()}_{framework}/inputs/DEFAULT",
            "framework": f"ModelFrameworkType.{framework}",
            "data_type": "fp32",
            "batch_size": 1,
            "compiler": compiler,
            "device": "host-cpu",
            "tags": ["bert"],
            "backend": backend,
            "level": level,
            "options": [],
            "environment": None,
            "workload": {"digest": name * 8, "label": f"label-{name}", "inputs": ["1xf32"]},
            **changes,
        },
        "status": status,
        "metrics": {level: found},
        "versions": {"jax": "0.10.2"},
        "log_file": "run/trial.log",
        **({} if status == "ok" else {"phase": "compile", "reason": reason, "traceback": "Tr"}),
    }


def run(run_id="r", *, day=1, host=HOST, packages=None, revision="abc"):
    """A run."""
    return {
        "run_id": run_id,
        "trigger": {"timestamp": f"2026-11-{day:02}T02:00:00+00:00", "command": ["cbs", "run"]},
        "execution_environment": {
            "host": dict(host),
            "git_revision": revision,
            "python_environment": [
                {"name": name, "version": version} for name, version in (packages or {}).items()
            ],
        },
    }


def document(*records, runs=None):
    """A whole results document, as it stands in a file: the records have what a test is about."""
    sparse = {"runs": runs or [run()], "benchmarks": records}
    return json.loads(encode(completed(sparse)))


def read(*documents):
    """The contents of the documents."""
    return inputs.merge([decoded(document) for document in documents])


def usual():
    """Two workloads, a baseline and two competitors; one result is wrong, one not supported."""
    return document(
        record("w1", "pt_inductor:eager", scale=2.0),
        record("w1", "jax_xla:xla", scale=1.0),
        record("w1", "iree:llvm-cpu", scale=4.0, level="compiler_level"),
        record("w2", "pt_inductor:eager", scale=2.0),
        record("w2", "jax_xla:xla", scale=0.5),
        record("w2", "iree:llvm-cpu", scale=2.0, level="compiler_level"),
        record("w3", "pt_inductor:eager", scale=2.0),
        record("w3", "jax_xla:xla", status="wrong_output", reason="<b>off</b> by @team | 2"),
        record("w3", "iree:llvm-cpu", status="unsupported", level="compiler_level"),
    )
