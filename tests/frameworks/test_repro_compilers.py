"""Reproducers of IREE and XLA run in environments with only the compiler.

The tests make the environments without an index. Of the installed packages, the ones in
`requirements.txt` are linked into a new virtual environment; see `repro_support.FreshEnvironment`.
"""

import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from repro_support import FreshEnvironment, make
from tests_support import run_cbs

pytestmark = pytest.mark.frameworks
pytest.importorskip("jaxlib")
pytest.importorskip("iree.compiler")

BERT = "models/BERT_TINY_FP32_JAX_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"
COMPETITORS = ("iree:llvm-cpu", "xla_hlo:stablehlo")
IREE, XLA = COMPETITORS
# IREE in the default tier, whose tools are tested as well; `--all` has both.
BOTH = (IREE, pytest.param(XLA, marks=pytest.mark.nightly))
# Packages in `requirements.txt`, and packages that a new environment must not have.
PACKAGES = {
    "iree": ("iree-base-compiler", "iree-base-runtime", "numpy", "ml_dtypes"),
    "xla_hlo": ("jaxlib", "numpy", "ml_dtypes"),
}
ABSENT = "jax flax torch tensorflow openxla comparative_benchmark attrs"
LOOK = f"""
import importlib.util as u
print([name for name in {ABSENT.split()} if u.find_spec(name)])
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory, environment):
    run = run_cbs(
        *("--backend", ",".join(COMPETITORS), "-name", BERT, "-w", "1", "-iter", "3"),
        directory=tmp_path_factory.mktemp("measured"),
        environment=environment,
    )
    assert set(run.statuses.values()) == {"ok"}, run.out + run.err
    return run


@pytest.fixture(scope="module")
def made(measured, tmp_path_factory, environment):
    """Makes reproducers, and moves each to another place."""
    made = {}

    def of(competitor):
        if competitor not in made:
            folder = tmp_path_factory.mktemp("made")
            done = make(
                measured.output, folder / "x", "--backend", competitor, environment=environment
            )
            assert done.returncode == 0, done.stderr
            elsewhere = tmp_path_factory.mktemp("elsewhere") / "reproducer"
            made[competitor] = (folder / "x").rename(elsewhere)
        return made[competitor]

    return of


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    environments = {}

    def of(competitor):
        backend = competitor.partition(":")[0]
        if backend not in environments:
            directory = tmp_path_factory.mktemp(f"only-{backend}") / "venv"
            environments[backend] = FreshEnvironment(directory, PACKAGES[backend])
        return environments[backend]

    return of


@pytest.fixture
def copy_of(made, tmp_path):
    """Gives a copy of a reproducer that a test may change."""
    return lambda competitor: shutil.copytree(made(competitor), tmp_path / "copy")


def only(measured, competitor):
    (record,) = [
        record
        for record in measured.document["benchmarks"]
        if competitor == f"{record['definition']['backend']}:{record['definition']['compiler']}"
    ]
    return record


def test_irees_commands_run_on_the_cpus_of_the_measurement(monkeypatch):
    from comparative_benchmark.iree import compilation

    monkeypatch.setattr(compilation.runtime, "pinned_cpus", lambda threads: (0, 2)[:threads])
    task = SimpleNamespace(context=SimpleNamespace(threads=2), inputs=())
    for command in compilation._commands(task, "onnx", ())[1:]:
        assert "--task_topology_cpu_ids=0,2" in command.arguments


@pytest.mark.parametrize("competitor", BOTH)
def test_a_reproducer_runs_where_only_the_compiler_is_installed(
    made, fresh, copy_of, measured, competitor
):
    environment, directory = fresh(competitor), copy_of(competitor)
    names = {
        line.partition("==")[0]
        for line in (directory / "requirements.txt").read_text().splitlines()
    }
    assert names == set(PACKAGES[competitor.partition(":")[0]])
    looked = environment.run(str(environment.python), "-c", LOOK, cwd=directory)
    assert looked.stdout.strip() == "[]", looked.stderr
    done = environment.run(str(environment.python), "run.py", cwd=directory.parent / "copy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
    assert "recorded: ok, median" in done.stdout
    assert "relative error" in done.stdout
    if competitor == IREE:
        program = only(measured, competitor)["metrics"]["compiler_level"]["program"]
        assert program["artifact_sha256"] in done.stdout


def test_irees_own_tools_run_the_same_program(fresh, copy_of):
    environment, directory = fresh(IREE), copy_of(IREE)
    done = environment.run("sh", "-e", "commands.sh", cwd=directory)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "result[0]: hal.buffer_view" in done.stdout
    assert "BM_main" in done.stdout + done.stderr


@pytest.mark.parametrize("competitor", BOTH)
def test_a_wrong_output_is_reported_with_its_error(fresh, copy_of, competitor):
    environment, directory = fresh(competitor), copy_of(competitor)
    truth = directory / "expected" / "truth_0.npy"
    np.save(truth, np.load(truth) * 1.25)
    done = environment.run(str(environment.python), "run.py", cwd=directory)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "FAIL: output 0: relative error 0.2" in done.stdout


@pytest.mark.parametrize("competitor", BOTH)
def test_a_program_that_the_compiler_refuses_ends_with_its_error(fresh, copy_of, competitor):
    environment, directory = fresh(competitor), copy_of(competitor)
    program = directory / "program.mlirbc"
    program.write_bytes(program.read_bytes()[:-200])
    done = environment.run(str(environment.python), "run.py", cwd=directory)
    assert done.returncode == 1
    assert "Error" in done.stderr
    assert "PASS" not in done.stdout


@pytest.mark.parametrize("competitor", BOTH)
def test_the_page_says_what_was_measured_and_where(made, measured, competitor):
    directory = made(competitor)
    readme = (directory / "README.md").read_text()
    record = only(measured, competitor)
    host = measured.document["runs"][0]["execution_environment"]["host"]
    for words in (
        BERT,
        competitor,
        "**ok**",
        host["cpu_model"],
        record["metrics"]["compiler_level"]["program"]["artifact_sha256"],
        "python run.py",
        "iree-run-module" if competitor == IREE else "hlo_runner_main",
    ):
        assert words in readme
    kept = json.loads((directory / "result.json").read_text())
    assert kept["result"] == record
    for name in ("README.md", "run.py", "commands.sh", "expected.json", "export.json"):
        assert str(measured.output.parent) not in (directory / name).read_text()


@pytest.mark.nightly
def test_the_export_can_be_repeated_where_the_suite_is(copy_of, environment):
    directory = copy_of(XLA)
    done = subprocess.run(
        [sys.executable, "export.py"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for name in ("program.mlirbc", "program.hlo.txt"):
        assert (directory / "exported" / name).read_bytes() == (directory / name).read_bytes()
