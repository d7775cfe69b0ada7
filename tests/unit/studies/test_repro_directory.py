"""The directory of `cbs repro`: made as a whole or not at all, also where nothing is exported."""

import json
import os
from pathlib import Path

import attrs
import msgspec
import numpy as np
import pytest
from repro_support import results_file
from results_support import completed

from comparative_benchmark import iree
from comparative_benchmark.api import recorded_trials
from comparative_benchmark.backends import api, host_settings
from comparative_benchmark.backends.exported_programs import Command, Exported, export
from comparative_benchmark.cli import command as cli
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import cases_of
from comparative_benchmark.results.record import Status
from comparative_benchmark.studies.reproduce import creating, writing
from openxla.benchmark.devices import HOST_CPU

SUITE = "cbs_test_plugin.suite"
TASK = {"reproducer": "comparative_benchmark.onnxruntime.backend:export_reproducer"}
TOY = "models/TOY_NONE/inputs/INPUT_DATA_MODEL_DEFAULT"


def prepare_nothing(*_):
    raise AssertionError("bad input came as far as starting a worker")


@pytest.fixture
def repro(capsys, tmp_path, monkeypatch):
    """Runs `cbs repro` in this process; returns the exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)

    def run(*arguments):
        code = cli.main(["repro", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Writes results of a case that needs no framework, and whose export fails."""

    def broken(name):
        info = api.get_backend(name)
        return attrs.evolve(info, reproducer="cbs_test_plugin.reproducer:no_such_function")

    monkeypatch.setattr(recorded_trials, "get_backend", broken)

    def write(**changes):
        return results_file(tmp_path / "r.json", TOY, "test_numpy:direct", [SUITE], **changes)

    return write


FAILED = {
    "status": "failed",
    "phase": "lower",
    "reason": "RuntimeError: no such operation",
    "traceback": "Traceback: recorded",
    "versions": {"numpy": "2.0.0+local"},
}


def test_where_the_export_fails_the_directory_says_so_and_repeats_it(repro, toy, tmp_path):
    code, out, err = repro(toy(**FAILED), "TOY", "-o", "made", "--suite", SUITE)
    assert code == 0, err
    made = tmp_path / "made"
    assert out.strip() == str(made)
    assert "no_such_function" in (made / "traceback.txt").read_text()
    readme = (made / "README.md").read_text()
    for words in ("cannot be exported", "**failed** in `lower`", "Traceback: recorded", "abc123"):
        assert words in readme
    assert "## Run it" not in readme
    assert not (made / "run.py").exists()
    assert (made / "requirements.txt").read_text() == "numpy==2.0.0  # 2.0.0+local\n"
    task = json.loads((made / "export.json").read_text())
    assert task["reproducer"] == "cbs_test_plugin.reproducer:no_such_function"
    assert task["context"]["compiler"] == "direct"
    assert task["definition"]["module_path"] == "cbs_test_plugin.model"
    assert str(tmp_path) not in (made / "export.json").read_text()
    compile((made / "export.py").read_text(), "export.py", "exec")
    assert len(list((made / "inputs").iterdir())) > 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".made")) == []


@pytest.mark.slow
def test_a_backend_of_another_package_has_a_reproducer(repro, tmp_path):
    results = results_file(tmp_path / "r.json", TOY, "test_numpy:direct", [SUITE])
    code, out, err = repro(results, "TOY", "-o", "made", "--suite", SUITE, "--check")
    assert code == 0, err
    made = tmp_path / "made"
    assert out.strip() == str(made)
    assert (made / "run.py").read_text().startswith('"""Calls the toy model')
    assert (made / "program.npz").exists()
    assert "PASS\nexit code 0" in (made / "README.md").read_text()
    requirements = (made / "requirements.txt").read_text().splitlines()
    assert requirements == [f"numpy=={np.__version__}"]


@pytest.mark.slow
def test_a_result_that_was_measured_and_can_not_be_exported_exits_with_1(repro, toy, tmp_path):
    code, _, err = repro(toy(), "TOY", "-o", "made", "--suite", SUITE)
    assert code == 1
    assert "no program exported: failed" in err
    assert (tmp_path / "made" / "README.md").exists()


