"""Writes made-up results for any number of cases, as `cbs run` would write real ones.

The speed test of the report and its screenshots need many results, and real ones would take days.
The figures are not measurements of any compiler.

    python benchmarks/_made_results.py OUTPUT.json --cases 5000 [--seed 0] [--night N] [--slower]
"""

import argparse
import datetime
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Json = dict[str, Any]

# Competitor, framework, level, usual speed-up over eager, seconds of compilation.
RUNNERS = (
    ("pt_inductor:eager", "PYTORCH", "framework_level", 1.0, 0.0),
    ("pt_inductor:inductor", "PYTORCH", "framework_level", 1.7, 14.0),
    ("jax_xla:xla", "JAX", "framework_level", 1.9, 2.1),
    ("tf_xla:xla", "TENSORFLOW", "framework_level", 1.6, 3.4),
    ("iree:llvm-cpu", "JAX", "compiler_level", 1.2, 6.0),
    ("iree:llvm-cpu", "PYTORCH", "compiler_level", 1.15, 6.3),
    ("onnxruntime:cpu", "PYTORCH", "framework_level", 1.45, 0.6),
    ("openvino:cpu", "PYTORCH", "framework_level", 2.1, 0.9),
    ("xla_hlo:xla", "JAX", "compiler_level", 1.95, 1.8),
    ("tflite:xnnpack", "TENSORFLOW", "framework_level", 0.7, 0.2),
)
_MODELS = (
    # Architecture, tags, flops and weights of one sample.
    ("bert-tiny", ("transformer-encoder", "bert"), 2.6e7, 1.7e7),
    ("bert-base", ("transformer-encoder", "bert"), 2.2e10, 4.4e8),
    ("bert-large", ("transformer-encoder", "bert"), 7.9e10, 1.34e9),
    ("resnet50", ("cnn", "resnet"), 8.2e9, 1.0e8),
    ("t5-small", ("transformer-encoder", "transformer-decoder", "t5"), 1.5e10, 2.4e8),
    ("gpt2", ("transformer-decoder", "gpt2"), 3.1e10, 5.0e8),
    ("vit-base", ("transformer-encoder", "vit"), 3.5e10, 3.4e8),
    ("sd-unet", ("diffusion", "unet"), 8.0e11, 3.4e9),
)
_VERSIONS = {
    "PYTORCH": {"torch": "2.13.0", "transformers": "5.23.0"},
    "JAX": {"jax": "0.10.2", "jaxlib": "0.10.2", "flax": "0.12.8"},
    "TENSORFLOW": {"tensorflow": "2.21.0", "keras": "3.15.1"},
}
RATES = {"fp32": 8.0e10, "fp16": 6.0e10, "bf16": 1.4e11}
_PROCESSES, _ROUNDS, _BLOCK = 3, 5, 10
# Status -> its number in 1,000 results, phase and reason.
_FAILURES = {
    "wrong_output": (8, "outputs", "output 0: relative RMSE 0.021, allowed 1.9e-06"),
    "crashed": (3, "compile", "the worker died of signal 11 (SIGSEGV)"),
    "failed": (5, "lower", "RuntimeError: operator aten::_foo has no lowering"),
    "timeout": (3, "compile", "no answer within 900 s"),
    "out_of_memory": (2, "load", "9.4 GiB wanted, the limit is 8 GiB"),
    "unsteady": (6, "execute", "the two halves of the warm-up differ by 9 % (limit 2 %)"),
}
NOON = datetime.datetime(2026, 10, 1, 2, 30, tzinfo=datetime.UTC)


def document(cases: int, *, seed: int = 0, night: int = 0, slower: bool = False) -> Json:
    """Returns a results document.

    Args:
      cases: number of results.
      seed: determines the values that are the same each night: speeds, failures.
      night: number of the night; determines noise, date and package versions.
      slower: whether one backend is 8 % slower, some outputs are wrong and a case is missing.
    """
    noise = np.random.default_rng([seed, night])
    timestamp = (NOON + datetime.timedelta(days=night)).isoformat()
    run = run_of(timestamp, night)
    records = list(itertools.islice(_records(seed, noise, run["run_id"], night, slower), cases))
    if slower:
        del records[1]
    return {
        "schema_version": 1,
        "trigger": run["trigger"],
        "execution_environment": run["execution_environment"],
        "runs": [run],
        "benchmarks": records,
    }


def run_of(timestamp: str, night: int) -> Json:
    packages = {name: v for found in _VERSIONS.values() for name, v in found.items()}
    packages |= {"numpy": "2.4.6", "iree-base-compiler": f"3.{13 + night // 20}.0"}
    return {
        "run_id": f"made-{night}",
        "trigger": {"timestamp": timestamp, "command": ["cbs", "run", "-o", "made.json"]},
        "execution_environment": {
            "python_environment": [{"name": n, "version": packages[n]} for n in sorted(packages)],
            "git_revision": hashlib.sha256(f"{night // 3}".encode()).hexdigest()[:40],
            "environments": {},
            "host": {
                "cpu_model": "Made-up CPU",
                "architecture": "x86_64",
                "logical_cpus": 16,
                "physical_cpus": 8,
                "usable_cpus": 16,
                "pinned_cpus": list(range(8)),
                "threads": 8,
                "governor": "performance",
                "memory_bytes": 64 * 2**30,
                "memory_available_bytes": 60 * 2**30,
                "load_average": [0.1, 0.1, 0.1],
                "system": "Linux 6.18",
                "python": "3.11.7",
                "hostname": "made",
            },
        },
    }


