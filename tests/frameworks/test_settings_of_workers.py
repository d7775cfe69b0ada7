"""Each stack reports its threads, and allocates outputs as requested or gives the reason."""

import os

import pytest
from tests_support import run_cbs

pytestmark = pytest.mark.frameworks

# Framework of the model -> its backends, and their modes of outputs.
RACERS = {
    "PT": {
        "pt_inductor:eager": {"allocated"},
        "onnxruntime:default": {"bound", "allocated"},
        "openvino:latency": {"bound", "allocated"},
        "iree:llvm-cpu": {"allocated"},
    },
    "JAX": {
        "jax_xla:xla": {"allocated"},
        "xla_hlo:stablehlo": {"allocated"},
        "tflite:native": {"bound"},
    },
    "TF": {"tf_xla:xla": {"allocated"}, "tf_xla:eager": {"allocated"}},
}
THREADS = min(2, len(os.sched_getaffinity(0)))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(name, marks=() if name == "JAX" else pytest.mark.nightly) for name in RACERS
    ],
)
def framework(request):
    """A framework, for all tests on it."""
    return request.param


@pytest.fixture(scope="module")
def runs(framework, tmp_path_factory, environment):
    """One tiny case on each backend of the framework, with each mode of outputs."""
    name = f"models/RESNET_TINY_FP32_{framework}_.+_BATCH1/.+"
    return {
        mode: run_cbs(
            *("--backend", ",".join(RACERS[framework]), "-name", name, "-w", "1", "-iter", "3"),
            *("--threads", str(THREADS), "--outputs", mode),
            directory=tmp_path_factory.mktemp(mode),
            environment=environment,
        )
        for mode in ("bound", "allocated")
    }


def _records(run):
    for record in run.document["benchmarks"]:
        definition = record["definition"]
        [metrics] = record["metrics"].values()
        yield f"{definition['backend']}:{definition['compiler']}", record, metrics


@pytest.mark.parametrize("mode", ["bound", "allocated"])
def test_outputs_are_held_as_asked_or_the_reason_is_reported(framework, runs, mode):
    found = {name: (record, metrics) for name, record, metrics in _records(runs[mode])}
    assert set(found) == set(RACERS[framework]), runs[mode].err
    for name, (record, metrics) in found.items():
        assert record["definition"]["outputs"] == mode
        if mode in RACERS[framework][name]:
            assert record["status"] == "ok", (name, record["reason"])
            assert metrics["program"]["outputs"] == mode
        else:
            assert record["status"] == "unsupported", name
            assert f"{mode} outputs are not supported here: " in record["reason"]


def test_each_stack_tells_its_threads_and_the_process_the_rest(runs):
    for run in runs.values():
        for name, record, metrics in _records(run):
            if record["status"] != "ok":
                continue
            [effective] = [process["effective"] for process in metrics["processes"]]
            assert effective["threads"] == THREADS, (name, effective)
            assert effective["threads_told_by"]
            assert effective["denormals_before"] == effective["denormals_after"] == "kept"
            assert effective["allocator"]
            assert effective["blas"]
            assert effective["affinity"] == sorted(os.sched_getaffinity(0))
            if name.startswith("pt_inductor"):
                assert "CPU capability" in effective["blas"][0]
        [host] = [entry["execution_environment"]["host"] for entry in run.document["runs"]]
        assert (host["threads"], host["threads_from"]) == (THREADS, "--threads")
