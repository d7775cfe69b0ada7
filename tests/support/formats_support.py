"""Results files and results for the tests of the formats."""

import functools
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import jsonschema
from hypothesis import strategies as st

from comparative_benchmark.analysis.verification.verification import Verification
from comparative_benchmark.engine.recording import to_result
from comparative_benchmark.reporting.history.rows import OK, STATUSES, PortableResult
from comparative_benchmark.results.outcome import ProcessRecord, TrialOutcome
from comparative_benchmark.results.record import Block, ExecutionEnvironment, Status
from comparative_benchmark.results.results_file import ResultsFile, converted

PYTORCH_CASE = "models/EXAMPLE_FP32_PT_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"
HOST = {
    "cpu_model": "Example CPU <1 & 2>",
    "architecture": "x86_64",
    "logical_cpus": 2,
    "physical_cpus": 1,
    "usable_cpus": 2,
    "threads": 2,
    "governor": "performance",
    "memory_bytes": 8 * 2**30,
    "memory_available_bytes": 4 * 2**30,
    "load_average": [0.1, 0.2, 0.3],
    "system": "Linux 6.1",
    "python": "3.11.9",
    "hostname": "a-machine",
}
REVISION = "0123456789abcdef0123456789abcdef01234567"
# 0.1 is not representable in Float32.
SAMPLES = ((0.1, 0.2, 0.3, 0.4), (0.11, 0.21, 0.31), (0.12, 0.22, 0.32, 0.42, 0.52))
_WRONG = Verification(passed=False, reason="output 0 holds NaN or infinity")


def write_results(
    path: Path,
    make_trial: Callable[..., Any],
    finished: Callable[..., TrialOutcome],
    *,
    revision: str | None = REVISION,
    factor: float = 1.0,
) -> str:
    """Writes a run with a result of every status, one of three processes, and a compile-only one.

    Returns the run's identifier. Latencies are multiplied by the factor.
    """
    file = ResultsFile(path)
    run_id = file.start_run(
        execution_environment=converted(
            {"python_environment": [], "host": HOST, "git_revision": revision}, ExecutionEnvironment
        ),
        command=["cbs", "run"],
    )

    def add(case: str, competitor: str, outcome: TrialOutcome) -> None:
        file.append(to_result(make_trial(case, competitor), outcome, run_id=run_id))

    jax = make_trial().case.name
    three = [finished(blocks=[_block(s, factor)]).processes[0] for s in SAMPLES]
    add(jax, "jax_xla:xla", attrs.evolve(finished(), processes=three))
    add(PYTORCH_CASE, "pt_inductor:eager", finished())
    compiled = finished(blocks=[], warmup_latencies_ms=[], cold=True)
    add(PYTORCH_CASE, "pt_inductor:inductor", attrs.evolve(compiled, stop_reason="compile_only"))
    ends = {
        Status.WRONG_OUTPUT: ("iree:llvm-cpu", finished(verification=_WRONG)),
        Status.UNSUPPORTED: ("xla_hlo:stablehlo", TrialOutcome(processes=[ProcessRecord()])),
        Status.FAILED: ("xla_hlo:hlo-text", TrialOutcome(processes=[ProcessRecord()])),
        Status.OUT_OF_MEMORY: (
            "iree:llvm-cpu-data-tiling",
            TrialOutcome(processes=[ProcessRecord()]),
        ),
        Status.TIMEOUT: ("xla_hlo:hlo-proto", TrialOutcome(processes=[ProcessRecord()])),
        Status.CRASHED: ("tf_xla:graph", TrialOutcome(processes=[ProcessRecord()])),
        Status.UNSTEADY: ("pt_inductor:inductor+freezing", finished()),
    }
    for status, (competitor, outcome) in ends.items():
        [process] = outcome.processes
        process.status, process.phase = status, "verify"
        process.reason = f"a <reason> & \x1b[31mmore\x00 of {status.value}"
        add(jax, competitor, outcome)
    return run_id


def validate(value: Any, schema: str, definition: str | None = None) -> None:
    """Raises if a value does not match a published schema."""
    _validator(schema, definition).validate(value)


@functools.cache
def _validator(schema: str, definition: str | None) -> jsonschema.Draft202012Validator:
    text = (files("comparative_benchmark.reporting.formats") / "schema" / schema).read_text()
    document = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(document)
    if definition is not None:
        document = {"$ref": f"#/$defs/{definition}", "$defs": document["$defs"]}
    return jsonschema.Draft202012Validator(document)


def own_results() -> st.SearchStrategy[list[PortableResult]]:
    """Returns lists of results as a run of this suite gives them."""
    return st.lists(
        _result(), min_size=1, max_size=4, unique_by=lambda r: (r.case, r.compiler, r.device)
    )


def _result() -> st.SearchStrategy[PortableResult]:
    text = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
    maybe = st.none() | text
    time = st.floats(1e-9, 1e9)
    times = st.lists(time, max_size=3).map(tuple)
    amount = st.none() | st.floats(0, 1e12)
    shared = {
        "case": text,
        "framework": maybe,
        "input_data": maybe,
        "workload": maybe,
        "workload_label": text,
        "workload_digest": maybe,
        "data_type": maybe,
        "precision": maybe,
        "batch_size": st.none() | st.integers(0, 2**31 - 1),
        "level": st.sampled_from(["framework_level", "compiler_level"]),
        "backend": text,
        "compiler": text,
        "environment": maybe,
        "device": text,
        "tags": st.lists(text, max_size=2).map(tuple),
        "compile_ms": times,
        "warm_compile_ms": times,
        "host_memory_peak_mb": amount,
        "device_memory_peak_mb": amount,
        "relative_rmse": amount,
        "tokens_per_s": amount,
        "cpu_wall_ratio": st.none() | st.floats(0, 64),
        "program_sha256": maybe,
        "wall_s": amount,
        "run_id": st.just("20260101T000000Z-0a0b0c0d"),
        "timestamp": st.just("2026-01-01T00:00:00+00:00"),
        "git_revision": st.just(REVISION),
        "versions": st.dictionaries(text, text, max_size=2),
        "host": st.just(HOST),
        "machine": maybe,
        "threads": st.none() | st.integers(1, 256),
        "extra": st.dictionaries(text, st.none() | st.booleans() | text | time, max_size=2),
        "identity": text,
    }
    ok = st.builds(
        PortableResult,
        **shared,
        status=st.just(OK),
        samples_ms=st.lists(
            st.lists(time, min_size=1, max_size=4).map(tuple), min_size=1, max_size=3
        ).map(tuple),
        latency_ms=time,
        latency_low_ms=time,
        latency_high_ms=time,
    )
    compiled = st.builds(PortableResult, **shared, status=st.just(OK))
    failed = st.builds(
        PortableResult,
        **shared,
        status=st.sampled_from([status for status in STATUSES if status != OK]),
        phase=maybe,
        reason=maybe,
    )
    return ok | compiled | failed


def _block(samples: tuple[float, ...], factor: float) -> Block:
    return Block(
        round=0, latencies_ms=tuple(value * factor for value in samples), cpu_ms=8.0, wall_ms=10.0
    )