def _records(
    seed: int, noise: np.random.Generator, run_id: str, night: int, slower: bool
) -> Iterator[Json]:
    variants = list(itertools.product(_MODELS, RATES, (1, 8, 32)))
    for number in itertools.count():
        length, variant = divmod(number, len(variants))
        model, data_type, batch = variants[variant]
        name, tags, flops, weights = model
        sequence = 64 * (length + 1)
        cost = (flops * batch * sequence / 64, weights * (0.5 if data_type != "fp32" else 1))
        label = f"{name}-{data_type}-{batch}x{sequence}xi32"
        fixed = np.random.default_rng([seed, number])
        for position, runner in enumerate(RUNNERS):
            draw = fixed.random(3)
            eager_ms = 1e3 * cost[0] / RATES[data_type]
            speedup = runner[3] * float(np.exp(0.25 * fixed.standard_normal()))
            latency = eager_ms / (speedup if position else 1.0)
            wrong = False
            if slower and runner[0] == "jax_xla:xla":
                latency *= 1.08
                wrong = number % 40 == 7
            yield record_of(
                runner,
                definition_of(runner, name, label, data_type, batch, sequence, tags),
                run_id,
                "wrong_output" if wrong else _status(runner, position, data_type, float(draw[0])),
                latency * float(np.exp(0.002 * noise.standard_normal())),
                cost,
                noise,
                night,
            )


def _status(runner: Any, position: int, data_type: str, draw: float) -> str:
    if position == 0:
        return "ok"
    if runner[0].startswith("tflite") and data_type == "bf16":
        return "unsupported"
    left = draw * 1000
    for status, (share, _, _) in _FAILURES.items():
        left -= share
        if left < 0:
            return status
    return "ok"


def definition_of(
    runner: Any,
    name: str,
    label: str,
    data_type: str,
    batch: int,
    sequence: int,
    tags: tuple[str, ...],
) -> Json:
    backend, _, compiler = runner[0].partition(":")
    short = {"PYTORCH": "PT", "JAX": "JAX", "TENSORFLOW": "TF"}[runner[1]]
    variant = f"{name}_{data_type}_{short}_{sequence}XI32_BATCH{batch}".upper().replace("-", "_")
    digests = [hashlib.sha256(f"{label}{part}".encode()).hexdigest() for part in range(2)]
    return {
        "benchmark_name": f"models/{variant}/inputs/INPUT_DATA_MODEL_DEFAULT",
        "framework": f"ModelFrameworkType.{runner[1]}",
        "data_type": data_type,
        "precision": data_type,
        "batch_size": batch,
        "compiler": compiler,
        "device": "host-cpu",
        "tags": [*tags, data_type, f"batch-{batch}"],
        "backend": backend,
        "level": runner[2],
        "options": [],
        "environment": None,
        "model": variant,
        "model_parameters": {"data_type": data_type, "batch_size": batch, "seq_len": sequence},
        "verify_parameters": {},
        "input_data": "INPUT_DATA_MODEL_DEFAULT",
        "input_source": None,
        "workload": {
            "id": f"{label}-{digests[0][:12]}",
            "digest": digests[0],
            "label": label,
            "architecture": f"{name}/1",
            # A model's configuration has no batch size.
            "config_digest": hashlib.sha256(f"{name}{sequence}".encode()).hexdigest(),
            "checkpoint": "seeded-0",
            "data_type": data_type,
            "inputs": [f"{batch}x{sequence}xi32"],
            "input_digest": digests[1],
        },
    }


