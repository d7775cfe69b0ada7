"""Modules that have moved are the same modules under their former names."""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import comparative_benchmark
import openxla.benchmark

ROOT = Path(__file__).parents[2]


def tables():
    """Returns former and present names, as the two packages give them to `old_names.install`."""
    for package in (comparative_benchmark, openxla.benchmark):
        text = Path(str(package.__file__)).read_text()
        table = text.partition("old_names.install(")[2].partition("\n)\n")[0]
        for old, new in re.findall(r'"([\w.]+)": "([\w.]+)"', table):
            yield pytest.param(
                f"{package.__name__}.{old}",
                f"{package.__name__}.{new}",
                id=f"{package.__name__}.{old}",
            )


def is_framework_free(name):
    return not re.search(r"\.in_|frameworks\.|models\.(tf|tflite|jax|pt)\.", name)


@pytest.mark.parametrize(("old", "new"), list(tables()))
def test_a_former_name_is_the_same_module(old, new):
    spec = importlib.util.find_spec(old)
    assert spec is not None
    assert spec.origin == importlib.util.find_spec(new).origin
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
