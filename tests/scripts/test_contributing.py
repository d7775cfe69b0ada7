"""CONTRIBUTING and its guides work word for word, and all tests are green afterwards."""

import functools
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path

import pytest
from documents_support import ROOT, blocks, copy_checkout, run_bash

GUIDES = ROOT / "docs" / "guides" / "extend"
# Sections of CONTRIBUTING, and the guide of each.
SECTIONS = {
    "Add a model": "add-a-model.md",
    "Add an operator": "add-an-operator.md",
    "Add a recipe": "add-a-recipe.md",
    "Add a backend": "add-a-backend.md",
}
# Tests of what is registered: models, operators, recipes, backends.
REGISTRIES = re.compile(
    r"all_benchmarks|operators\(\)|recipes\(\)|backends\(\)|plugins\(|iter_modules|ALL_MODELS"
)
# No index is used: the build tool of the existing environment builds the packages.
PIP = """
pip() {
  [[ $1 == install ]] || return 1
  command pip install --no-build-isolation --no-deps "${@:2}"
}
"""


class Contribution:
    """A copy of the checkout, with its own environment, in which documents are followed."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.root = folder / "suite"
        copy_checkout(self.root)
        recipes = ROOT / ".recipes.venv"
        if recipes.is_dir():
            (self.root / recipes.name).symlink_to(recipes.resolve())
        self._environment = {k: v for k, v in environment.items() if k != "PYTHONPATH"}
        self._make_environment()
        self.follow = functools.cache(self._follow)

    def run(self, script: str) -> subprocess.CompletedProcess[str]:
        """Runs a script in the copy, in which `pip` reaches no index."""
        return run_bash(PIP + script, self.root, self._environment)

    def reinstall(self) -> None:
        """Registers what `pyproject.toml` of the copy declares, as `pip install -e .` does."""
        project = tomllib.loads((self.root / "pyproject.toml").read_text())["project"]
        groups = {"console_scripts": project["scripts"], **project["entry-points"]}
        lines = [
            line
            for group, entries in groups.items()
            for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
        ]
        (self._registered / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def _follow(self, title: str) -> subprocess.CompletedProcess[str]:
        """Runs the commands of a section of CONTRIBUTING, once."""
        [block] = blocks(section(ROOT / "CONTRIBUTING.md", title), "sh")
        return self.run(block)

    def _make_environment(self) -> None:
        """Makes `.venv` with the packages of this process, and the copy instead of the suite."""
        target = self.root / ".venv"
        venv.create(target, with_pip=True)
        version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
        packages = target / "lib" / version / "site-packages"
        folders = (self.root, self.root / "common_benchmark_suite", sysconfig.get_path("purelib"))
        (packages / "suite.pth").write_text("\n".join(map(str, folders)) + "\n")
        # Files of the distribution come before other folders' files with the same names.
        suite = distribution("common-benchmark-suite")
        self._registered = packages / f"common_benchmark_suite-{suite.version}.dist-info"
        self._registered.mkdir()
        (self._registered / "METADATA").write_text(str(suite.read_text("METADATA")))
        self.reinstall()
        modules = {"cbs": "comparative_benchmark"}
        for name in ("cbs", "pytest", "mypy"):
            module = modules.get(name, name)
            script = target / "bin" / name
            script.write_text(f'#!/bin/sh\nexec "{target}/bin/python" -P -m {module} "$@"\n')
            script.chmod(0o755)
        # A program, which `python -m ruff` would look for here.
        (target / "bin" / "ruff").symlink_to(Path(sysconfig.get_path("scripts")) / "ruff")


def section(page: Path, title: str) -> str:
    """Returns the text below a heading, up to the next heading of any level."""
    [found] = re.findall(
        rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", page.read_text(), re.DOTALL | re.MULTILINE
    )
    return found


@pytest.fixture(scope="module")
def contribution(tmp_path_factory, kept_environment):
    return Contribution(tmp_path_factory.mktemp("contributing"), kept_environment)


@pytest.mark.timeout(3600)
@pytest.mark.nightly
@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_works_word_for_word(contribution, title):
    done = contribution.follow(title)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def _commands(text: str) -> list[str]:
    """Returns the lines of the first shell block, without comments."""
    lines = blocks(text, "sh")[0].splitlines()
    return [re.sub(r"\s+# .*", "", line) for line in lines]


@pytest.mark.parametrize(("title", "guide"), SECTIONS.items())
def test_the_guide_begins_with_the_same_commands(title, guide):
    commands = _commands((GUIDES / guide).read_text())
    ours = _commands(section(ROOT / "CONTRIBUTING.md", title))
    # The guide of models also lists the cases.
    assert [line for line in commands if not line.startswith("cbs list")] == ours[
        : 4 if guide != "add-a-recipe.md" else 5
    ]
    assert len(ours) >= 4


@pytest.mark.timeout(3600)
@pytest.mark.nightly
def test_all_tests_of_what_is_registered_stay_green(contribution):
    for title in SECTIONS:
        assert contribution.follow(title).returncode == 0
    unit = sorted(
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests" / "unit").rglob("test_*.py")
        if REGISTRIES.search(path.read_text(encoding="utf-8"))
    )
    assert len(unit) > 20
    checks = [
        "git init --quiet && git add --all && pytest -q tests/unit/test_prose.py",
        "ruff check --quiet .",
        "ruff format --quiet --check .",
        "pytest -q -m 'not nightly and not alone' " + " ".join(unit),
        "pytest -q tests/frameworks/test_agreement_my_mlp.py",
        "pytest -q tests/frameworks/test_operators.py -k hardswish",
    ]
    for check in checks:
        done = contribution.run(f"source .venv/bin/activate\n{check}")
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-3000:]


@pytest.mark.timeout(3600)
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("title", "source", "target", "told"),
    [
        (
            "Add an operator",
            "cbs-hardswish/cbs_hardswish.py",
            "common_benchmark_suite/openxla/benchmark/operators/hardswish.py",
            "openxla.benchmark.operators hardswish",
        )
    ],
)
def test_an_example_is_added_to_the_suite_itself(contribution, title, source, target, told):
    assert contribution.follow(title).returncode == 0
    guide = (GUIDES / SECTIONS[title]).read_text()
    assert f"`{target}`" in guide
    shutil.copy2(contribution.root / source, contribution.root / target)
    _, known, new = blocks(guide, "toml")[1].splitlines()
    project = contribution.root / "pyproject.toml"
    before = project.read_text()
    assert before.count(f"\n{known}\n") == 1
    project.write_text(before.replace(known, f"{known}\n{new}"))
    contribution.reinstall()
    # The suite's own comes before the installed package.
    program = (
        "from openxla.benchmark.plugins import plugins; import sys\n"
        "print([p.built_in for p in plugins(sys.argv[1]) if p.name == sys.argv[2]])"
    )
    done = contribution.run(
        f"source .venv/bin/activate\npython -P -c '{program}' {told}\n"
        f"ruff check --quiet {target}\nmypy --strict --no-error-summary {target}"
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "[True, False]" in done.stdout
