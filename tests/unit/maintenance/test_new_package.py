"""`cbs new-backend`, `new-recipe` and `new-operator`: packages that are the guides' examples."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from documents_support import ROOT, blocks
from tests_support import python_path

from comparative_benchmark.backends.recipes import registry
from comparative_benchmark.cli.command import main
from comparative_benchmark.maintenance.onboarding import creating

GUIDES = ROOT / "docs" / "guides" / "extend"
# Of each kind: the name in the guide, the guide, and the place of its file in the suite. There,
# recipes are entries of a table.
EXAMPLES = {
    "backend": ("my_backend", "add-a-backend.md", "comparative_benchmark/my_backend/__init__.py"),
    "recipe": ("int8wo-asym", "add-a-recipe.md", None),
    "operator": (
        "hardswish",
        "add-an-operator.md",
        "common_benchmark_suite/openxla/benchmark/operators/hardswish.py",
    ),
}


@pytest.fixture
def written(tmp_path, capsys):
    """Writes a package; returns its folder and what the command printed."""

    def write(kind, name=None):
        name = name or EXAMPLES[kind][0]
        code = main([f"new-{kind}", name, "--into", str(tmp_path)])
        out, err = capsys.readouterr()
        assert code == 0, err
        return tmp_path / creating.package_of(name), out

    return write


def _register(package: Path) -> None:
    """Registers a package in its own folder, as `pip install -e` does in an environment."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    registered = package / f"{project['name']}-{project['version']}.dist-info"
    registered.mkdir()
    (registered / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    [(group, entries)] = project["entry-points"].items()
    lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (registered / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_guide_shows_what_is_written(written, kind):
    package, _ = written(kind)
    page = (GUIDES / EXAMPLES[kind][1]).read_text()
    sources = [p.read_text() for p in package.rglob("*.py") if not p.name.startswith("test_")]
    shown = blocks(page, "python")
    own, *in_tree = blocks(page, "toml")
    assert own in (package / "pyproject.toml").read_text()
    if kind == "recipe":
        recipe = eval(shown.pop(), dict(vars(registry)))  # unchanged from the table
        assert (recipe.name, *recipe.by_backend) == (EXAMPLES[kind][0], "openvino")
    assert sorted(shown) == sorted(sources)
    if EXAMPLES[kind][2] is None:
        assert not in_tree
        return
    # Of the suite's table, the guide shows a line that is there, and below it the new one.
    [(group, entries)] = tomllib.loads(*in_tree)["project"]["entry-points"].items()
    (known, value), (new, path) = entries.items()
    assert next(p for p in entry_points(group=group) if p.name == known).value == value
    assert new == EXAMPLES[kind][0]
    module, _, name = path.partition(":")
    assert (
        EXAMPLES[kind][2]
        .removesuffix("/__init__.py")
        .removesuffix(".py")
        .endswith(module.replace(".", "/"))
    )
    assert name == creating.KINDS[kind].object


@pytest.mark.parametrize(
    ("kind", "command", "told"),
    [
        ("backend", ["backends"], "my_backend"),
        ("recipe", ["micro", "list"], "int8wo-asym"),
        ("operator", ["micro", "list"], "hardswish"),
    ],
)
def test_what_is_written_is_registered_and_its_own_test_agrees(written, kind, command, told):
    package, out = written(kind)
    assert f"pip install -e {package}" in out
    assert all(str(path) in out for path in package.rglob("*") if path.is_file())
    _register(package)
    environment = {**os.environ, "PYTHONPATH": python_path(package)}
    listed = subprocess.run(
        [sys.executable, "-P", "-m", "comparative_benchmark", *command],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert told in listed.stdout
    assert "left out" not in listed.stderr
    # The other tests of the package run frameworks: tests/scripts/test_contributing.py.
    done = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", package),
            *("-k", "registered or every_backend"),
        ],
        env=environment,
        cwd=package,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    again = subprocess.run(
        [sys.executable, "-P", "-m", "comparative_benchmark", f"new-{kind}", told],
        env=environment,
        cwd=package,
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 1
    assert f"{told!r} already exists in {package.name}; choose another name" in again.stderr


@pytest.mark.parametrize("kind", EXAMPLES)
@pytest.mark.parametrize("length", [1, 24])
def test_what_is_written_has_our_style_wherever_it_is(written, tmp_path, kind, length):
    pytest.importorskip("ruff")
    package, _ = written(kind, "x" * length)
    for path in package.rglob("*.py"):
        ast.parse(path.read_text())
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    targets = [package]
    if EXAMPLES[kind][2] is not None:
        # In the suite: with all its rules, and the exceptions of that place.
        source = next(p for p in sorted(package.rglob("*.py")) if not p.name.startswith("test_"))
        place = tmp_path / EXAMPLES[kind][2]
        place.parent.mkdir(parents=True, exist_ok=True)
        (place.parent / "__init__.py").write_text('"""A package."""\n')
        shutil.copy2(source, place)
        targets.append(place)
    for target in targets:
        for command in (["check"], ["format", "--check"]):
            done = subprocess.run(
                [sys.executable, "-m", "ruff", *command, "--no-cache", target],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("new-operator gelu", "operator 'gelu' already exists in common-benchmark-suite"),
        ("new-operator all", "operator name 'all' already means every operator"),
        ("new-operator x_fwd_bwd", "'x_fwd_bwd' is not a valid operator name"),
        ("new-operator my-op", "'my-op' is not a valid operator name; use lowercase letters"),
        ("new-operator ../x", "is not a valid operator name"),
        (f"new-operator {'a' * 25}", "is longer than 24 characters"),
        ("new-recipe int8wo", "recipe name 'int8wo' already means the recipe int8wo;"),
        ("new-recipe intx-4", "'intx-4' is not a valid recipe name"),
        ("new-recipe freezing", "'freezing' already means an option of pt_inductor:inductor"),
        ("new-recipe 2:4", "is not a valid recipe name"),
        ("new-backend jax_xla", "backend 'jax_xla' already exists in common-benchmark-suite"),
        ("new-backend all", "backend name 'all' already means every backend"),
        ("new-backend torch", "'torch' already means the backend pt_inductor"),
        ("new-backend aot_inductor", "already means the backend pt_inductor:aot-inductor"),
        ("new-backend My", "'My' is not a valid backend name"),
        ("new-backend test_absent", "backend 'test_absent' already exists in cbs-test-plugin"),
        ("new-operator mine --into file", "file/cbs-mine cannot be written: Not a directory"),
    ],
)
def test_a_name_that_can_not_be_is_refused_and_nothing_is_written(
    arguments, told, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no folder\n")
    assert main(arguments.split()) == 1
    assert told in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_directory_that_is_there_is_not_written_over(written, tmp_path, capsys):
    package, _ = written("operator", "mine")
    before = {path: path.read_bytes() for path in package.rglob("*.*")}
    assert main(["new-operator", "mine", "--into", str(tmp_path)]) == 1
    assert f"{package} already exists; nothing was written" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in package.rglob("*.*")} == before


def test_a_module_that_is_installed_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "cbs_mine.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["new-recipe", "mine", "--into", str(tmp_path)]) == 1
    assert "a module cbs_mine is already installed" in capsys.readouterr().err
