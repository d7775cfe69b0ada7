"""`cbs ci-template`: a valid workflow in which names are not executed, and its script."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from report_support import document, record
from results_support import decoded

from comparative_benchmark.cli.command import main
from comparative_benchmark.errors import UsageError
from comparative_benchmark.maintenance.onboarding.ci_template import workflow
from comparative_benchmark.results.comparing.compare import compare_documents
from comparative_benchmark.results.comparing.comparison import Fate
from openxla.benchmark import installation

NET = "import torch\nclass Net(torch.nn.Module): ...\ndef example_inputs(): ...\n"
HOSTILE = "a'b\"@MODEL@ $(touch owned) #: é.py"


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    (folder / "net.py").write_text(NET)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        installation, "requirement", lambda names: f"suite[{names}] @ git+https://x@1"
    )
    return folder


def race_of(path):
    return yaml.safe_load(path.read_text())["jobs"]["race"]


@pytest.mark.parametrize(
    ("words", "model"),
    [
        (["net.py"], "net.py"),
        (["net.py:Net", "--backend", "jax_xla", "--install", "x[y]>=1"], "net.py:Net"),
        (["net:Net"], "net:Net"),
        ([HOSTILE], HOSTILE),
    ],
)
def test_the_workflow_is_valid_and_names_the_model(project, words, model):
    (project / HOSTILE).write_text(NET)
    assert main(["ci-template", *words]) == 0
    (path,) = (project / ".github" / "workflows").iterdir()
    assert race_of(path)["env"]["MODEL"] == model
    assert main(["ci-template", *words]) == 0  # the same again is not an error
    tool = Path(sys.executable).with_name("check-jsonschema")
    if not tool.exists():
        pytest.skip("check-jsonschema is not installed")
    command = [tool, "--builtin-schema", "vendor.github-workflows", path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_installs_this_revision_and_no_unregistered_name(project):
    assert main(["ci-template", "net.py"]) == 0
    (path,) = (project / ".github" / "workflows").iterdir()
    suite = race_of(path)["env"]["SUITE"]
    assert suite == "suite[pt-inductor,onnxruntime] @ git+https://x@1"


@pytest.mark.parametrize(
    "origin", [None, "suite @ file:///tmp/suite.whl", "suite @ git+ssh://git@x/o/r@1"]
)
def test_a_copy_without_a_public_origin_needs_a_requirement(project, monkeypatch, capsys, origin):
    monkeypatch.setattr(installation, "requirement", lambda _: origin)
    assert main(["ci-template", "net.py"]) == 1
    assert "choose a revision with --install 'common-benchmark-suite[" in capsys.readouterr().err
    assert not (project / ".github").exists()
    assert main(["ci-template", "net.py", "--install", "suite @ git+https://x@1"]) == 0


def test_a_folder_of_definitions_is_found_and_raced_by_its_name(project):
    folder = project / "suite"
    folder.mkdir()
    (folder / "net_definitions.py").write_text("ALL_BENCHMARKS = []")
    assert main(["ci-template"]) == 0
    (path,) = (project / ".github" / "workflows").iterdir()
    assert race_of(path)["env"]["MODEL"] == "suite"
    assert '--suite-dir "${MODEL}"' in path.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "`cbs run MODEL --save-as` wrote exactly one folder here; found: none"),
        (["nett.py"], "no such file"),
        (
            ["bare.py"],
            "bare.py does not define the model's inputs",
        ),
        (["../outside.py"], "a workflow can use only files in the checkout"),
        (["json:dumps"], "specify it as PATH.py:CALLABLE instead"),
        (["${{ secrets.KEY }}.py"], "it contains '${{' or an unprintable character"),
        (["net.py", "--backend", "a\nb"], "it contains '${{' or an unprintable character"),
    ],
)
def test_what_cannot_be_raced_is_told_and_nothing_is_written(project, capsys, words, message):
    for name in ("../outside.py", "${{ secrets.KEY }}.py"):
        (project / name).write_text(NET)
    (project / "bare.py").write_text(NET.partition("def")[0])
    assert main(["ci-template", *words]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (project / ".github").exists()


def test_another_file_is_not_replaced(project, capsys):
    path = project / ".github" / "workflows" / "benchmark-net-py.yml"
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    assert main(["ci-template", "net.py"]) == 1
    assert "already exists with other content; remove it first" in capsys.readouterr().err
    assert path.read_text() == "mine"


def test_an_option_cannot_be_smuggled_in():
    text = workflow("-o=x.py", is_suite=False, backends="iree", suite="s")
    assert yaml.safe_load(text)["jobs"]["race"]["env"]["MODEL"] == "./-o=x.py"
    with pytest.raises(UsageError):
        workflow("net.py", is_suite=False, backends="${{ x }}", suite="s")


FAKE = """#!/bin/sh
command="$1" words="$*"
while [ $# -gt 0 ]; do [ "$1" = -o ] && out="$2"; shift; done
case "$command" in
  run) echo "$PWD: $words" >> ../calls; [ -e fails ] && exit 1; echo x > "$out" ;;
  compare) echo compared; exit 2 ;;
  report) echo alone ;;
