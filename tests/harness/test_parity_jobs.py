"""`cbs parity --jobs`: parallel cells, failures that only they have, and interruption."""

import json
import os
import signal
import subprocess
import sys

import attrs
import pytest
from tests_support import processes_of, python_path, wait_for

# Two batches. The first model behaves: it makes the truth of all.
MODELS = 40
SECOND_BATCH = 32
SUITE = f"""
import os
import pathlib
import time

from cbs_test_plugin import model
from openxla.benchmark import def_types, testdata

ALL_BENCHMARKS = [
    def_types.BenchmarkCase.build(
        input_data=testdata.INPUT_DATA_MODEL_DEFAULT,
        model=def_types.Model(
            name=f"LANE_{{number:02}}",
            model_impl=def_types.ModelImplementation(
                name="IMPL", framework_type=def_types.ModelFrameworkType.PYTORCH,
                module_path="lanes_suite", architecture="cbs_test_plugin.architecture",
                reference="cbs_test_truth:reference"),
            model_parameters={{"model_name": "toy", "data_type": "fp32", "number": number}}))
    for number in range({MODELS})
]
HERE = pathlib.Path(__file__).parent


def wait_for(name):
    deadline = time.monotonic() + 60
    while not (HERE / name).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no file {{name}} after 60 s")
        time.sleep(0.05)


def create_model(*, number, **parameters):
    behaviour = os.environ["CBS_TEST_BEHAVIOUR"]
    if behaviour == "cramped" and number == 1 and not (HERE / "room").exists():
        # In the worker that had served the first model, and once more in a fresh one.
        (HERE / ("second" if (HERE / "first").exists() else "first")).touch()
        raise MemoryError("no room next to others")
    if behaviour == "cramped" and number == {SECOND_BATCH}:
        wait_for("second")
        (HERE / "room").touch()
    if behaviour == "hangs" and number in (1, {SECOND_BATCH} + 1):
        (HERE / f"hangs-{{number}}").touch()
        time.sleep(3600)
    return model.ToyModel(**parameters)
"""


@attrs.frozen
class Bench:
    """A separate suite, and `cbs parity` on it."""

    directory: object
    environment: dict
    started: list = attrs.field(factory=list)

    @property
    def output(self):
        return self.directory / "matrix.json"

    @property
    def cells(self):
        document = json.loads(self.output.read_text())
        return {cell["case"].split("/")[1]: cell for cell in document["cells"]}

    def start(self, behaviour, *arguments):
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "comparative_benchmark", "parity", "-o", self.output),
                *("--suite", "lanes_suite", "--backend", "test_numpy", "--framework", "pytorch"),
                *("-name", "models/LANE_.+", *arguments),
            ],
            env={**self.environment, "CBS_TEST_BEHAVIOUR": behaviour},
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(process)
        return process


@pytest.fixture
def bench(tmp_path, environment):
    (tmp_path / "lanes_suite.py").write_text(SUITE)
    variables = {"PYTHONPATH": python_path(tmp_path), "CBS_TEST_MARKER": str(tmp_path)}
    bench = Bench(tmp_path, {**environment, **variables})
    yield bench
    # Processes of a failed test would make another one fail, minutes later.
    for process in bench.started:
        with process:
            process.kill()


def test_what_fails_next_to_others_alone_decides(bench):
    """A model has room only when its neighbour, which waits until it has failed, continues."""
    process = bench.start("cramped", "--jobs", "2")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    cramped = bench.cells["LANE_01"]
    assert cramped["status"] == "ok"
    assert "in parallel with other cells" in cramped["note"]
    assert "no room next to others" in cramped["note"]
    assert "rerunning alone" in err
    assert f"[{MODELS}/{MODELS}] ok" in err
    assert all(cell["note"] is None for name, cell in bench.cells.items() if name != "LANE_01")
    assert len({cell["log_file"] for cell in bench.cells.values()}) >= 3


def test_a_failure_without_neighbours_is_one(bench):
    process = bench.start("cramped", "--jobs", "1")
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 1, out
    assert bench.cells["LANE_01"]["note"] is None
    statuses = [cell["status"] for cell in bench.cells.values()]
    assert statuses.count("ok") == MODELS - 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_from_outside_ends_every_lane_and_loses_nothing(bench, number):
    process = bench.start("hangs", "--jobs", "2")
    hanging = [bench.directory / f"hangs-{model}" for model in (1, SECOND_BATCH + 1)]
    wait_for(lambda: all(file.exists() for file in hanging), "both lanes to hang", 120)
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    wait_for(lambda: processes_of(str(bench.directory)) == [], "the workers to be gone")
    assert process.returncode == 130, err
    assert {name: cell["status"] for name, cell in bench.cells.items()} == {
        "LANE_00": "ok",
        f"LANE_{SECOND_BATCH}": "ok",
    }


@pytest.mark.parametrize("jobs", ["0", "-1", "two"])
def test_a_number_of_jobs_that_can_not_be_is_refused(bench, jobs):
    process = bench.start("", "--jobs", jobs)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "--jobs" in err
    assert "Traceback" not in err
