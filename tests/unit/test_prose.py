"""Texts keep to docs/style.md: violations get fewer, and guides have none."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMITS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["prose"]
# How far a count may fall before its limit has to follow.
SLACK = 25
GUIDES = ["README.md", "CONTRIBUTING.md", *(f"docs/{name}" for name in ("style.md", "guides"))]
GUIDES += ["docs/getting-started", "docs/migration"]


@pytest.fixture(scope="module")
def prose():
    """`scripts/prose.py`, which is in no package."""
    spec = importlib.util.spec_from_file_location("prose", ROOT / "scripts" / "prose.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("folder", LIMITS)
def test_violations_only_get_fewer(prose, folder):
    found = [
        f"{path.relative_to(ROOT)}:{number}: {rule}: {text}"
        for path in prose.tracked([folder])
        for number, rule, text in prose.findings(path)
    ]
    limit = LIMITS[folder]
    listed = "" if limit else "\n" + "\n".join(found)
    assert len(found) <= limit, f"run scripts/prose.py --lines {folder}{listed}"
    assert len(found) > limit - SLACK, f"well done: set {folder} to {len(found)} in pyproject.toml"


def test_sentences_of_guides_have_at_most_25_words(prose):
    long = [
        f"{path.relative_to(ROOT)}: {sentence}"
        for path in prose.tracked(GUIDES)
        if path.suffix == ".md"
        for sentence in prose.long_sentences(path)
    ]
    assert long == []


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("What holds 1 has no winner.", "a clause instead of a noun"),
        ("It says so.", "programs that speak"),
        ("The age of which is known.", "of which"),
        ("It goes on.", "goes on"),
    ],
)
def test_violations_are_found(prose, tmp_path, text, rule):
    path = tmp_path / "page.md"
    path.write_text(f"# Title\n\n{text}\n\n```\nIt says nothing in code.\n```\n")
    assert [(number, name) for number, name, _ in prose.findings(path)] == [(3, rule)]


def test_texts_and_comments_of_python_are_read(prose, tmp_path):
    path = tmp_path / "module.py"
    path.write_text('"""It tells the time."""\n\nX = 1  # nobody knows\n')
    assert [number for number, _, _ in prose.findings(path)] == [1, 3]


def test_plain_english_passes(prose, tmp_path):
    path = tmp_path / "page.md"
    path.write_text("It prints the time. If it fails, run it again. What does it print?\n")
    assert list(prose.findings(path)) == []
    path.write_text("word " * 26 + ".\n")
    assert len(prose.long_sentences(path)) == 1


# Files that `cbs new-*` writes into the suite count there. Folders of TorchBench are elsewhere.
_FOLDER = ROOT / "comparative_benchmark" / "maintenance" / "onboarding" / "templates"
TEMPLATES = sorted([*_FOLDER.glob("*.py.txt"), *(_FOLDER / "package").glob("*.py.txt")])


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_files_that_commands_write_add_no_violation(prose, template, tmp_path):
    path = tmp_path / "written.py"
    path.write_text(re.sub(r"\$\{\w+\}", "x", template.read_text()))
    assert list(prose.findings(path)) == []