def record_of(
    runner: Any,
    definition: Json,
    run_id: str,
    status: str,
    latency_ms: float,
    cost: tuple[float, float],
    noise: np.random.Generator,
    night: int,
) -> Json:
    program = hashlib.sha256(f"{definition['benchmark_name']}{runner[0]}{night}".encode())
    facts: Json = {
        "weights": "parameters" if runner[1] == "PYTORCH" else "arguments",
        "not_measurable": [],
        "flops": cost[0],
        "bytes_accessed": cost[1],
        "notes": {},
        **({"artifact_sha256": program.hexdigest()} if runner[4] else {}),
        **({"artifact_size_bytes": int(1e5 + cost[1] / 50)} if runner[4] else {}),
    }
    cold = [round(1e3 * runner[4] * float(np.exp(0.03 * noise.standard_normal())), 3)]
    verification = _verification(definition["data_type"], status, noise)
    metrics: Json = {
        "compile_time_ms": cold[0] if runner[4] else None,
        "compile": {
            "cold_ms": cold if runner[4] else [],
            "warm_ms": [round(0.2 * cold[0], 3), round(0.21 * cold[0], 3)] if runner[4] else [],
            "processes": [],
        },
        "input_data_transfer_ms": 0.2,
        "output_data_transfer_ms": 0.1,
        "autotuning_enabled": False,
        "device_memory_peak_mb": None,
        "host_memory_peak_mb": round(300 + 1.6 * cost[1] / 1e6 + 40 * float(noise.random()), 3),
        "phases": _phases(runner[4], latency_ms),
        "verification": verification,
        "final_verification": verification,
        "program": facts,
        "workload_cost": {
            "flops": int(cost[0]),
            "flops_source": "matrix products and convolutions",
            "bytes": int(cost[1]),
            "bytes_source": "weights, inputs and outputs, each once",
        },
        "artifact_digests": {},
        "race": {"id": f"{run_id}-{definition['workload']['label']}", "interleaved": True},
        "stop_reason": "converged",
    }
    if status == "ok":
        metrics |= _samples(latency_ms, noise)
    else:
        metrics["error"] = status
    record: Json = {
        "run_id": run_id,
        "definition": definition,
        "status": status,
        "metrics": {runner[2]: metrics},
        "wall_s": 12.0,
        "log_file": f"made.logs/{definition['model']}.log",
        "versions": {"numpy": "2.4.6", **_VERSIONS[runner[1]]},
    }
    if status != "ok":
        _, phase, reason = _FAILURES.get(status, (0, "load", "no kernels for bf16"))
        record |= {"phase": phase, "reason": reason, "traceback": None}
    return record


def _phases(compile_s: float, latency_ms: float) -> Json:
    times = {"import": 1900.0, "load": 600.0, "h2d": 0.2}
    if compile_s:
        shares = {"trace": 0.1, "lower": 0.1, "compile": 0.8}
        times |= {name: 1e3 * compile_s * share for name, share in shares.items()}
    times |= {"first_run": 3 * latency_ms, "execute": 150 * latency_ms, "d2h": 0.1}
    return {
        name: {"ms": round(ms, 4), "host_memory_peak_bytes": 300_000_000}
        for name, ms in times.items()
    }


def _verification(data_type: str, status: str, noise: np.random.Generator) -> Json:
    reference = {"fp32": 4e-7, "fp16": 8e-4, "bf16": 6e-3}[data_type]
    error = reference * float(np.exp(0.2 * noise.standard_normal()))
    if status == "wrong_output":
        error *= 50_000
    return {
        "passed": status != "wrong_output",
        "reason": None,
        "relative_rmse": error,
        "reference_relative_rmse": reference,
        "allowed_relative_rmse": 4.6 * reference,
        "max_abs_error": 5 * error,
        "sqnr_db": None,
    }


def _samples(latency_ms: float, noise: np.random.Generator) -> Json:
    shape = (_PROCESSES, _ROUNDS, _BLOCK)
    # Layout differs between processes, drift between rounds, and tails are long.
    scatter = 0.006 * noise.standard_normal((_PROCESSES, 1, 1))
    scatter = scatter + 0.003 * noise.standard_normal((1, _ROUNDS, 1))
    scatter = scatter + 0.01 * noise.standard_normal(shape) + 0.01 * noise.exponential(1.0, shape)
    values = np.round(latency_ms * np.exp(scatter), 6)
    flat = values.reshape(-1).tolist()
    median = float(np.median(values))
    return {
        "min_latency_ms": min(flat),
        "max_latency_ms": max(flat),
        "mean_latency_ms": float(values.mean()),
        "median_latency_ms": median,
        "stddev_latency_ms": float(values.std(ddof=1)),
        "mad_latency_ms": float(np.median(np.abs(values - median))),
        "p90_latency_ms": float(np.quantile(values, 0.9)),
        "p95_latency_ms": float(np.quantile(values, 0.95)),
        "benchmark_iterations": len(flat),
        "warmup_iterations": 5,
        "latencies_ms": flat,
        "warmup_latencies_ms": flat[:5],
        "dispatch_ms": flat[:5],
        "device_latencies_ms": [],
        "cpu_wall_ratio": 1.0,
        "contention": {"contended": False, "reasons": [], "foreign_cpu_share": 0.01},
        "processes": [_process(process) for process in values],
    }


def _process(process: Any) -> Mapping[str, Any]:
    return {
        "blocks": [
            {"round": number, "latencies_ms": block.tolist(), "contended": False}
            for number, block in enumerate(process)
        ],
        "stop_reason": "converged",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--night", type=int, default=0)
    parser.add_argument("--slower", action="store_true", help="add a slow-down and wrong outputs")
    options = parser.parse_args()
    made = document(options.cases, seed=options.seed, night=options.night, slower=options.slower)
    options.output.write_text(json.dumps(made), encoding="utf-8")


if __name__ == "__main__":
    main()
