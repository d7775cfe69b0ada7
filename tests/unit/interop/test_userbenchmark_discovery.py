"""The available userbenchmarks, the fields of `ci.yaml`, and errors in either."""

import importlib.util
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from comparative_benchmark.cli import command as cli
from comparative_benchmark.interop.userbenchmarks import authoring, suite
from comparative_benchmark.interop.userbenchmarks.runner import (
    CiError,
    MetricsError,
    UserbenchmarkError,
    find,
    find_all,
    find_folder,
    metrics_files,
    read_ci,
    read_metrics,
)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "userbenchmark"
    for name in ("first", "second-one"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(
            f'"""Measures {name}.\n\nMore."""\nraise RuntimeError("imported")\n'
        )
    (folder / "empty").mkdir()
    (folder / ".hidden").mkdir()
    (folder / "utils.py").write_text("")
    return folder


def test_folders_with_a_package_are_found_and_none_is_imported(folder):
    assert [item.name for item in find_all(folder)] == ["first", "second-one"]
    assert find("first", folder).summary == "Measures first."
    assert not find("first", folder).has_detector


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("frist", "did you mean first?"),
        ("nothing-like-it", "no userbenchmark 'nothing-like-it' in"),
        ("empty", "has no __init__.py with run"),
        ("../userbenchmark/first", "no userbenchmark"),
    ],
)
def test_an_unknown_name_is_refused(folder, name, words):
    with pytest.raises(UserbenchmarkError) as error:
        find(name, folder)
    assert words in str(error.value)


def test_the_folder_here_comes_before_that_of_the_checkout(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert find_folder(None) == folder
    with pytest.raises(UserbenchmarkError, match=r"--directory .* is not a directory"):
        find_folder(folder / "none")


def test_those_of_the_suite_are_listed(capsys, tmp_path, monkeypatch):
    pytest.importorskip("yaml")
    monkeypatch.chdir(tmp_path)
    assert cli.main(["userbenchmark", "list", "--json"]) == 0
    found = {item["name"]: item for item in json.loads(capsys.readouterr().out)}
    assert set(found) == {"comparative_suite", "compile_latency", "milabench"}
    assert all(item["has_detector"] for item in found.values())
    # Which scripts it runs is the user's choice, and so is when.
    assert found.pop("milabench")["schedule"] is None
    assert all(item["schedule"] == "nightly" for item in found.values())


def test_list_names_an_invalid_ci_file_and_lists_the_others(folder, capsys):
    pytest.importorskip("yaml")
    (folder / "first" / "ci.yaml").write_text("platform: host-cpu\nschedule: hourly\n")
    (folder / "second-one" / "ci.yaml").write_text("platform: gcp_a100\nschedule: weekly\n")
    assert cli.main(["userbenchmark", "list", "--directory", str(folder)]) == 3
    said = capsys.readouterr()
    assert "schedule 'hourly' is not one of nightly, weekly" in said.err
    assert said.out.startswith("second-one  weekly on gcp_a100; 7 % threshold; Measures second-one")
    arguments = ["userbenchmark", "list", "--schedule", "nightly", "--directory", str(folder)]
    cli.main(arguments)
    assert capsys.readouterr().out == ""


def test_list_notes_a_platform_of_another_ci(folder, capsys):
    pytest.importorskip("yaml")
    (folder / "first" / "ci.yaml").write_text('platform: "ai_cluster"\nschedule: nightly\n')
    assert cli.main(["userbenchmark", "list", "--directory", str(folder)]) == 0
    said = capsys.readouterr()
    assert "first       nightly on ai_cluster; 7 % threshold" in said.out
    assert "second-one  no CI" in said.out
    assert f"note: {folder / 'first' / 'ci.yaml'}: platform 'ai_cluster' is not one of" in said.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("platform: gcp_a100\nschedule: nightly\nfoo: 1\n", "unknown key 'foo'"),
        ("platform: [gcp_a100]\nschedule: nightly\n", "is not one of"),
        ("schedule: nightly\n", "'platform' is missing"),
        ("- a\n", "expected a mapping with 'platform' and 'schedule'"),
        ("", "is empty"),
        ("platform: 'gcp\nschedule: :\n", "ci.yaml:"),
        ("!!python/object/apply:os.system [id]\n", "is not supported"),
        ("platform: gcp_a100\nschedule: 2020-13-45\n", "schedule '2020-13-45' is not one of"),
        ('platform: "\\U00110000"\n', "cannot be read"),
        ('platform: "\\UFFFFFFFF"\n', "cannot be read"),
        ('!!int "": 1\n', "is not supported"),
    ],
)
def test_an_invalid_ci_file_is_refused_by_name(tmp_path, text, words):
    pytest.importorskip("yaml")
    path = tmp_path / "ci.yaml"
    path.write_text(text)
    with pytest.raises(CiError) as error:
        read_ci(path)
    assert str(path) in str(error.value)
    assert words in str(error.value)


