"""`cbs run --env`: environments that race, are resumed, or are refused."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

TOYS = ("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy")
ONE = (*TOYS, "-name", "models/TOY_BUSY/.+")
# The smallest race that has a verdict.
SHORT = ("--processes", "3", "--precision", "0.5")


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """A second environment with the packages of this one."""
    folder = tmp_path_factory.mktemp("other")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    purelib = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    # `site` obeys the links in our folder, too, as in editable installs.
    ours = sysconfig.get_path("purelib")
    (purelib / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    return folder


@pytest.mark.alone
def test_two_environments_race_and_get_a_verdict(cbs_run, other):
    run = cbs_run(*ONE, "--env", f"old={sys.executable},new={other}", *SHORT)
    assert run.code == 0, run.err
    records = {
        record["definition"]["environment"]["name"]: record for record in run.document["benchmarks"]
    }
    assert list(records) == ["old", "new"]
    races = {name: record["metrics"]["framework_level"]["race"] for name, record in records.items()}
    assert races["old"]["id"] == races["new"]["id"]
    row = next(line for line in run.out.splitlines() if "test_numpy:direct@new" in line)
    assert any(verdict in row for verdict in ("faster", "slower", "same", "unclear"))
    [environment] = [run["execution_environment"] for run in run.document["runs"]]
    assert environment["environments"]["new"]["python"].startswith(str(other))


def test_environments_are_told_apart_on_resume(cbs_run, other):
    fixed = ("-w", "0", "-iter", "1")
    cbs_run(*ONE, *fixed, "--env", f"old={sys.executable}")
    both = f"old={sys.executable},new={other}"
    again = cbs_run(*ONE, *fixed, "--env", both, "--resume")
    assert len(again.document["benchmarks"]) == 2, again.err


def test_an_environment_that_can_not_serve_is_refused_before_anything_runs(cbs_run, tmp_path):
    run = cbs_run(*ONE, "--env", f"old={tmp_path}/none")
    assert run.code == 1
    assert "no Python interpreter found" in run.err
    assert not run.output.exists()
