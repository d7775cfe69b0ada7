"""The list of nightly tests names tests that exist, and leaves each file some of its tests."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests" / "nightly_tests.txt"


def _listed():
    names = defaultdict(set)
    for line in LIST.read_text().splitlines():
        file, _, test = line.partition("::")
        names[file].add(test)
    return names


def _tests(file):
    tree = ast.parse((ROOT / file).read_text())
    return {
        item.name
        for item in tree.body
        if isinstance(item, ast.FunctionDef) and item.name.startswith("test_")
    }


def test_lines_are_sorted_and_named_once():
    lines = LIST.read_text().splitlines()
    assert lines == sorted(set(lines))


def test_all_of_them_exist():
    lacking = {
        f"{file}::{name}"
        for file, names in _listed().items()
        for name in names
        if name.partition("[")[0] not in _tests(file)
    }
    assert not lacking


def test_each_file_keeps_a_test_in_the_default_tier():
    emptied = [
        file
        for file, names in _listed().items()
        if all("[" not in name for name in names) and names >= _tests(file)
    ]
    assert not emptied
