"""Runs on further inputs: the suite's, and a user's own."""

import json

import numpy as np
import pytest
from cbs_test_plugin.generator import BATCH, PROMPT

TEXT = ("--suite", "cbs_test_plugin.generating_suite", "--backend", "test_numpy")
COUNTS = ("-w", "0", "-iter", "1")
ONE = (*TEXT, "-name", "models/TEXT_NONE/.+", *COUNTS)
IDS = np.arange(BATCH * PROMPT, dtype=np.int32).reshape(BATCH, PROMPT)


@pytest.fixture
def given(tmp_path):
    """A folder with one input."""
    directory = tmp_path / "given"
    directory.mkdir()
    np.save(directory / "input_0.npy", IDS)
    return directory


def test_a_users_inputs_are_run_and_named(cbs_run, given, tmp_path):
    root = tmp_path / "root"
    run = cbs_run(*ONE, "--inputs", str(given), "--root-dir", str(root))
    assert run.code == 0, run.out + run.err
    [record] = run.document["benchmarks"]
    definition = record["definition"]
    assert definition["benchmark_name"] == f"models/TEXT_NONE/inputs/{definition['input_data']}"
    digest = definition["workload"]["input_digest"]
    assert definition["input_data"] == f"USER_{digest[:8]}"
    assert definition["input_source"] == str(given)
    [kept] = root.glob("workloads/*/inputs/input_0.npy")
    assert np.array_equal(np.load(kept), IDS)


def test_other_inputs_are_another_workload_with_another_truth(cbs_run, given):
    first = cbs_run(*ONE, "--inputs", str(given))
    np.save(given / "input_0.npy", IDS + 1)
    second = cbs_run(*ONE, "--inputs", str(given))
    assert (first.code, second.code) == (0, 0)
    one, other = second.document["benchmarks"]
    assert one["definition"]["workload"]["digest"] != other["definition"]["workload"]["digest"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (IDS.astype(np.int64), "input_0.npy is 2x6xi64, but TEXT_NONE takes 2x6xi32"),
        (IDS[:1], "input_0.npy is 1x6xi32, but TEXT_NONE takes 2x6xi32"),
    ],
)
def test_wrong_inputs_are_a_users_mistake_told_in_a_sentence(cbs_run, given, value, message):
    np.save(given / "input_0.npy", value)
    run = cbs_run(*ONE, "--inputs", str(given))
    assert run.code == 1
    assert message in run.err
    assert "Traceback" not in run.err
    assert not run.output.exists()


def test_what_fails_on_a_users_inputs_explains_how_to_run_it_again(cbs_run, given):
    run = cbs_run(*(*TEXT, "-name", "models/TEXT_STALE_CACHE/.+"), *COUNTS, "--inputs", str(given))
    assert run.statuses == {"TEXT_STALE_CACHE test_numpy:direct": "wrong_output"}
    again = next(line for line in run.out.splitlines() if "again: cbs run" in line)
    assert "-name models/TEXT_STALE_CACHE/inputs/INPUT_DATA_MODEL_DEFAULT" in again
    assert f"--inputs {given}" in again


def test_short_and_long_inputs_reach_the_model(cbs_run, tmp_path):
    (tmp_path / "sets_suite.py").write_text(
        "from cbs_test_plugin.generating_suite import MODELS\n"
        "from openxla.benchmark.comparative_suite import utils\n"
        "ALL_BENCHMARKS = utils.build_input_set_cases(MODELS[:1])\n"
    )
    root = tmp_path / "root"
    run = cbs_run(
        *("--suite", "sets_suite", "--backend", "test_numpy", *COUNTS),
        *("-name", "models/TEXT_NONE/.+", "--root-dir", str(root)),
    )
    assert run.code == 0, run.out + run.err
    names = [record["definition"]["input_data"] for record in run.document["benchmarks"]]
    assert names == ["INPUT_DATA_SHORT", "INPUT_DATA_LONG"]
    short, long = (
        np.load(path.parent / "inputs" / "input_0.npy")
        for name in names
        for path in root.glob("workloads/*/manifest.json")
        if name in json.loads(path.read_text())["producer"]["benchmark_name"]
    )
    assert not np.array_equal(short, long)
