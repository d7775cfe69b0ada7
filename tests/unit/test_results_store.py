"""The results file: nothing is lost, nothing foreign is touched."""

import json
import os
import subprocess
import sys

import pytest

from comparative_benchmark.results import store
from comparative_benchmark.results.codec import ResultsFileError
from comparative_benchmark.results.store import ResultsFile

ENVIRONMENT = {"python_environment": [], "host": {}}


def start(path):
    file = ResultsFile(path)
    run_id = file.start_run(execution_environment=ENVIRONMENT, command=["cbs"])
    return file, run_id


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_the_first_run_makes_the_file_and_its_folders(tmp_path):
    path = tmp_path / "new" / "folder" / "results.json"
    file, run_id = start(path)
    document = read(path)
    assert document["schema_version"] == 1
    assert [run["run_id"] for run in document["runs"]] == [run_id]
    assert document["benchmarks"] == file.records() == []
    assert path.stat().st_mode & 0o777 == 0o644


def test_there_are_no_records_where_there_is_no_file(tmp_path):
    assert ResultsFile(tmp_path / "results.json").records() == []
    assert list(tmp_path.iterdir()) == []


def test_appending_keeps_what_is_there_and_the_order(tmp_path):
    file, _ = start(tmp_path / "results.json")
    for number in range(5):
        file.append({"n": number})
    assert [record["n"] for record in file.records()] == list(range(5))


def test_a_second_run_is_added_and_stands_where_the_seeds_readers_look(tmp_path):
    path = tmp_path / "results.json"
    file, first = start(path)
    file.append({"n": 1})
    second = ResultsFile(path).start_run(
        execution_environment={**ENVIRONMENT, "host": {"x": 1}}, command=["cbs", "again"]
    )
    document = read(path)
    assert [run["run_id"] for run in document["runs"]] == [first, second]
    assert first != second
    assert document["trigger"]["command"] == ["cbs", "again"]
    assert document["execution_environment"]["host"] == {"x": 1}
    assert document["benchmarks"] == [{"n": 1}]


def test_keys_that_a_later_program_added_are_kept(tmp_path):
    path = tmp_path / "results.json"
    file, _ = start(path)
    path.write_text(json.dumps({**read(path), "extra": [1]}))
    file.append({"n": 1})
    assert read(path)["extra"] == [1]


WRITER = """
import sys
from pathlib import Path
from comparative_benchmark.results.store import ResultsFile
file = ResultsFile(Path(sys.argv[1]))
file.start_run(execution_environment={}, command=[])
for number in range(int(sys.argv[3])):
    file.append({"writer": sys.argv[2], "n": number, "ballast": "x" * 10000})
"""


def test_concurrent_writers_lose_nothing_and_readers_see_whole_files(tmp_path):
    path, count = tmp_path / "results.json", 15
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(name), str(count)])
        for name in range(4)
    ]
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            read(path)  # raises if it ever is half a file
    assert [writer.wait() for writer in writers] == [0] * 4
    document = read(path)
    assert len(document["runs"]) == 4
    for name in range(4):
        numbers = [r["n"] for r in document["benchmarks"] if r["writer"] == str(name)]
        assert numbers == list(range(count))
    leftovers = {entry.name for entry in tmp_path.iterdir()} - {path.name, f".{path.name}.lock"}
    assert not leftovers


FOREIGN = {
    "foreign object": b'{"a": 1}',
    "foreign list": b"[1, 2]",
    "number": b"7",
    "the seed's file": b'{"trigger": {}, "execution_environment": {}, "benchmarks": []}',
    "newer schema": b'{"schema_version": 2, "runs": [{}], "benchmarks": []}',
    "schema version of another kind": b'{"schema_version": "1", "runs": [{}], "benchmarks": []}',
    "schema version true": b'{"schema_version": true, "runs": [{}], "benchmarks": []}',
    "no lists": b'{"schema_version": 1, "runs": {}, "benchmarks": []}',
    "no runs": b'{"schema_version": 1, "runs": [], "benchmarks": []}',
    "half-written": b'{"schema_version": 1, "runs": [{"run_id": "x"',
    "empty": b"",
    "no text": b"\xff\xfe\x00\x01",
    "no JSON": b"name,latency\nx,1\n",
    "deeply nested": b"[" * 100_000,
}


