"""Commits between two ends, their worktrees, and their builds."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from comparative_benchmark.studies.bisection.candidates import Repository
from comparative_benchmark.studies.bisection.search import BisectError, UnjudgeableError


def _git(folder: Path, *arguments: str) -> str:
    variables = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """A repository with 5 commits on main, one of them a merge, and a branch elsewhere."""
    folder = tmp_path_factory.mktemp("repository")
    _git(folder, "init", "--quiet", "--initial-branch", "main")

    def commit(name):
        (folder / "file").write_text(name)
        _git(folder, "add", "file")
        _git(folder, "commit", "--quiet", "--message", name)
        return _git(folder, "rev-parse", "HEAD")

    names = {name: commit(name) for name in ("one", "two")}
    _git(folder, "checkout", "--quiet", "-b", "side")
    (folder / "other").write_text("x")
    _git(folder, "add", "other")
    _git(folder, "commit", "--quiet", "--message", "on the side")
    names["side"] = _git(folder, "rev-parse", "HEAD")
    _git(folder, "checkout", "--quiet", "main")
    names["three"] = commit("three")
    _git(folder, "merge", "--quiet", "--no-ff", "--message", "a\u2028 merge", "side")
    names["merge"] = _git(folder, "rev-parse", "HEAD")
    names["five"] = commit("five")
    _git(folder, "checkout", "--quiet", "-b", "elsewhere", names["one"])
    names["elsewhere"] = commit("elsewhere")
    _git(folder, "checkout", "--quiet", "main")
    return folder, names


def test_commits_are_those_of_first_parents_from_old_to_new(history):
    folder, names = history
    found = Repository(path=folder, build="true").commits_between("main~4", "main")
    expected = [names[name] for name in ("one", "two", "three", "merge", "five")]
    assert [candidate.name for candidate in found] == expected
    assert found[3].detail.endswith("a\u2028 merge")
    assert found[3].short == names["merge"][:12]
    assert found[3].environment_name == f"c{names['merge'][:12]}"


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("main", "main~2", "must be an ancestor of"),
        ("elsewhere", "main", "--good elsewhere must be an ancestor of --bad main"),
        ("main", "main", "are the same commit"),
        ("nowhere", "main", "--good nowhere: no such commit in .*; fetch it first"),
        ("main~4", "--output=x", "--bad '--output=x' is not a commit"),
    ],
)
def test_ends_that_can_not_be_are_refused(history, good, bad, message):
    with pytest.raises(BisectError, match=message):
        Repository(path=history[0], build="true").commits_between(good, bad)


def test_a_folder_without_a_repository_is_refused(tmp_path):
    with pytest.raises(BisectError, match="is not a git repository"):
        Repository(path=tmp_path, build="true").commits_between("a", "b")


def test_a_worktree_holds_the_commit_and_leaves_the_repository_alone(history, tmp_path):
    folder, names = history
    before = _git(folder, "status", "--porcelain", "--branch")
    repository = Repository(path=folder, build="true")
    source = tmp_path / "source"
    repository.check_out(names["two"], source)
    assert (source / "file").read_text() == "two"
    repository.remove(source)
    assert not source.exists()
    assert len(_git(folder, "worktree", "list").splitlines()) == 1
    assert _git(folder, "status", "--porcelain", "--branch") == before
    # A worktree that was removed by hand does not block the next one.
    repository.check_out(names["two"], source)
    subprocess.run(["rm", "-r", source], check=True)
    repository.check_out(names["three"], source)
    assert (source / "file").read_text() == "three"
    repository.remove(source)


def test_a_commit_that_is_not_there_can_not_be_judged(history, tmp_path):
    with pytest.raises(UnjudgeableError, match="git worktree add"):
        Repository(path=history[0], build="true").check_out("0" * 40, tmp_path / "source")


def test_a_build_runs_in_the_worktree_with_its_environment_first(tmp_path):
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "source").mkdir()
    build = 'echo "$PWD $VIRTUAL_ENV $PYTHON ${PATH%%:*}" > built'
    repository = Repository(path=tmp_path, build=build)
    repository.build_into(tmp_path / "venv", tmp_path / "source", tmp_path / "log")
    venv = tmp_path / "venv"
    told = (tmp_path / "source" / "built").read_text().split()
    assert told == [str(tmp_path / "source"), str(venv), f"{venv}/bin/python", f"{venv}/bin"]


def test_a_build_that_fails_says_its_last_words(tmp_path):
    repository = Repository(path=tmp_path, build="echo no compiler here; false; echo never")
    with pytest.raises(UnjudgeableError, match="the build failed: no compiler here"):
        repository.build_into(tmp_path, tmp_path, tmp_path / "log")


def test_a_build_that_hangs_is_ended_with_all_that_it_started(tmp_path):
    build = "sleep 3600.625 & echo $! > child; wait"
    repository = Repository(path=tmp_path, build=build, timeout_s=0.5)
    with pytest.raises(UnjudgeableError, match=r"the build took longer than 0\.5 s"):
        repository.build_into(tmp_path, tmp_path, tmp_path / "log")
    child = Path("/proc") / (tmp_path / "child").read_text().strip()
    until = time.monotonic() + 5
    while time.monotonic() < until and _alive(child):
        time.sleep(0.02)
    assert not _alive(child)


def _alive(process: Path) -> bool:
    try:
        return " Z " not in (process / "stat").read_text()
    except OSError:
        return False
