"""Files that are moved, removed or replaced during a run cost no result."""

import json
import os
import shutil

import pytest

from comparative_benchmark.engine.messages import Called
from comparative_benchmark.engine.session import Limits, Session
from comparative_benchmark.results.journal import Journal
from comparative_benchmark.results.results_file import ResultsFile

RUN = (
    *("run", "--suite", "cbs_test_plugin.suite", "--backend", "test_numpy"),
    *("-device", "host-cpu", "-w", "1", "-iter", "2", "--run-in-process"),
)
TOYS = "models/TOY_(NONE|RAISES|ARITY)/.+"


def _moved(path):
    path.rename(path.with_name("moved-away"))


def _removed(path):
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def _emptied(path):
    for entry in path.iterdir():
        _removed(entry)


def _replaced_by_another(path):
    shutil.copy(path.parent.parent / "good.json", path)


def _linked(path):
    path.rename(path.with_name("target"))
    path.symlink_to(path.with_name("target"))


# The disturbed path, below the folder of the results, and the disturbance.
DISTURBANCES = {
    "results moved": ("r.json", _moved),
    "results removed": ("r.json", _removed),
    "results replaced": ("r.json", _replaced_by_another),
    "results behind a link": ("r.json", _linked),
    "folder moved": (".", lambda path: path.rename(path.with_name("moved-folder"))),
    "folder removed": (".", _removed),
    "folder emptied": (".", _emptied),
    "journals moved": ("r.journal", _moved),
    "journals removed": ("r.journal", _removed),
    "journals emptied": ("r.journal", _emptied),
}


@pytest.mark.parametrize("when", range(3))
@pytest.mark.parametrize("what", ["before a process", "before results"])
@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_no_result_is_lost(cbs, tmp_path, monkeypatch, disturbance, what, when):
    folder = tmp_path / "out"
    calls = []
    owner = Journal if what == "before a process" else ResultsFile
    append = owner.append

    def disturbed(self, *arguments):
        name, disturb = DISTURBANCES[disturbance]
        path = (folder / name).resolve()
        if len(calls) == when:
            disturb(path)
        calls.append(arguments)
        append(self, *arguments)

    monkeypatch.setattr(owner, "append", disturbed)
    code, _, err = cbs(*RUN, "-name", TOYS, "-o", "out/r.json")
    assert code == 1, err
    found = [folder / "r.json", folder / "moved-away", tmp_path / "moved-folder" / "r.json"]
    stored = [
        record["definition"]["model"]
        for path in found
        if path.is_file()
        for record in json.loads(path.read_text())["benchmarks"]
        if record["definition"]["model"].startswith("TOY_")
    ]
    # Rows stored before a removal are lost with the file; later rows are kept.
    lost = when if "removed" in disturbance or "emptied" in disturbance else 0
    lost = lost if disturbance.startswith(("results", "folder")) else 0
    lost = lost or (when if disturbance == "results replaced" else 0)
    assert len(stored) == 3 - lost
    assert len(set(stored)) == len(stored)
    assert cbs("show", "out/r.json")[0] == 0


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "socket"])
@pytest.mark.parametrize("when", ["at the start", "meanwhile"])
def test_what_is_not_a_file_is_refused_in_a_line(cbs, tmp_path, monkeypatch, kind, when):
    path = tmp_path / "r.json"

    def make():
        path.unlink(missing_ok=True)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "device":
            path.symlink_to("/dev/zero")
        else:
            import socket

            with socket.socket(socket.AF_UNIX) as made:
                monkeypatch.chdir(tmp_path)
                made.bind("r.json")

    if when == "at the start":
        make()
    else:
        append = ResultsFile.append

        def replaced(self, *arguments):
            make()
            append(self, *arguments)

        monkeypatch.setattr(ResultsFile, "append", replaced)
    code, _, err = cbs(*RUN, "-name", TOYS, "-o", "r.json")
    assert code == 1
    [line] = [line for line in err.splitlines() if "r.json" in line and "cbs" in line][-1:]
    assert "is not a regular file" in line or "Is a directory" in line or "directory" in line


@pytest.mark.parametrize("how", ["removed", "pipe", "folder", "moved", "unreadable"])
def test_a_worker_that_loses_its_log_continues(tmp_path, how):
    log = tmp_path / "logs" / "worker.log"
    with Session(limits=Limits(deadline_s=60), log_file=log, environment={}) as session:
        if how == "moved":
            log.parent.rename(tmp_path / "elsewhere")
        elif how == "unreadable":
            log.chmod(0)
        else:
            log.unlink()
            if how == "pipe":
                os.mkfifo(log)
            elif how == "folder":
                log.mkdir()
        pid = session.call(Called, function="os:getpid", arguments={}).value
    assert pid != os.getpid()


def test_a_log_that_is_a_pipe_is_replaced(tmp_path):
    log = tmp_path / "worker.log"
    os.mkfifo(log)
    with Session(limits=Limits(deadline_s=60), log_file=log, environment={}) as session:
        session.call(Called, function="os:getpid", arguments={})
    assert log.is_file()
