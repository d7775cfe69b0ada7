"""The lists of slow and nightly tests name tests that exist, and no file is all nightly."""

import ast
import functools
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTS = [ROOT / "tests" / f"{tier}_tests.txt" for tier in ("slow", "nightly")]


def _listed(path):
    names = defaultdict(set)
    for line in path.read_text().splitlines():
        file, _, test = line.partition("::")
        names[file].add(test)
    return names


@functools.cache
def _tests(file):
    tree = ast.parse((ROOT / file).read_text())
    return {
        item.name
        for item in tree.body
        if isinstance(item, ast.FunctionDef) and item.name.startswith("test_")
    }


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_lines_are_sorted_and_named_once(path):
    lines = path.read_text().splitlines()
    assert lines == sorted(set(lines))


@pytest.mark.parametrize("path", LISTS, ids=lambda path: path.stem)
def test_all_of_them_exist(path):
    lacking = {
        f"{file}::{name}"
        for file, names in _listed(path).items()
        for name in names
        if name.partition("[")[0] not in _tests(file)
    }
    assert not lacking


def test_each_file_keeps_a_test_in_the_default_tier():
    emptied = [
        file
        for file, names in _listed(LISTS[1]).items()
        if all("[" not in name for name in names) and names >= _tests(file)
    ]
    assert not emptied