esac
"""


@pytest.mark.parametrize("base_fails", [False, True])
def test_the_script_races_both_sides_and_gives_the_name_as_it_is(tmp_path, base_fails):
    steps = yaml.safe_load(workflow(HOSTILE, is_suite=False, backends="b", suite="s"))
    (script,) = [s["run"] for s in steps["jobs"]["race"]["steps"] if "Race" in s.get("name", "")]
    for side in ("base", "head"):
        (tmp_path / side).mkdir()
        tool = tmp_path / f"{side}.venv" / "bin" / "cbs"
        tool.parent.mkdir(parents=True)
        tool.write_text(FAKE)
        tool.chmod(0o755)
    if base_fails:
        (tmp_path / "base" / "fails").touch()
    done = subprocess.run(
        ["bash", "-e", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "MODEL": HOSTILE, "BACKENDS": "b"},
        capture_output=True,
        text=True,
        check=False,
    )
    table = (tmp_path / "results" / "table.md").read_text()
    assert done.returncode == (0 if base_fails else 2), done.stderr
    assert table.endswith("alone\n" if base_fails else "compared\n")
    assert table.startswith("The base could not be run (exit code 1)") == base_fails
    calls = (tmp_path / "calls").read_text()
    assert f"/base: run {HOSTILE} --backend b" in calls
    assert f"/head: run {HOSTILE} --backend b" in calls
    assert not (tmp_path / "owned").exists()
    assert not list(tmp_path.glob("*/owned"))


def test_a_model_that_became_slower_does_not_mean_a_slower_machine():
    sides = []
    for digest, scale in (("e" * 64, 1.0), ("f" * 64, 1.3)):
        plain = [
            record(name, backend, scale=scale)
            for name in ("w1", "w2")
            for backend in ("pt_inductor:inductor", "jax_xla:xla")
        ]
        for each in plain:
            workload = each["definition"]["workload"]
            workload["digest"] = digest[:32] + workload["digest"][:32]
        sides.append(decoded(document(*plain)))
    items = compare_documents(*sides, changed_models=True)
    assert [item.verdict.value for item in items] == ["slower"] * 4


def test_a_changed_model_is_compared_where_that_is_asked_for():
    sides = []
    for digest in ("e" * 64, "f" * 64):
        plain = record()
        plain["definition"]["workload"]["digest"] = digest
        sides.append(decoded(document(plain)))
    (item,) = compare_documents(*sides)
    assert item.fate is Fate.INCOMPARABLE
    assert "different workloads" in item.reason
    (item,) = compare_documents(*sides, changed_models=True)
    assert item.fate is Fate.COMPARED
    assert item.reason.endswith("the model has changed")
