"""The artifact root of the tests: one for each version of the code that fills it."""

import os

import kept_root
import pytest


@pytest.fixture(autouse=True)
def repository(tmp_path, monkeypatch):
    """A repository with one source, and a separate cache."""
    monkeypatch.setattr(kept_root, "REPOSITORY", tmp_path)
    monkeypatch.setattr(kept_root, "SOURCES", ("code",))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "truth.py").write_text("1")
    return tmp_path


def test_the_same_code_has_the_same_root(repository):
    with kept_root.kept_root() as first:
        (first / "artifact").write_text("kept")
    (repository / "code" / "__pycache__").mkdir()
    (repository / "code" / "__pycache__" / "truth.pyc").write_text("compiled")
    with kept_root.kept_root() as again:
        assert again == first
        assert (again / "artifact").read_text() == "kept"


def test_changed_code_has_an_empty_root(repository):
    with kept_root.kept_root() as first:
        (first / "artifact").write_text("kept")
    (repository / "code" / "truth.py").write_text("2")
    with kept_root.kept_root() as second:
        assert second != first
        assert not (second / "artifact").exists()


def test_old_roots_are_removed_unless_a_session_uses_them(repository):
    roots = []
    for number in range(4):
        (repository / "code" / "truth.py").write_text(str(number))
        with kept_root.kept_root() as root:
            roots.append(root)
            os.utime(root, (number, number))
    assert [root.exists() for root in roots] == [False, False, True, True]
    (repository / "code" / "truth.py").write_text("2")
    with kept_root.kept_root() as used:
        os.utime(used, (0, 0))
        (repository / "code" / "truth.py").write_text("5")
        with kept_root.kept_root():
            assert used.exists()
