"""Where artifacts live and get their names, and the files that inputs are made from."""

import hashlib
import os
import shutil
from pathlib import Path

import pytest

from openxla.benchmark import testdata
from openxla.benchmark.files import new_directory
from openxla.benchmark.installation import ROOT_DIR_VARIABLE, root_dir


def test_the_variable_decides(monkeypatch, tmp_path):
    monkeypatch.setenv(ROOT_DIR_VARIABLE, str(tmp_path))
    assert root_dir() == tmp_path


def test_a_relative_or_home_path_becomes_an_absolute_one(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(ROOT_DIR_VARIABLE, "here")
    assert root_dir() == tmp_path / "here"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(ROOT_DIR_VARIABLE, "~/there")
    assert root_dir() == tmp_path / "there"


def test_without_the_variable_it_is_in_the_checkout(monkeypatch):
    monkeypatch.delenv(ROOT_DIR_VARIABLE)
    assert root_dir() == Path(__file__).resolve().parents[3] / "artifacts" / "root"


def test_the_bundled_files_are_what_they_are_taken_for():
    assert len(testdata.load_text().split()) > 512
    image = testdata.load_image()
    assert image.ndim == 3
    assert image.shape[2] == 3
    assert image.std() > 10
    for path in (testdata.DEFAULT_TEXT, testdata.DEFAULT_IMAGE, testdata.TOKENIZER):
        assert testdata.file_digest(path) == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_text_is_one_line(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("a\nb  c\n\n d", encoding="utf-8")
    assert testdata.load_text(path) == "a b c d"


@pytest.fixture
def renaming(tmp_path, monkeypatch):
    """Replaces a directory with the file `old`, and calls a function before each renaming."""
    target, rename = tmp_path / "made", Path.rename

    def replace(before):
        target.mkdir()
        (target / "old").touch()
        renamed = []

        def watched(path, other):
            renamed.append(path == target)
            before(target, renamed)
            return rename(path, other)

        monkeypatch.setattr(Path, "rename", watched)
        with new_directory(target) as directory:
            (directory / "new").touch()
        return target

    return replace


def test_a_directory_gets_its_name_although_another_process_moves_the_old_one(renaming):
    def moved_meanwhile(target, renamed):
        if renamed[-1]:
            shutil.rmtree(target)

    assert [file.name for file in renaming(moved_meanwhile).iterdir()] == ["new"]


def test_a_directory_gets_its_name_although_another_process_is_faster(renaming):
    def placed_meanwhile(target, renamed):
        if len(renamed) == 3:
            (target / "other").mkdir(parents=True)

    assert [file.name for file in renaming(placed_meanwhile).iterdir()] == ["new"]


def test_an_interruption_keeps_the_old_directory(renaming, tmp_path):
    def interrupted(_, renamed):
        if len(renamed) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        renaming(interrupted)
    assert [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*")] == ["made", "made/old"]


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path):
    target = tmp_path / "made"
    left, young = (tmp_path / f".made.new-{end}" for end in ("abcd1234", "abcd5678"))
    others = [tmp_path / name for name in (".made.d", ".made.bak-abcd1234", ".other.new-abcd1234")]
    for folder in (left, young, *others):
        folder.mkdir()
    for folder in (left, *others):
        os.utime(folder, (0, 0))
    with new_directory(target) as directory:
        os.utime(directory, (0, 0))
        with new_directory(target):  # another process meanwhile
            assert directory.is_dir()
    assert not left.exists()
    assert all(folder.is_dir() for folder in (young, *others))
