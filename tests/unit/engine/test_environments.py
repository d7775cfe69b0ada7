"""`--env NAME=PATH`: accepted environments, and messages about others."""

import subprocess
import sys
from pathlib import Path

import pytest

from comparative_benchmark.analysis.machine.host import python_environment
from comparative_benchmark.engine import settings
from comparative_benchmark.engine.settings import (
    UnusableEnvironmentError,
    interpreters,
    parse_environments,
)
from comparative_benchmark.engine.trial import in_environments, parse_competitors

HERE = sys.executable


def _fake_interpreter(folder: Path, script: str) -> Path:
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return folder


def test_an_interpreter_or_its_virtual_environment_can_be_named(tmp_path):
    subprocess.run([HERE, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    [ours] = parse_environments(f"ours={HERE}")
    assert ours.python == HERE
    assert ours.python_version == ".".join(map(str, sys.version_info[:3]))
    assert "attrs" in {package["name"] for package in ours.packages}
    # A bare environment lacks all packages that a worker needs.
    with pytest.raises(UnusableEnvironmentError, match="workers also need attrs, numpy, ml"):
        parse_environments(f"other={tmp_path / 'other'}")


def test_an_installed_suite_brings_only_its_own_packages(monkeypatch):
    """Otherwise, packages installed next to it would replace the environment's own."""
    monkeypatch.setattr(settings, "checkout", lambda: None)
    settings._roots.cache_clear()
    [ours] = parse_environments(f"ours={HERE}")
    folder = Path(ours.variables["PYTHONPATH"].partition(":")[0])
    settings._roots.cache_clear()
    assert sorted(path.name for path in folder.iterdir()) == ["comparative_benchmark", "openxla"]
    code = "import comparative_benchmark, openxla.benchmark as o; print(o.__file__)"
    done = subprocess.run(
        [HERE, "-c", code], env={"PYTHONPATH": str(folder)}, capture_output=True, check=True
    )
    assert done.stdout.decode().startswith(str(folder))


def test_an_interpreter_on_the_path_can_be_named(tmp_path, monkeypatch):
    (tmp_path / "python9").symlink_to(HERE)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreters("other=python9") == {"other": str(tmp_path / "python9")}


def test_competitors_are_doubled_and_named(tmp_path):
    environments = parse_environments(f"old={HERE},new={HERE}")
    [competitor] = parse_competitors("test_numpy", "cpu")
    doubled = in_environments([competitor], environments)
    assert [str(item) for item in doubled] == ["test_numpy:direct@old", "test_numpy:direct@new"]
    assert in_environments([competitor], []) == [competitor]


def test_what_lacks_there_is_told_by_the_environment(tmp_path):
    answer = '{"version": [3, 12, 1], "packages": [], "missing": ["jax", "flax"]}'
    lacking = _fake_interpreter(tmp_path / "lacking", f"echo '{answer}'")
    [competitor] = in_environments(
        parse_competitors("jax_xla", "cpu"), parse_environments(f"x={lacking}")
    )
    [framework] = competitor.backend.modules
    assert "jax" in competitor.missing_modules(framework)


def test_a_folder_that_an_interrupted_installation_left_is_no_package(tmp_path, monkeypatch):
    (tmp_path / "torn-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    names = [package["name"] for package in python_environment()]
    assert "attrs" in names
    assert None not in names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no environment"),
        ("old", "'old' is not NAME=PATH"),
        ("=x", "'=x' is not NAME=PATH"),
        ("a b=x", "is not NAME=PATH"),
        (f"old={HERE},old={HERE}", "names 'old' twice"),
        ("old=/nowhere/at/all", "no Python interpreter found; create one with"),
    ],
)
def test_malformed_ones_are_refused(text, message):
    with pytest.raises(UnusableEnvironmentError, match=message):
        parse_environments(text)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo bad luck >&2; exit 3", r"cannot run .* \(bad luck\)"),
        ("echo no json", "cannot run"),
        (
            """[ "$1" != -P ] || exit 2
            echo '{"version": [3, 9, 1], "packages": [], "missing": []}'""",
            "expected Python 3.11 or newer, got 3.9.1",
        ),
    ],
)
def test_interpreters_that_can_not_serve_are_refused(tmp_path, script, message):
    folder = _fake_interpreter(tmp_path / "venv", script)
    with pytest.raises(UnusableEnvironmentError, match=message):
        parse_environments(f"old={folder}")
