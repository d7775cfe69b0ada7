"""Modules that have moved are the same modules under their former names."""

import importlib
import json
import os
import re
import subprocess
import sys

import pytest

import comparative_benchmark  # noqa: F401  # which installs its former names
from openxla.benchmark import old_names

TABLE = {
    old: new
    for finder in sys.meta_path
    if isinstance(finder, old_names.OldNames)
    for old, new in finder.table.items()
}


def is_framework_free(name):
    return not re.search(r"\.in_|frameworks\.|models\.(tf|jax|pt)\.", name)


@pytest.mark.parametrize("old", TABLE)
def test_a_former_name_is_the_same_module(old):
    new = TABLE[old]
    assert old_names.present_name(old) == new
    assert old_names.present_name(new) == new
    present = importlib.util.find_spec(new)
    assert present is not None
    if not old.startswith(f"{new}."):  # to find it, Python would import the present module
        assert importlib.util.find_spec(old).origin == present.origin
    if is_framework_free(new):
        module = importlib.import_module(old)
        assert module is importlib.import_module(new)
        assert module.__spec__.name == new


def test_a_module_of_a_moved_package_and_a_name_from_it():
    from comparative_benchmark import recipes
    from comparative_benchmark.engine import race
    from comparative_benchmark.runs.race import Race

    assert Race is race.Race
    assert recipes is importlib.import_module("comparative_benchmark.backends.recipes")


def test_a_folder_that_git_left_behind_hides_no_former_name(tmp_path):
    left = tmp_path / "comparative_benchmark" / "runs" / "__pycache__"
    left.mkdir(parents=True)
    script = (
        "import comparative_benchmark as cb; "
        f"cb.__path__.insert(0, {str(tmp_path / 'comparative_benchmark')!r}); "
        "import comparative_benchmark.runs.race as r; print(r.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == "comparative_benchmark.engine.race\n"


def test_a_module_that_was_a_package(tmp_path):
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "net.py").write_text("print(__name__)")
    (tmp_path / "names.py").write_text(
        "from openxla.benchmark import old_names\n"
        "old_names.install('zoo', {'net.net_model': 'net'})\n"
    )
    script = (
        "import runpy, names; "
        "runpy.run_module('zoo.net', run_name='net'); "
        "runpy.run_module('zoo.net.net_model', run_name='net_model'); "
        "import zoo.net.net_model; "
        "from zoo.net import net_model; "
        "print(zoo.net.net_model is net_model is zoo.net)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), *sys.path))},
    )
    assert done.stdout.split() == ["net", "zoo.net", "net_model", "True"]


def test_an_unknown_module_of_a_moved_package_is_not_found():
    with pytest.raises(ModuleNotFoundError, match="nothing_of_the_kind"):
        importlib.import_module("comparative_benchmark.runs.nothing_of_the_kind")


def test_a_former_name_runs_as_a_program():
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "comparative_benchmark.roofline._cpu_rates",
            "copy",
            "8000",
            "1",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(json.loads(done.stdout)) == {"version", "gb_per_s"}


def test_definitions_that_earlier_versions_saved_find_their_functions():
    former = importlib.import_module("openxla.benchmark.brought")
    present = importlib.import_module("openxla.benchmark.user_models")
    assert (former.found, former.Wanted) == (present.find_cases, present.ModelOptions)
