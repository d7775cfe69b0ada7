"""Each stack's own profiler on a tiny model, through a worker."""

import gzip
import json
import os
from pathlib import Path

import pytest
from session_support import bring_up

from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.engine import checks
from comparative_benchmark.engine.messages import Outputs
from comparative_benchmark.engine.session import Limits, Session
from comparative_benchmark.engine.settings import RunSettings
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.devices import ALL_DEVICES
from openxla.benchmark.installation import ROOT_DIR_VARIABLE

REFERENCES = {
    "PT": "comparative_benchmark.pt_inductor.reference:compute",
    "JAX": "comparative_benchmark.jax_xla.reference:compute",
}
# The race's latency: 200 ms an iteration, so five are profiled.
LATENCIES_MS = [200.0]


@pytest.fixture
def profile_of(tmp_path, environment):
    """Returns a function that profiles a model by a competitor."""

    def profile(name, competitor, threads=1):
        backend_name, _, compiler = competitor.partition(":")
        backend = get_backend(backend_name)
        [device] = [device for device in ALL_DEVICES if device.name == "host-cpu"]
        [case] = catalog.select(catalog.all_benchmarks([]), name=f"models/{name}/.+")
        settings = RunSettings(device=device, threads=threads)
        variables = {
            **settings.environment(backend, tmp_path, tmp_path / "cache"),
            ROOT_DIR_VARIABLE: environment[ROOT_DIR_VARIABLE],
        }
        log_file = tmp_path / "worker.log"
        with Session(limits=Limits(), log_file=log_file, environment=variables) as session:
            bring_up(
                session,
                case,
                backend,
                tmp_path,
                reference=REFERENCES["JAX" if "_JAX_" in name else "PT"],
                compiler=compiler,
                threads=threads,
            )
            taken = checks.take_profile(session, tmp_path / "profiles", LATENCIES_MS)
            # The worker is as good as before.
            session.call(Outputs, directory=str(tmp_path / "outputs"))
        assert taken.error is None, taken.error
        assert taken.iterations == 5
        return {file: tmp_path / "profiles" / file for file in taken.files}

    return profile


def _spans(path):
    """Returns the complete events of a trace, and checks them for problems in viewers."""
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    spans = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    assert all(span["name"] and span["ts"] > 0 and span["dur"] >= 0 for span in spans)
    return spans


@pytest.fixture
def kept(records):
    """Returns a function that returns the files that a run with `--profile` kept, by name."""

    def files(competitor, model):
        [profile] = [
            record["profile"]
            for record in records(competitor)
            if record["definition"]["model"].startswith(model)
        ]
        assert profile["error"] is None
        paths = {name: Path(profile["directory"]) / name for name in profile["files"]}
        return paths, profile["iterations"]

    return files


def test_pytorch_tells_operators(kept):
    files, iterations = kept("pt_inductor:eager", "RESNET")
    assert set(files) == {"trace.json", "operators.txt", "memory.txt", "operators.json"}
    names = [span["name"] for span in _spans(files["trace.json"])]
    assert names.count("iteration") == iterations
    assert "aten::conv2d" in names
    assert "sorted by self_cpu_memory_usage" in files["memory.txt"].read_text()
    table = files["operators.txt"].read_text()
    assert f"{iterations} iterations" in table
    assert "convolution" in table


def test_inductor_tells_its_graph(kept):
    files, iterations = kept("pt_inductor:inductor", "RESNET")
    spans = _spans(files["trace.json"])
    assert [span["name"] for span in spans].count("iteration") == iterations
    assert any("CompiledFxGraph" in span["name"] for span in spans)


def test_xla_tells_thunks_without_tensorboard(kept):
    files, iterations = kept("jax_xla:xla", "BERT")
    assert set(files) == {"trace.json.gz", "xla.xplane.pb", "operators.json"}
    names = [span["name"] for span in _spans(files["trace.json.gz"])]
    assert names.count("iteration") == iterations
    assert any(name.startswith("dot") or "fusion" in name for name in names)
    assert not any(name.startswith("$") for name in names)  # no Python calls


@pytest.mark.parametrize(
    ("model", "threads"),
    [
        ("BERT_TINY_FP32_PT_32XI32_BATCH1", 1),  # integers
        # NumPy lacks this type; two threads need two CPUs.
        pytest.param("RESNET_TINY_BF16_JAX_3X32X32XBF16_BATCH1", 2, marks=pytest.mark.alone),
    ],
)
def test_iree_tells_dispatches(profile_of, model, threads):
    if threads > len(os.sched_getaffinity(0)):
        pytest.skip(f"needs {threads} CPUs")
    files = profile_of(model, "iree:llvm-cpu", threads)
    assert set(files) == {"program.ireeprof", "dispatches.txt", "trace.json", "operators.json"}
    spans = _spans(files["trace.json"])
    executions = [span for span in spans if span["cat"] == "execute"]
    dispatches = [span for span in spans if span["cat"] == "dispatch"]
    assert len(executions) == 5
    assert len(dispatches) > len(executions)
    assert all("dispatch" in span["name"] for span in dispatches)
    for row in {span["tid"] for span in spans}:
        ends = 0.0
        for span in sorted((s for s in spans if s["tid"] == row), key=lambda s: s["ts"]):
            assert span["ts"] >= ends - 1e-2  # microseconds; a float holds no nanoseconds
            ends = span["ts"] + span["dur"]
    assert dispatches[0]["name"] in files["dispatches.txt"].read_text()


def test_iree_shows_dispatches_that_overlap_on_rows_of_their_own():
    from comparative_benchmark.iree.profiler import trace_events

    def record(start, end, op="dispatch", valid=True):
        return {
            "record_type": "host_execution_event",
            "valid": valid,
            "op": op,
            "key": f"kernel_{start}" if op == "dispatch" else None,
            "start_host_time_ns": start,
            "end_host_time_ns": end,
            "submission_id": 1,
            "tile_count": 4,
            "workgroup_count": [4, 1, 1],
        }

    events = trace_events(
        [
            {"record_type": "schema", "schema_version": 15},
            record(1000, 9000, op="execute"),
            record(4000, 6000),
            record(1000, 5000),
            record(5000, 8000),
            record(0, 9000, valid=False),
        ]
    )
    shown = {e["name"]: (e["tid"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"}
    assert shown == {
        "execute": (1, 1.0, 8.0),
        "kernel_1000": (100, 1.0, 4.0),
        "kernel_4000": (101, 4.0, 2.0),
        "kernel_5000": (100, 5.0, 3.0),
    }
    rows = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert rows == {1: "queue 1", 100: "dispatches 1", 101: "dispatches 2"}