def test_a_file_in_bytes_that_are_no_text_is_refused(tmp_path):
    pytest.importorskip("yaml")
    path = tmp_path / "ci.yaml"
    path.write_bytes(b"platform: \xff\n")
    with pytest.raises(CiError, match="cannot be read: 'utf-8' codec"):
        read_ci(path)


def test_no_ci_file_is_no_ci(tmp_path):
    assert read_ci(tmp_path / "ci.yaml") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "a.json:1: not JSON"),
        ("[]", "not a metrics file: Expected `object`"),
        ('{"name": "x", "environ": {}}', "missing required field `metrics`"),
        ('{"name": "x", "environ": {}, "metrics": {"a": null}}', "'a': None"),
        ('{"name": "x", "environ": {}, "metrics": {"a": NaN}}', "'a': None"),
        ('{"name": "x", "environ": {}, "metrics": {"a": true}}', "'a': True"),
        ('{"name": "y", "environ": {}, "metrics": {}}', "belongs to userbenchmark 'y', not 'x'"),
    ],
)
def test_damaged_metrics_are_refused_by_name(tmp_path, text, words):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(MetricsError) as error:
        read_metrics(path, "x")
    assert str(path) in str(error.value)
    assert words in str(error.value)


def test_what_authors_write_is_what_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv(authoring.OUTPUT_VARIABLE, str(tmp_path))
    for _ in range(3):
        # Three in one second are three files.
        authoring.dump_output("mine", authoring.get_output_json("mine", {"a": 1.0, "b": "failed"}))
    paths = metrics_files(tmp_path / "mine")
    assert len(paths) == 3
    document = read_metrics(paths[0], "mine")
    assert document["metrics"] == {"a": 1.0, "b": "failed"}
    assert document["environ"]["metrics_version"] == "v0.1"
    with pytest.raises(ValueError, match="not JSON compliant"):
        authoring.dump_output("mine", authoring.get_output_json("mine", {"a": float("nan")}))
    assert len(metrics_files(tmp_path / "mine")) == 3


def _versions(run_python, tmp_path, text):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (tmp_path / "torch" / "version.py").write_text(text)
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from comparative_benchmark.interop.userbenchmarks.authoring import get_output_json\n"
        "environ = get_output_json('mine', {})['environ']\n"
        "print(environ['pytorch_version'], environ['pytorch_git_version'])"
    )
    done = run_python(program, str(tmp_path))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("__version__ = '9.8.7+cpu'\ngit_version = 'abc'\nhip = None\n", ["9.8.7+cpu", "abc"]),
        ("from x import y\n__version__: str = '9.8'\n", ["9.8", "<unknown>"]),
        ("git_version = str('abc')\n", ["<unknown>", "<unknown>"]),
        ("git_version = (\n", ["<unknown>", "<unknown>"]),
    ],
)
def test_versions_of_pytorch_are_told_without_an_import(run_python, tmp_path, text, told):
    assert _versions(run_python, tmp_path, text) == told


def test_what_torchbench_imports_from_utils_is_there():
    path = Path(cli.__file__).parents[2] / "userbenchmark" / "utils.py"
    spec = importlib.util.spec_from_file_location("utils_of_userbenchmark", path)
    utils = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(utils)
    assert path.parents[1] == utils.REPO_PATH
    for name in ("dump_output", "get_output_dir", "TorchBenchABTestMetric", "add_path"):
        assert getattr(utils, name) is getattr(authoring, name)
    result = utils.TorchBenchABTestResult("a", {}, {}, {})
    assert (result.bisection, result.bisection_mode) == ("pytorch", "bisect")


@pytest.mark.parametrize(
    ("code", "results", "expected"),
    [
        *((0, ["r"], 0), (2, ["r"], 2), (3, ["r"], 3)),
        *((1, ["r"], 3), (4, ["r"], 3)),
        *((1, [], 1), (4, [], 1), (1, None, 1)),
        *((130, ["r"], 1), (-9, ["r"], 1)),
    ],
)
def test_a_failed_case_costs_no_other_metric(tmp_path, monkeypatch, code, results, expected):
    monkeypatch.setenv(authoring.OUTPUT_VARIABLE, str(tmp_path))

    def cbs(command, **_):
        if results is not None:
            path = Path(command[-1])
            path.parent.mkdir()
            path.touch()
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(subprocess, "run", cbs)
    stored = SimpleNamespace(results=results, refused=())
    monkeypatch.setattr(suite.results_files, "read", lambda _: stored)
    document = {"name": "mine", "environ": {"pytorch_version": ""}, "metrics": {"a": "crashed"}}
    monkeypatch.setattr(suite, "document_of", lambda *_: document)
    assert suite.run("mine", ["--backend", "x"]) == expected
    written = [read_metrics(path) for path in metrics_files(tmp_path / "mine")]
    assert written == ([document] if expected != 1 else [])
