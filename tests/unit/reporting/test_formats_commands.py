"""`cbs export` and `cbs import`, as users type them."""

import io
import json
import sys
from types import SimpleNamespace

import pytest
from formats_support import write_results

from comparative_benchmark.cli import command as cli
from comparative_benchmark.reporting.history import results_files

FORMATS = ("torchbench", "oss-v3", "google-benchmark")


@pytest.fixture
def results(tmp_path, make_trial, finished):
    path = tmp_path / "results.json"
    write_results(path, make_trial, finished)
    return path


def export(*arguments):
    return cli.main(["export", *map(str, arguments)])


def test_export_writes_a_file_and_says_what_is_lost(results, tmp_path, capsys):
    output = tmp_path / "new" / "out.json"
    assert export(results, "--format", "google-benchmark", "-o", output) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "no time): 7 of 10" in said.err
    assert f"wrote {output} (results: 10)" in said.err
    assert len(json.loads(output.read_text())["benchmarks"]) == 11
    # The files are readable for all users.
    assert output.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in output.parent.iterdir()] == ["out.json"]


def test_export_to_standard_output_is_the_document_alone(results, monkeypatch):
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=buffer, flush=lambda: None))
    assert export(results, "--format", "torchbench", "-o", "-") == 0
    assert json.loads(buffer.getvalue())["name"] == "comparative_suite"


def test_export_of_asv_is_a_folder(results, tmp_path, capsys):
    assert export(results, "--format", "asv", "--with-host", "-o", tmp_path / "asv") == 0
    assert (tmp_path / "asv" / "benchmarks.json").is_file()
    assert (tmp_path / "asv" / "a-machine" / "machine.json").is_file()
    file = tmp_path / "file"
    file.touch()
    assert export(results, "--format", "asv", "-o", file) == 1
    assert "choose a directory with -o" in capsys.readouterr().err
    assert export(results, "--format", "csv", "-o", tmp_path) == 1
    assert "is a directory" in capsys.readouterr().err


def test_two_runs_are_told_apart(results, tmp_path, make_trial, finished, capsys):
    second = write_results(results, make_trial, finished, factor=2.0)
    output = tmp_path / "out.json"
    assert export(results, "--format", "torchbench", "-o", output) == 1
    assert "can contain only one run, got 2" in capsys.readouterr().err
    assert not output.exists()
    assert export(results, "--format", "torchbench", "-o", output, "--run", second) == 0
    assert json.loads(output.read_text())["environ"]["run_id"] == second
    assert export(results, "--format", "csv", "-o", output, "--run", "nonsense") == 1
    assert "no results from run 'nonsense'" in capsys.readouterr().err
    assert export(results, "--format", "junit", "-o", output) == 0
    assert output.read_text().count("<testsuite ") == 2


def test_the_same_file_twice_is_one_set_of_results(results, tmp_path):
    output = tmp_path / "out.csv"
    assert export(results, results, "--format", "csv", "-o", output) == 0
    assert len(output.read_text().splitlines()) == 11


def test_damaged_files_are_named_and_the_rest_exported(results, tmp_path, capsys):
    damaged = tmp_path / "damaged.json"
    damaged.write_text("{")
    output = tmp_path / "out.csv"
    assert export(damaged, results, "--format", "csv", "-o", output) == 3
    assert f"skipped: {damaged} is not JSON" in capsys.readouterr().err
    assert len(output.read_text().splitlines()) == 11
    assert export(damaged, "--format", "csv", "-o", output) == 1
    assert f"cbs: {damaged} is not JSON" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["results.json", "others.json"])
def test_results_are_never_written_over(results, capsys, name):
    target = results.with_name(name)
    before = results.read_bytes()
    target.write_bytes(before)
    assert export(results, "--format", "csv", "-o", target) == 1
    assert f"{target} contains results; choose another file" in capsys.readouterr().err
    assert target.read_bytes() == before


def test_an_export_names_no_node_of_a_fleet(results, tmp_path):
    where = {"fleet": "f", "campaign": "", "machine_class": "zen4", "job": "j", "node": "secret-1"}
    document = json.loads(results.read_bytes())
    document["runs"][0]["allocation"] = {
        **where, "engine": "local", "environment_sha256": "0" * 64
    }  # fmt: skip
    results.write_text(json.dumps(document))
    for options, shown in ((), False), (("--with-host",), True):
        assert export(results, "--format", "csv", "-o", tmp_path / "r.csv", *options) == 0
        text = (tmp_path / "r.csv").read_text()
        assert ("secret-1" in text, "a-machine" in text) == (shown, shown)
        assert "(zen4)" in text


