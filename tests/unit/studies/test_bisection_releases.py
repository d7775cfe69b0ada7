"""Releases between two ends, packages of their environments, and answers of pip."""

import subprocess
import sys
from pathlib import Path

import pytest

from comparative_benchmark.studies.bisection import candidates
from comparative_benchmark.studies.bisection.candidates import (
    PipInstaller,
    names_in,
    releases_between,
    requirements_for,
)
from comparative_benchmark.studies.bisection.environments import Recipes
from comparative_benchmark.studies.bisection.search import BisectError, UnjudgeableError

OFFERED = [
    *("0.10.2", "0.9.2", "0.10.0", "0.10.1", "0.10.1rc1", "0.11.0", "0.10.10", "not-a-version"),
    *("0.10.1.post1", "0.10.3.dev20260101"),
]


def _names(*arguments, **options):
    return [c.name for c in releases_between("jax", *arguments, OFFERED, **options)]


def test_releases_are_ordered_as_versions_and_pre_releases_left_out():
    assert _names("0.10.0", "0.11.0") == [
        *("0.10.0", "0.10.1", "0.10.1.post1", "0.10.2", "0.10.10", "0.11.0")
    ]


def test_pre_releases_take_part_when_asked_for_or_named():
    assert _names("0.10.0", "0.10.1", prereleases=True) == ["0.10.0", "0.10.1rc1", "0.10.1"]
    assert _names("0.10.1rc1", "0.10.2") == ["0.10.1rc1", "0.10.1", "0.10.1.post1", "0.10.2"]


def test_builds_of_one_version_are_one_candidate():
    found = releases_between("torch", "2.1", "2.3", ["2.1+cpu", "2.2", "2.2+cpu", "2.3+cpu"])
    assert [candidate.name for candidate in found] == ["2.1", "2.2", "2.3"]


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("0.10.2", "0.10.0", "--good 0.10.2 is not older than --bad 0.10.0"),
        ("0.10.0", "0.10.0", "is not older than"),
        ("new", "0.10.0", "--good 'new' is not a version"),
        ("0.10.0", "0.12.0", "--bad 0.12.0: the package index has no jax 0.12.0 for this Python"),
        ("0.8.0", "0.10.0", "--good 0.8.0: the package index has no jax 0.8.0"),
    ],
)
def test_ends_that_can_not_be_are_refused(good, bad, message):
    with pytest.raises(BisectError, match=message):
        _names(good, bad)


LOCK = """# jax_xla
jax==0.10.2
jaxlib==0.10.2
ml-dtypes==0.6.0  # a comment
numpy==2.4.6 ; python_version >= "3.11"
"""


def test_pins_replace_lines_of_the_lock_whatever_their_spelling():
    lines = requirements_for(LOCK, {"JAX": "0.9.0", "jaxlib": None}, left_out=["ML_dtypes"])
    assert lines == ['numpy==2.4.6 ; python_version >= "3.11"', "jax==0.9.0"]
    assert names_in(LOCK) == {"jax", "jaxlib", "ml-dtypes", "numpy"}


def test_pins_keep_the_extras_of_the_lock():
    assert requirements_for("jax[cuda12]==0.10.2\n", {"jax": "0.9.0"}) == ["jax[cuda12]==0.9.0"]


def test_a_malformed_lock_is_refused_by_its_line():
    with pytest.raises(BisectError, match=r"malformed line 'jax=0\.1' in the requirements"):
        requirements_for("jax=0.1\n", {"numpy": "1"})


class Index:
    """An installer that offers versions and installs nothing."""

    def __init__(self, **offered):
        self.offered = offered
        self.asked = []

    def versions(self, package, *, prereleases):
        self.asked.append(package)
        return self.offered[package]


def test_a_companion_goes_along_where_it_has_that_version():
    index = Index(jaxlib=["0.10.0", "0.10.2"])
    recipes = Recipes(package="jax", lock=LOCK, companions={"jaxlib": None}, installer=index)
    [with_it, without] = [
        recipes(candidate) for candidate in releases_between("jax", "0.10.0", "0.10.1", OFFERED)
    ]
    assert {"jax==0.10.0", "jaxlib==0.10.0"} <= set(with_it.requirements)
    assert [line for line in without.requirements if "jax" in line] == ["jax==0.10.1"]
    assert index.asked == ["jaxlib"]
    assert with_it.fingerprint("python") != without.fingerprint("python")


