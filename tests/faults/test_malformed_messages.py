"""A malformed message of a worker costs its own trial; the run continues."""

import json
import re

import pytest

from comparative_benchmark.engine import session

# Answers of a trial with fixed counts, in their order.
COMMANDS = ("load", "compile", "outputs", "measure", "run_on", "fresh_runs", "compiled_shares")


def without(name):
    """Returns a fault that removes a field."""
    return lambda plain: {key: value for key, value in plain.items() if key != name}


def with_(**fields):
    """Returns a fault that changes fields."""
    return lambda plain: {**plain, **fields}


# Each makes the answer of any command invalid.
FAULTS = {
    "nothing": lambda plain: {},
    "a list": lambda plain: [plain],
    "a text": lambda plain: "answer",
    "null": lambda plain: None,
    "a number": lambda plain: 7,
    "no type": without("type"),
    "a type of None": with_(type=None),
    "a type that is a list": with_(type=["measure"]),
    "an unknown type": with_(type="weird"),
    "only its type": lambda plain: {"type": plain["type"], "id": {}},
    "a greeting": lambda plain: {"type": "hello"},
    "an id that is a text": with_(id="first"),
    "an id that is huge": with_(id=10**40),
    "phases that are a list": with_(phases=[1]),
    "a phase that is a number": with_(phases={"load": 7}),
    "a phase without time": with_(phases={"load": {"host_memory_peak_bytes": 1}}),
    "a negative time": with_(phases={"load": {"ms": -1.0, "host_memory_peak_bytes": None}}),
    "infinite time": with_(phases={"x": {"ms": float("inf"), "host_memory_peak_bytes": 1}}),
    "a phase with an escape": with_(phases={"\x1b[2J": {"ms": 1, "host_memory_peak_bytes": 1}}),
    "negative memory": with_(host_memory_peak_bytes=-1),
    "memory that is a text": with_(host_memory_peak_bytes="much"),
    "huge memory": with_(host_memory_peak_bytes=10**40),
    "an error that is ok": lambda plain: _error(kind="ok"),
    "an error of an unknown kind": lambda plain: _error(kind="weird"),
    "an error without a kind": lambda plain: without("kind")(_error()),
    "an error without a message": lambda plain: without("message")(_error()),
    "an error in a list of phases": lambda plain: _error(phase=["a"]),
    "an error in a phase with an escape": lambda plain: _error(phase="\x1b]0;x\x07"),
    "an error with a number for a traceback": lambda plain: _error(traceback=1),
}
# Faults of fields that only one command has.
OF_COMMANDS = {
    "load": {
        "no versions": without("versions"),
        "versions that are numbers": with_(versions={"torch": 2}),
        "a negative timer": with_(timer_ns=-1.0),
        "no timer": with_(timer_ns=None),
        "variables that are a list": with_(variables=["HOME"]),
    },
    "compile": {
        "no exports": without("exports"),
        "exports that are a text": with_(exports="/etc"),
        "exports that hold numbers": with_(exports={"onnx": [1]}),
    },
    "outputs": {
        "no files": without("files"),
        "files that are a number": with_(files=3),
        "a file that is a text": with_(files=["output_0.npy"]),
        "a file without a shape": with_(files=[{"file": "output_0.npy", "dtype": "f32"}]),
        "a file elsewhere": with_(
            files=[{"file": "../../truth/output_0.npy", "shape": [1], "dtype": "f32"}]
        ),
        "an absolute file": with_(files=[{"file": "/etc/passwd", "shape": [1], "dtype": "f32"}]),
        "a hidden file": with_(files=[{"file": "..", "shape": [1], "dtype": "f32"}]),
        "a missing file": with_(files=[{"file": "output_9.npy", "shape": [1], "dtype": "f32"}]),
        "a negative shape": with_(files=[{"file": "output_0.npy", "shape": [-1], "dtype": "f32"}]),
        "no facts": without("facts"),
        "facts that are a list": with_(facts=[]),
        "facts with a text for a number": with_(facts={"flops": "many"}),
        "no settings": without("effective"),
        "settings with a list for threads": with_(effective={"threads": [1]}),
    },
    "measure": {
        "no block": without("block"),
        "a block that is a list": with_(block=[1.0]),
        "an empty block": with_(block={"latencies_ms": []}),
        "fewer latencies": with_(block={"latencies_ms": [1.0]}),
        "more latencies": with_(block={"latencies_ms": [1.0] * 99}),
        "a negative latency": with_(block={"latencies_ms": [1.0, -1.0]}),
        "NaN": with_(block={"latencies_ms": [1.0, float("nan")]}),
        "a latency that is a text": with_(block={"latencies_ms": ["fast", 1.0]}),
        "conditions that are a number": with_(block={"latencies_ms": [1.0, 1.0], "conditions": 1}),
    },
    "run_on": {
        "no files": without("files"),
        "a missing file": with_(files=[{"file": "output_9.npy", "shape": [1], "dtype": "f32"}]),
    },
    "fresh_runs": {
        "no times": without("runs_ms"),
        "times that are texts": with_(runs_ms=["a"]),
        "negative times": with_(runs_ms=[-1.0]),
        "no times on seen inputs": without("seen_ms"),
        "a reason that is a list": with_(without=["none"]),
    },
    "compiled_shares": {
        "no shares": without("shares"),
        "shares that are a list": with_(shares=[1.0]),
        "a share that is a text": with_(shares={"compiled_share": "all"}),
    },
}
# The default tier tests some of the common faults with one command.
SAMPLE = ("null", "a list", "no type", "an unknown type", "an error that is ok", "huge memory")
CASES = [
    *(("measure", name) for name in SAMPLE),
    *(
        pytest.param(command, name, marks=pytest.mark.nightly)
        for command in COMMANDS
        for name in FAULTS
        if (command, name) not in {("measure", shown) for shown in SAMPLE}
    ),
    *(
        pytest.param(command, name, marks=(pytest.mark.nightly,) * (place > 1))
        for command, faults in OF_COMMANDS.items()
        for place, name in enumerate(faults)
    ),
]


def _error(**fields):
    return {"type": "error", "kind": "failed", "phase": "a", "message": "b", **fields}


@pytest.fixture
def run(cbs, tmp_path, monkeypatch):
    """Runs a toy twice in this process; the first trial gets a malformed answer."""

    def run(command, name):
        fault, decode, changed = {**FAULTS, **OF_COMMANDS.get(command, {})}[name], None, []

        def malformed(plain):
            if isinstance(plain, dict) and plain.get("type") == command and not changed:
                changed.append(plain)
                return decode(fault(plain))
            return decode(plain)

        decode = session.messages.decode
        monkeypatch.setattr(session.messages, "decode", malformed)
        code, _, err = cbs(
            *("run", "--suite", "cbs_test_plugin.suite", "-name", "models/TOY_(NONE|BUSY)/.+"),
            *("--backend", "test_numpy", "-device", "host-cpu", "-w", "2", "-iter", "2"),
            *("--run-in-process", "-o", "r.json"),
        )
        assert changed, "the worker never sent this answer"
        return code, err, json.loads((tmp_path / "r.json").read_text())["benchmarks"]

    return run


@pytest.mark.parametrize(("command", "name"), CASES)
def test_a_malformed_message_costs_its_own_trial(run, command, name):
    code, _, results = run(command, name)
    assert code == 1
    assert sorted(result["status"] for result in results) == ["failed", "ok"]
    [failed] = [result for result in results if result["status"] == "failed"]
    reasons = "malformed message|the worker's outputs|latencies from the worker"
    assert re.search(reasons, failed["reason"])
    assert failed.get("phase")