def test_what_was_published_is_named(repro, toy, tmp_path):
    source = {"model": "TOY_NONE", "url": "gs://bucket/toy", "manifest_sha256": "ab" * 32}
    program = {**source, "types": ["stablehlo_mlir"], "digests": {}}
    level = {"artifact_source": source, "program_source": program}
    results = toy(**FAILED, metrics={"framework_level": level})
    code, _, err = repro(results, "TOY_NONE", "-o", tmp_path / "made", "--suite", SUITE)
    assert code == 0, err
    page = (tmp_path / "made" / "README.md").read_text()
    publication = f"gs://bucket/toy (manifest sha256 {'ab' * 32})"
    assert f"- Measured with the published artifacts from {publication}." in page
    assert f"- The measured program (stablehlo_mlir) was published at {publication}; " in page


def test_where_there_is_no_truth_nothing_is_made(repro, toy, tmp_path, monkeypatch):
    monkeypatch.setattr(creating, "Preparation", _Failing)
    code, _, err = repro(toy(), "TOY", "-o", "made", "--suite", SUITE)
    assert code == 1
    assert "inputs and expected outputs cannot be created (failed in reference: no memory)" in err
    assert [path.name for path in tmp_path.iterdir() if "made" in path.name] == []


class _Failing:
    def __init__(self, *_):
        self.failures = {}

    def run(self, trials):
        ended = SessionEnded(Status.FAILED, "reference", "no memory")
        self.failures = {trials[0].case.name: ended}


def test_a_directory_that_is_in_use_is_refused_at_once(repro, toy, tmp_path, monkeypatch):
    monkeypatch.setattr(creating, "Preparation", prepare_nothing)
    used = tmp_path / "used"
    used.mkdir()
    (used / "file").write_text("content")
    code, _, err = repro(toy(), "TOY", "-o", used, "--suite", SUITE)
    assert code == 1
    assert "is not empty" in err
    code, _, err = repro(toy(), "TOY", "-o", used / "file", "--suite", SUITE)
    assert code == 1
    assert "is not a directory" in err
    assert (used / "file").read_text() == "content"


def test_results_that_are_not_there_or_foreign_are_named(repro, tmp_path):
    code, _, err = repro("nowhere.json", "X")
    assert (code, "nowhere.json does not exist" in err) == (1, True)
    (tmp_path / "r.json").write_text("{}")
    code, _, err = repro("r.json", "X")
    assert (code, "is not a results file" in err) == (1, True)


def _built_with(target, meanwhile):
    with creating._built(target) as partial:
        (partial / "file").write_text("content")
        meanwhile()


def test_a_directory_is_made_as_a_whole(tmp_path):
    target = tmp_path / "made"
    target.mkdir()  # empty: taken
    with creating._built(target) as partial:
        (partial / "file").write_text("content")
        assert list(target.iterdir()) == []
    assert (target / "file").read_text() == "content"
    assert target.stat().st_mode & 0o777 == 0o755
    with pytest.raises(ZeroDivisionError):
        _built_with(tmp_path / "other", lambda: 1 / 0)
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_a_directory_that_appears_meanwhile_is_left_as_it_is(tmp_path):
    target = tmp_path / "made"

    def appear():
        target.mkdir()
        (target / "theirs").write_text("content")

    with pytest.raises(UsageError, match="cannot be created"):
        _built_with(target, appear)
    assert [path.name for path in tmp_path.rglob("*")] == ["made", "theirs"]


def exported(**changes):
    fields = {
        "settings": {"level": "ORT_ENABLE_ALL", "threads": 3, "call": "run = None"},
        "packages": ("onnxruntime", "numpy"),
        "files": {},
    }
    return Exported(**{**fields, **changes})


def recorded(**changes):
    installed = [{"name": "OnnxRuntime", "version": "1.0"}, {"name": "numpy", "version": "1.9"}]
    run = {"run_id": "r", "execution_environment": {"python_environment": installed}}
    level = {"median_latency_ms": 1.23456}
    record = {"run_id": "r", "versions": {"numpy": "2.1.0"}, "metrics": {"compiler_level": level}}
    (case,) = cases_of(completed({"runs": [run], "benchmarks": [record | changes]}))
    return case