def test_a_companion_goes_along_if_the_end_is_spelled_differently():
    index = Index(jaxlib=["0.10.0", "0.10.1"])
    recipes = Recipes(package="jax", lock=LOCK, companions={"jaxlib": None}, installer=index)
    [good, _] = releases_between("jax", "0.10", "0.10.1", OFFERED)
    assert any(line.startswith("jaxlib==0.10") for line in recipes(good).requirements)


def test_releases_are_listed_for_the_interpreter_of_the_environments(monkeypatch):
    asked = _answering(monkeypatch, (0, '{"versions": ["1.0"]}', ""))
    assert PipInstaller("/usr/bin/python9").versions("jax", prereleases=False) == ["1.0"]
    where = asked[0].index("--python")
    assert asked[0][where : where + 3] == ["--python", "/usr/bin/python9", "index"]


def test_a_companion_may_have_a_version_of_its_own():
    recipes = Recipes(package="jax", lock=LOCK, companions={"flax": "0.12.8"}, installer=Index())
    [good, _] = releases_between("jax", "0.10.0", "0.10.1", OFFERED)
    assert "flax==0.12.8" in recipes(good).requirements


def _answering(monkeypatch, *answers):
    """Replaces pip's answers (code, stdout, stderr) in order; returns the recorded calls."""
    asked, left = [], list(answers)

    def run(command, **_):
        asked.append(command)
        code, out, err = left.pop(0)
        return subprocess.CompletedProcess(command, code, out, err)

    monkeypatch.setattr(candidates.subprocess, "run", run)
    return asked


def test_an_old_pip_is_understood_as_well(monkeypatch):
    text = "jax (0.10.2)\nAvailable versions: 0.10.2, 0.10.1\n  INSTALLED: 0.10.1\n"
    asked = _answering(monkeypatch, (2, "", "no such option: --json"), (0, text, ""))
    assert PipInstaller().versions("jax", prereleases=True) == ["0.10.2", "0.10.1"]
    assert "--json" in asked[0]
    assert "--json" not in asked[1]
    assert all("--pre" in command for command in asked)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            (1, "", "WARNING: experimental\nERROR: No matching distribution found for nope\n"),
            "cannot list the versions of nope: No matching distribution found for nope",
        ),
        ((1, "", ""), "cannot list the versions of nope: no reason given"),
        ((0, "nothing of use", ""), "cannot parse the output of `pip index versions`"),
    ],
)
def test_an_index_that_does_not_answer_is_an_error_with_its_words(monkeypatch, answer, message):
    _answering(monkeypatch, answer)
    with pytest.raises(BisectError, match=message):
        PipInstaller().versions("nope", prereleases=False)


def test_what_does_not_install_says_why_and_where_the_log_is(monkeypatch, tmp_path):
    words = "ERROR: Cannot install jax==9\nERROR: ResolutionImpossible: see the manual\n"
    _answering(monkeypatch, (1, "Collecting jax\n", words))
    log = tmp_path / "logs" / "install.log"
    with pytest.raises(UnjudgeableError, match=r"ResolutionImpossible: see the manual \(log: "):
        PipInstaller().install(Path(sys.executable), ["jax==9"], log)
    assert "Collecting jax" in log.read_text()
    assert log.with_suffix(".txt").read_text() == "jax==9\n"


def test_pip_that_hangs_is_an_error(monkeypatch, tmp_path):
    def run(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(candidates.subprocess, "run", run)
    with pytest.raises(BisectError, match="pip index took longer than 300 s"):
        PipInstaller().versions("jax", prereleases=False)
    with pytest.raises(UnjudgeableError, match="took longer than 3600 s"):
        PipInstaller().install(Path(sys.executable), ["jax"], tmp_path / "x.log")
