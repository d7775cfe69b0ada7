"""The results file: nothing is lost, nothing foreign is touched."""

import json
import subprocess
import sys

import attrs
import pytest
from results_support import LATEST, content_of, decoded, plain_document

from comparative_benchmark.results import results_file
from comparative_benchmark.results.results_file import ResultsFile, ResultsFileError

DOCUMENT = decoded(plain_document())
ENVIRONMENT = DOCUMENT.execution_environment


def result(number):
    """Returns a result that is known by a number."""
    return attrs.evolve(DOCUMENT.benchmarks[0], run_id=f"run-{number}", wall_s=float(number))


def numbers(path):
    return [int(found.wall_s) for found in ResultsFile(path).results()]


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
    assert document["benchmarks"] == []
    assert file.results() == ()
    assert path.stat().st_mode & 0o777 == 0o644


def test_there_are_no_results_where_there_is_no_file(tmp_path):
    assert ResultsFile(tmp_path / "results.json").results() == ()
    assert list(tmp_path.iterdir()) == []


def test_appending_keeps_what_is_there_and_the_order(tmp_path):
    file, _ = start(tmp_path / "results.json")
    for number in range(5):
        file.append(result(number))
    assert numbers(file.path) == list(range(5))


def test_a_second_run_is_added_and_stands_where_the_openxla_suites_readers_look(tmp_path):
    path = tmp_path / "results.json"
    file, first = start(path)
    file.append(result(1))
    second = ResultsFile(path).start_run(
        execution_environment=attrs.evolve(ENVIRONMENT, git_revision="other"),
        command=["cbs", "again"],
    )
    document = read(path)
    assert [run["run_id"] for run in document["runs"]] == [first, second]
    assert first != second
    assert document["trigger"]["command"] == ["cbs", "again"]
    assert document["execution_environment"]["git_revision"] == "other"
    assert numbers(path) == [1]


def test_keys_that_a_later_program_added_are_kept(tmp_path):
    path = tmp_path / "results.json"
    file, _ = start(path)
    path.write_text(json.dumps({**read(path), "extra": [1]}))
    file.append(result(1))
    assert read(path)["extra"] == [1]


WRITER = """
import sys
from pathlib import Path
import attrs
from comparative_benchmark.results.results_file import decode_document
from comparative_benchmark.results.results_file import ResultsFile
document = decode_document(sys.stdin.buffer.read(), "stdin")
file = ResultsFile(Path(sys.argv[1]))
file.start_run(execution_environment=document.execution_environment, command=[])
for number in range(int(sys.argv[3])):
    name = sys.argv[2]
    changed = {"run_id": f"{name}-{number}", "log_file": name, "wall_s": float(number)}
    file.append(attrs.evolve(document.benchmarks[0], **changed))
"""


@pytest.mark.slow
def test_concurrent_writers_lose_nothing_and_readers_see_whole_files(tmp_path):
    path, count = tmp_path / "results.json", 15
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(name), str(count)], stdin=subprocess.PIPE
        )
        for name in range(4)
    ]
    for writer in writers:
        writer.stdin.write(content_of(LATEST))
        writer.stdin.close()
    while any(writer.poll() is None for writer in writers):
        if path.exists():
            read(path)  # raises if it ever is half a file
    assert [writer.wait() for writer in writers] == [0] * 4
    document = read(path)
    assert len(document["runs"]) == 4
    for name in range(4):
        own = [r["wall_s"] for r in document["benchmarks"] if r["log_file"] == str(name)]
        assert own == list(range(count))
    leftovers = {entry.name for entry in tmp_path.iterdir()} - {path.name, f".{path.name}.lock"}
    assert not leftovers


FOREIGN = {
    "foreign object": b'{"a": 1}',
    "foreign list": b"[1, 2]",
    "number": b"7",
    "the OpenXLA suite's file": b'{"trigger": {}, "execution_environment": {}, "benchmarks": []}',
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
        file.results,
        lambda: file.append(result(1)),
        lambda: file.start_run(execution_environment=ENVIRONMENT, command=[]),
    ):
        with pytest.raises(ResultsFileError, match=r"results\.json"):
            action()
        assert path.read_bytes() == content


