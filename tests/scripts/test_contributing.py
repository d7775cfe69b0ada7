"""CONTRIBUTING and its guides work word for word, and all tests are green afterwards."""

import functools
import re
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
SECTIONS = ("Add a model", "Add an operator", "Add a recipe", "Add a backend")
# Tests of what is registered: models, operators, recipes, backends.
REGISTRIES = re.compile(
    r"all_benchmarks|operators\(\)|recipes\(\)|backends\(\)|plugins\(|iter_modules|ALL_MODELS"
)
# No index is reached: the build tool of the environment that is there builds the packages.
PIP = """
pip() {
  [[ $1 == install ]] || return 1
  command pip install --no-build-isolation --no-deps "${@:2}"
}
"""


class Contribution:
    """A copy of the checkout, with an environment of its own, in which documents are followed."""

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
        # The files of the distribution: before those of the same name in the other folders.
        suite = distribution("common-benchmark-suite")
        self._registered = packages / f"common_benchmark_suite-{suite.version}.dist-info"
        self._registered.mkdir()
        (self._registered / "METADATA").write_text(str(suite.read_text("METADATA")))
        self.reinstall()
        for name, module in (("cbs", "comparative_benchmark"), ("pytest", "pytest")):
            script = target / "bin" / name
            script.write_text(f'#!/bin/sh\nexec "{target}/bin/python" -P -m {module} "$@"\n')
            script.chmod(0o755)


def section(page: Path, title: str) -> str:
    """Returns the text below a heading, up to the next heading of any level."""
    [found] = re.findall(
        rf"^#+ {re.escape(title)}\n(.*?)(?=^#|\Z)", page.read_text(), re.DOTALL | re.MULTILINE
    )
    return found


@pytest.fixture(scope="module")
def contribution(tmp_path_factory, kept_environment):
    return Contribution(tmp_path_factory.mktemp("contributing"), kept_environment)


@pytest.mark.nightly
@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_works_word_for_word(contribution, title):
    done = contribution.follow(title)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
