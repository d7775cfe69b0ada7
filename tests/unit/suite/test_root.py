"""Where artifacts live, and the files that inputs are made from."""

import hashlib
from pathlib import Path

from openxla.benchmark import testdata
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