@pytest.mark.parametrize("content", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_file_is_refused_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "results.json"
    path.write_bytes(content)
    file = ResultsFile(path)
    for action in (
        file.records,
        lambda: file.append({"n": 1}),
        lambda: file.start_run(execution_environment={}, command=[]),
    ):
        with pytest.raises(ResultsFileError, match=r"results\.json"):
            action()
        assert path.read_bytes() == content


def test_a_newer_schema_is_named_as_such(tmp_path):
    path = tmp_path / "results.json"
    path.write_bytes(FOREIGN["newer schema"])
    with pytest.raises(ResultsFileError, match="schema version 2, this program writes 1"):
        ResultsFile(path).records()


def test_a_directory_is_refused(tmp_path):
    path = tmp_path / "results.json"
    path.mkdir()
    for action in (ResultsFile(path).records, lambda: ResultsFile(path).append({})):
        with pytest.raises(ResultsFileError, match=r"results\.json"):
            action()
    assert list(path.iterdir()) == []


def test_a_parent_that_is_a_file_is_refused(tmp_path):
    parent = tmp_path / "file"
    parent.write_bytes(b"content")
    with pytest.raises(ResultsFileError, match="can not be written"):
        start(parent / "results.json")
    assert parent.read_bytes() == b"content"


def test_a_parent_where_nothing_can_be_made_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(store, "_LOCK_TIMEOUT_S", 0.2)
    with pytest.raises(ResultsFileError, match="can not be written"):
        start(store.Path("/proc/results.json"))


@pytest.mark.parametrize("broken", ["fsync", "fdopen"])
def test_a_disk_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, broken):
    path = tmp_path / "results.json"
    file, _ = start(path)
    file.append({"n": 1})
    before = path.read_bytes(), {entry.name for entry in tmp_path.iterdir()}

    def fail(descriptor, *_, **__):
        if broken == "fdopen":
            os.close(descriptor)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store.os, broken, fail)
        with pytest.raises(ResultsFileError, match="No space left"):
            file.append({"n": 2})
    assert (path.read_bytes(), {entry.name for entry in tmp_path.iterdir()}) == before
    file.append({"n": 3})
    assert [record["n"] for record in file.records()] == [1, 3]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_a_record_that_is_no_json_is_refused_and_the_file_stays(tmp_path, value):
    path = tmp_path / "results.json"
    file, _ = start(path)
    before = path.read_bytes()
    with pytest.raises((ValueError, TypeError, ResultsFileError)):
        file.append({"x": value})
    assert path.read_bytes() == before


def test_a_lock_that_is_never_given_back_is_named(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    holder, _ = start(path)
    monkeypatch.setattr(store, "_LOCK_TIMEOUT_S", 0.05)
    with holder._lock, pytest.raises(ResultsFileError, match="held its lock"):
        ResultsFile(path).append({})


def test_a_result_more_does_not_read_the_others(tmp_path, monkeypatch):
    file, _ = start(tmp_path / "results.json")
    file.append({"n": 0})
    with monkeypatch.context() as patched:
        patched.setattr(store.json, "loads", lambda _: pytest.fail("all was read"))
        file.append({"n": 1, "text": "]}\n"})
        file.append({"n": 2})
    assert [record["n"] for record in file.records()] == [0, 1, 2]
    lines = (tmp_path / "results.json").read_text().splitlines()
    assert [json.loads(line.rstrip(","))["n"] for line in lines[1:-1]] == [0, 1, 2]


def test_a_file_of_another_layout_is_added_to_as_well(tmp_path):
    path = tmp_path / "results.json"
    file, _ = start(path)
    file.append({"n": 0})
    path.write_text(json.dumps(read(path), indent=2))
    file.append({"n": 1})
    file.append({"n": 2})
    assert [record["n"] for record in file.records()] == [0, 1, 2]