def test_a_newer_schema_is_named_as_such(tmp_path):
    path = tmp_path / "results.json"
    path.write_bytes(FOREIGN["newer schema"])
    with pytest.raises(ResultsFileError, match="schema version 2, expected 1"):
        ResultsFile(path).results()


def test_a_directory_is_refused(tmp_path):
    path = tmp_path / "results.json"
    path.mkdir()
    for action in (ResultsFile(path).results, lambda: ResultsFile(path).append(result(0))):
        with pytest.raises(ResultsFileError, match=r"results\.json"):
            action()
    assert list(path.iterdir()) == []


def test_a_parent_that_is_a_file_is_refused(tmp_path):
    parent = tmp_path / "file"
    parent.write_bytes(b"content")
    with pytest.raises(ResultsFileError, match="cannot be written"):
        start(parent / "results.json")
    assert parent.read_bytes() == b"content"


def test_a_parent_where_nothing_can_be_made_is_refused_at_once(monkeypatch):
    monkeypatch.setattr(results_file, "_LOCK_TIMEOUT_S", 0.2)
    with pytest.raises(ResultsFileError, match="cannot be written"):
        start(results_file.Path("/proc/results.json"))


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_disk_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, broken):
    path = tmp_path / "results.json"
    file, _ = start(path)
    file.append(result(1))
    before = path.read_bytes(), {entry.name for entry in tmp_path.iterdir()}

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(results_file.os, broken, fail)
        with pytest.raises(ResultsFileError, match="No space left"):
            file.append(result(2))
    assert (path.read_bytes(), {entry.name for entry in tmp_path.iterdir()}) == before
    file.append(result(3))
    assert numbers(file.path) == [1, 3]


@pytest.mark.parametrize(
    "changes",
    [
        *({"wall_s": value} for value in (float("nan"), float("inf"), -1.0, "1")),
        *({"run_id": ""}, {"status": "none"}, {"metrics": None}, {"versions": {"a": 1}}),
    ],
    ids=str,
)
def test_a_result_that_could_not_be_read_again_is_refused_and_the_file_stays(tmp_path, changes):
    path = tmp_path / "results.json"
    file, _ = start(path)
    before = path.read_bytes()
    wrong = result(1)
    for name, value in changes.items():
        object.__setattr__(wrong, name, value)
    with pytest.raises((ValueError, ResultsFileError)):
        file.append(wrong)
    assert path.read_bytes() == before


def test_a_lock_that_is_never_given_back_is_named(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    holder, _ = start(path)
    monkeypatch.setattr(results_file, "_LOCK_TIMEOUT_S", 0.05)
    with holder._lock, pytest.raises(ResultsFileError, match="held its lock"):
        ResultsFile(path).append(result(0))


def test_a_result_more_does_not_read_the_others(tmp_path, monkeypatch):
    file, _ = start(tmp_path / "results.json")
    file.append(result(0))
    with monkeypatch.context() as patched:
        patched.setattr(results_file, "decode_document", lambda *_: pytest.fail("all was read"))
        file.append(attrs.evolve(result(1), log_file="]}\n"))
        file.append(result(2))
    assert numbers(file.path) == [0, 1, 2]
    lines = (tmp_path / "results.json").read_text().splitlines()
    assert [json.loads(line.rstrip(","))["wall_s"] for line in lines[1:-1]] == [0, 1, 2]


def test_a_file_of_another_layout_is_added_to_as_well(tmp_path):
    path = tmp_path / "results.json"
    file, _ = start(path)
    file.append(result(0))
    path.write_text(json.dumps(read(path), indent=2))
    file.append(result(1))
    file.append(result(2))
    assert numbers(file.path) == [0, 1, 2]