def test_a_folder_of_asv_collects_runs(results, tmp_path, capsys):
    folder = tmp_path / "asv"
    document = json.loads(results.read_bytes())
    first, second = document["benchmarks"][:1], document["benchmarks"][1:2]
    other = {**first[0], "definition": {**first[0]["definition"], "device": "gpu"}}
    for records in (first, second, [other]):
        results.write_text(json.dumps({**document, "benchmarks": records}))
        assert export(results, "--format", "asv", "-o", folder) == 0
    benchmarks = json.loads((folder / "benchmarks.json").read_text())
    names = {name for name in benchmarks if name != "version"}
    assert len(names) == 2
    params = [benchmarks[name]["params"][0] for name in names]
    assert sorted(map(len, params)) == [1, 2]
    files = [p for p in folder.glob("*/*.json") if p.name != "machine.json"]
    measured = [set(json.loads(path.read_text())["results"]) for path in files]
    assert set.union(*measured) == names
    (folder / "benchmarks.json").write_text("{")
    assert export(results, "--format", "asv", "-o", folder) == 1
    assert "benchmarks.json is not JSON" in capsys.readouterr().err


def test_a_place_that_can_not_be_written_is_named(results, tmp_path, capsys):
    assert export(results, "--format", "csv", "-o", results / "below.csv") == 1
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize("name", FORMATS)
def test_dry_run_of_an_export_prints_the_same_results(name, results, tmp_path, capsys):
    output = tmp_path / "out.json"
    assert export(results, "--format", name, "-o", output, "--with-host") == 0
    capsys.readouterr()
    assert cli.main(["import", "--dry-run", str(output)]) == 0
    said = capsys.readouterr()
    found = results_files.read(results).results
    lines = [json.loads(line) for line in said.out.splitlines()]
    due = [json.loads(json.dumps(result.as_json())) for result in found]
    assert sorted(lines, key=str) == sorted(due, key=str)
    assert "results read: 10; none stored" in said.err


def test_imports_feed_the_history_once(results, tmp_path, capsys):
    pytest.importorskip("sqlalchemy")
    database = str(tmp_path / "history.sqlite")
    output = tmp_path / "out.json"
    assert export(results, "--format", "torchbench", "-o", output) == 0
    capsys.readouterr()
    assert cli.main(["import", str(output), "--db", database]) == 0
    assert "10 new and 0 known results from 1 file" in capsys.readouterr().err
    # The same results, from their own file: nothing new.
    assert cli.main(["history", "import", str(results), "--db", database]) == 0
    capsys.readouterr()
    assert cli.main(["import", str(output), "--db", database]) == 0
    assert "0 new and 10 known results" in capsys.readouterr().err


def test_what_is_refused_turns_the_exit_code(results, tmp_path, capsys):
    pytest.importorskip("sqlalchemy")
    database = str(tmp_path / "history.sqlite")
    damaged = tmp_path / "damaged.json"
    damaged.write_text('{"a":\n')
    output = tmp_path / "out.json"
    assert export(results, "--format", "oss-v3", "-o", output) == 0
    capsys.readouterr()
    assert cli.main(["import", str(damaged), str(output), "--db", database]) == 3
    said = capsys.readouterr().err
    assert f"refused: {damaged}:2: not JSON" in said
    assert "10 new and 0 known results" in said
    assert cli.main(["import", str(damaged), "--db", database]) == 1


def test_a_foreign_file_can_not_steer_the_terminal(tmp_path, capsys):
    path = tmp_path / "a.json"
    metrics = {"\x1b[2Jb\u009b": []}
    path.write_text(json.dumps({"name": "a", "environ": {}, "metrics": metrics}))
    assert cli.main(["import", "--dry-run", str(path)]) == 1
    said = capsys.readouterr().err
    assert "\\x1b[2Jb\\x9b: Expected `float | str`, got `array`" in said
    assert "\x1b" not in said


def test_parents_load_no_format_and_no_framework(run_python):
    done = run_python(
        "import sys, comparative_benchmark.cli.command\n"
        "bad = ('formats.torchbench', 'pyarrow', 'sqlalchemy', 'torch', 'jax', 'yaml')\n"
        "print([n for n in sys.modules if n.endswith(bad) or n.split('.')[0] in bad])"
    )
    assert done.stdout.strip() == "[]", done.stderr