def test_requirements_are_the_versions_that_were_measured(tmp_path):
    outcome = writing.Outcome(
        exported=exported(packages=("onnxruntime", "numpy", "ml_dtypes", "nothing")),
        versions={"onnxruntime": "9.9", "ml_dtypes": "0.5"},
        ended=None,
        task=TASK,
    )
    (tmp_path / "expected.json").write_text("{}")
    writing.write_scripts(tmp_path, recorded(), outcome)
    assert (tmp_path / "requirements.txt").read_text().splitlines() == [
        "onnxruntime==1.0",
        "numpy==2.1.0",
        "ml_dtypes==0.5",
        "nothing  # unknown version",
    ]
    expected = json.loads((tmp_path / "expected.json").read_text())
    assert expected["recorded"] == "ok, median 1.235 ms"


@pytest.mark.parametrize(
    ("versions", "message"),
    [
        ({"numpy": "0.10.2\n--index-url http://h\nbackdoor==1.0"}, "invalid version for numpy"),
        ({"numpy": "1.0; import os"}, "invalid version for numpy"),
        ({"numpy": "@ http://h/x.whl"}, "invalid version for numpy"),
        ({"a\n--index-url http://h": "1.0"}, "invalid package name"),
        ({"-r other.txt": "1.0"}, "invalid package name"),
    ],
)
def test_a_results_file_adds_no_lines_to_the_requirements(tmp_path, versions, message):
    # Without an export the names come from the file.
    ended = SessionEnded(Status.FAILED, "export", "it does not export")
    outcome = writing.Outcome(exported=None, versions={}, ended=ended, task=TASK)
    (tmp_path / "expected.json").write_text("{}")
    with pytest.raises(UsageError, match=message):
        writing.write_scripts(tmp_path, recorded(versions=versions), outcome)
    assert not (tmp_path / "requirements.txt").exists()


def test_commands_can_be_pasted(tmp_path):
    commands = (
        Command(comment="Runs.", arguments=("tool", "--flag=a b", "--input=@x.npy", "--last")),
        Command(comment="Times.", arguments=("other",), is_packaged=False),
    )
    outcome = writing.Outcome(
        exported=exported(commands=commands), versions={}, ended=None, task=TASK
    )
    (tmp_path / "expected.json").write_text("{}")
    writing.write_scripts(tmp_path, recorded(), outcome)
    assert (tmp_path / "commands.sh").read_text().splitlines() == [
        "#!/bin/sh",
        "# Run in this directory.",
        "# Runs.",
        "tool \\",
        "  '--flag=a b' \\",
        "  --input=@x.npy \\",
        "  --last",
        "# Times. Not installed by requirements.txt.",
        "other",
    ]


def test_what_a_worker_answers_is_read_as_it_was_written():
    one = exported(commands=(Command(comment="C", arguments=("a", "b")),), notes=("n",))
    answer = json.loads(json.dumps(attrs.asdict(one)))
    assert msgspec.convert(answer, Exported) == one


@pytest.mark.parametrize("recipe", ["int8wo", "intx-4-64", "of_torchaos_guide"])
def test_a_result_with_a_recipe_has_no_reproducer(tmp_path, recipe):
    context = {
        "compiler": "latency",
        "options": ["widened", recipe],
        "device": attrs.asdict(HOST_CPU),
        "threads": 1,
        "work_dir": str(tmp_path),
    }
    with pytest.raises(api.UnsupportedError, match=rf"recipes \({recipe}\): measure the case wit"):
        export(
            reproducer="no_such_module:export",
            context=context,
            definition={"module_path": "cbs_test_plugin.model", "parameters": {}},
            inputs=[],
            directory=str(tmp_path),
        )


@pytest.mark.parametrize(
    "siblings", [["0-1", "0-1", "2-3", "2-3"], ["0,2", "1,3", "0,2", "1,3"], []]
)
def test_irees_script_runs_on_the_cpus_of_the_measurement(tmp_path, monkeypatch, siblings):
    for cpu, told in enumerate(siblings):
        file = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        file.parent.mkdir(parents=True)
        file.write_text(f"{told}\n")
    script = Path(iree.__file__).with_name("run.py.txt").read_text()
    choice = script[script.index("def core") : script.index("rt.flags")]
    names = {"THREADS": 2, "os": os, "Path": lambda path: tmp_path / path.removeprefix("/")}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 2, 1, 0})
    exec(choice, names)
    assert names["cpus"] == sorted(host_settings.spread(range(4), tmp_path)[:2])
