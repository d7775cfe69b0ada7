"""Environments of candidates: made once, made again if broken, and limited in number."""

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from comparative_benchmark.studies.bisection.environments import EnvironmentPool, Recipe
from comparative_benchmark.studies.bisection.search import BisectError, Candidate, UnjudgeableError


class LinkInstaller:
    """Installs a link to the packages of this interpreter, which workers need."""

    def __init__(self):
        self.installed = []
        self.broken = set()

    def versions(self, package, *, prereleases):
        return []

    def install(self, python, requirements, log_file):
        self.installed.append(tuple(requirements))
        if self.broken & set(requirements):
            raise UnjudgeableError("it does not install: no wheel")
        purelib = Path(sysconfig.get_path("purelib", vars={"base": str(python.parents[1])}))
        ours = sysconfig.get_path("purelib")
        (purelib / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")


@pytest.fixture
def installer():
    return LinkInstaller()


@pytest.fixture
def pool(tmp_path, installer):
    return EnvironmentPool(tmp_path / "environments", installer, log_dir=tmp_path / "logs", keep=2)


def _recipe(version, **changes):
    return Recipe(candidate=Candidate(name=version), requirements=(f"toy=={version}",), **changes)


def _kept(tmp_path):
    return sorted(path.name for path in (tmp_path / "environments").iterdir())


def test_an_environment_is_made_once(pool, installer, tmp_path):
    first = pool.get(_recipe("1.0"))
    assert first.name == "v1_0"
    assert first.python.startswith(str(tmp_path / "environments" / "v1_0"))
    assert pool.get(_recipe("1.0")) == first
    assert installer.installed == [("toy==1.0",)]


def test_other_requirements_make_it_again(pool, installer):
    pool.get(_recipe("1.0"))
    changed = Recipe(candidate=Candidate(name="1.0"), requirements=("toy==1.0", "numpy==2"))
    pool.get(changed)
    assert len(installer.installed) == 2


def test_what_an_interrupted_attempt_left_is_made_again(pool, installer, tmp_path):
    pool.get(_recipe("1.0"))
    (tmp_path / "environments" / "v1_0" / "environment.json").unlink()
    pool.get(_recipe("1.0"))
    assert len(installer.installed) == 2


def test_what_does_not_install_leaves_nothing(pool, installer, tmp_path):
    installer.broken.add("toy==1.0")
    with pytest.raises(UnjudgeableError, match="no wheel"):
        pool.get(_recipe("1.0"))
    assert _kept(tmp_path) == []


def test_an_environment_without_what_workers_need_can_not_serve(pool, installer, monkeypatch):
    monkeypatch.setattr(installer, "install", lambda *_: None)
    with pytest.raises(UnjudgeableError, match="v1_0: workers also need attrs, numpy, ml_dtypes"):
        pool.get(_recipe("1.0"))


@pytest.mark.slow
def test_those_not_used_for_longest_go_first_and_those_in_use_stay(pool, tmp_path):
    for age, version in enumerate(("1.0", "2.0"), start=1):
        pool.get(_recipe(version))
        stamp = tmp_path / "environments" / f"v{version[0]}_0" / "environment.json"
        os.utime(stamp, (age, age))
    pool.get(_recipe("3.0"), beside=("v1_0",))
    assert _kept(tmp_path) == ["v1_0", "v3_0"]
    pool.get(_recipe("4.0"), beside=("v3_0",))
    assert _kept(tmp_path) == ["v3_0", "v4_0"]


def test_an_interpreter_that_makes_no_environment_is_an_error(tmp_path, installer):
    pool = EnvironmentPool(
        tmp_path / "environments", installer, log_dir=tmp_path, python="/bin/false"
    )
    with pytest.raises(BisectError, match="cannot create a virtual environment with /bin/false"):
        pool.get(_recipe("1.0"))
    assert sys.executable not in installer.installed
