"""`cbs new-model`, and the checks of `cbs check-model` that do not run a model."""

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tests_support import python_path

from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.maintenance.onboarding import (
    findings,
    implementation_checks,
    model_check,
)
from comparative_benchmark.results.record import Status

ROOT = Path(__file__).resolve().parents[2]
SUITE = Path("common_benchmark_suite/openxla/benchmark")
CASES = [f"MY_MLP_TINY_{t}_{{}}_BATCH{n}" for t in ("FP32", "FP16", "BF16") for n in (1, 4)]


@pytest.fixture
def checkout(tmp_path):
    """A copy of what the command needs of the checkout."""
    copy = tmp_path / "suite"
    shutil.copytree(
        ROOT / "common_benchmark_suite",
        copy / "common_benchmark_suite",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (copy / "tests" / "frameworks").mkdir(parents=True)
    shutil.copy2(ROOT / "pyproject.toml", copy)
    return copy


@pytest.fixture
def cbs(checkout, environment):
    """Runs `cbs` of that copy, in one of its folders."""
    path = python_path(checkout / "common_benchmark_suite", ROOT)

    def run(*arguments, cwd=None):
        return subprocess.run(
            [sys.executable, "-m", "comparative_benchmark", *arguments],
            cwd=cwd or checkout / "tests",
            env={**environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def files_of(checkout):
    return {
        path.relative_to(checkout): path.read_bytes()
        for path in checkout.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_a_new_model_is_files_of_its_own_and_in_the_catalogue(cbs, checkout):
    before = files_of(checkout)
    done = cbs("new-model", "my_mlp", "--framework", "pt,jax")
    assert done.returncode == 0, done.stderr
    after = files_of(checkout)
    assert {name: after[name] for name in before} == before
    models = SUITE / "models"
    assert set(after) - set(before) == {
        models / "architectures" / "my_mlp.py",
        *(models / framework / "my_mlp.py" for framework in ("pt", "jax")),
        SUITE / "comparative_suite" / "my_mlp_definitions.py",
        Path("tests/frameworks/test_agreement_my_mlp.py"),
    }
    assert "cbs check-model my_mlp" in done.stdout
    listed = cbs("list", "-name", "models/MY_MLP_.+")
    assert listed.returncode == 0, listed.stderr
    rows = [line.split() for line in listed.stdout.splitlines()]
    assert {row[0].split("/")[1] for row in rows} == {
        name.format(framework) for name in CASES for framework in ("PT", "JAX")
    }
    # Each workload is the same in both frameworks.
    assert len({row[1] for row in rows}) == len(rows) // 2


@pytest.mark.parametrize("name", ["m", "my_mlp", "a_name_of_24_letters_max"])
def test_what_is_written_has_our_style(cbs, checkout, name):
    pytest.importorskip("ruff")
    written = cbs("new-model", name, "--framework", "pt,jax,tf").stdout.splitlines()
    paths = [line for line in written if line.endswith(".py")]
    assert len(paths) == 6
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *paths],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bert"], "already exists: common_benchmark_suite/openxla/benchmark/models/pt/bert"),
        (["example"], "models/pt/example"),
        (["base"], "architectures/base.py"),
        (["jax"], "comparative_suite/jax"),
        (["My_Mlp"], "'My_Mlp' is not a valid model name"),
        (["my__mlp"], "is not a valid model name"),
        (["1mlp"], "is not a valid model name"),
        (["my-mlp"], "is not a valid model name"),
        (["../mlp"], "is not a valid model name"),
        (["class"], "is not a valid model name"),
        (["match"], "is not a valid model name"),
        (["a" * 25], "longer than 24"),
        (
            ["my_mlp", "--framework", "pt,mxnet"],
            "unknown framework mxnet; choices are pytorch, jax",
        ),
        (["my_mlp", "--framework", ","], "no framework given"),
        (["my_mlp", "--into", "/"], "not in a checkout"),
    ],
)
def test_a_name_that_can_not_be_is_refused_and_nothing_is_written(cbs, checkout, arguments, words):
    before = files_of(checkout)
    done = cbs("new-model", *arguments)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert files_of(checkout) == before


def test_a_file_that_is_there_is_not_written_over(cbs, checkout):
    mine = checkout / "tests" / "frameworks" / "test_agreement_my_mlp.py"
    mine.write_text("mine\n")
    before = files_of(checkout)
    done = cbs("new-model", "my_mlp")
    assert done.returncode == 1
    assert "test_agreement_my_mlp.py" in done.stderr
    assert files_of(checkout) == before


def test_what_was_written_goes_when_the_rest_can_not_be_written(cbs, checkout):
    # A folder below a file cannot be made; this fails in the middle, like a full disk.
    shutil.rmtree(checkout / "tests")
    (checkout / "tests").write_text("no folder\n")
    before = files_of(checkout)
    done = cbs("new-model", "my_mlp", cwd=checkout)
    assert done.returncode == 1
    assert "cannot be written" in done.stderr
    assert files_of(checkout) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["berd"], "choices include bert"),
        (["../pt"], "no model"),
        (["bert", "--framework", "ggml"], "bert has no implementation in ggml"),
        (["bert", "--framework", ","], "no framework given; choices are jax, pt"),
    ],
)
def test_a_model_that_is_not_there_can_not_be_checked(cbs, arguments, words):
    done = cbs("check-model", *arguments)
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.parametrize(
    ("text", "state", "words"),
    [
        ("numpy>=1\n# a comment\n\n", "ok", "numpy>=1"),
        ("numpy>=999\n", "failed", "numpy>=999 is required"),
        ("no-such-package-at-all==1\n", "failed", "no-such-package-at-all is not installed"),
        ("numpy>=999; python_version < '3'\nattrs\n", "ok", "attrs"),
        ("", "failed", "lists no package"),
        ("numpy==\n", "failed", "requirements.txt"),
        ("-r shared.txt\nattrs\n", "ok", "numpy>=1, attrs"),
        ("--extra-index-url http://127.0.0.1:1/\nattrs\n", "ok", "attrs"),
        ("-r missing.txt\n", "failed", "missing.txt"),
    ],
)
def test_requirements_are_held_against_what_is_installed(tmp_path, text, state, words):
    (tmp_path / "requirements.txt").write_text(text)
    (tmp_path / "shared.txt").write_text("numpy>=1\n")
    found = implementation_checks.requirements("pt", tmp_path)
    assert found.state == state
    assert words in found.detail
    assert (found.fix is None) is (state == "ok")


def test_missing_requirements_are_reported(tmp_path):
    assert "is missing" in implementation_checks.requirements("pt", tmp_path).detail


@pytest.mark.nightly
def test_requirements_are_really_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "requirements.txt").write_text("# nothing\n")
    assert implementation_checks.install("pt", tmp_path).state == "ok"


def test_requirements_that_cannot_be_installed_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "requirements.txt").write_text("no-such-package-at-all==1\n")
    found = implementation_checks.install("pt", tmp_path)
    assert found.state == "failed"
    assert "no-such-package-at-all" in found.detail


def test_everything_public_needs_a_docstring(tmp_path):
    (tmp_path / "a_model.py").write_text(
        '"""Says it."""\n\n\nclass Model:\n    def forward(self):\n        pass\n\n'
        "    def _own(self):\n        pass\n\n\ndef create_model():\n    pass\n"
    )
    found = implementation_checks.docstrings("pt", tmp_path / "a_model.py")
    assert found.state == "failed"
    for name in ("a_model.py: Model,", "Model.forward", "create_model"):
        assert name in found.detail
    assert "_own" not in found.detail


def test_a_module_that_cannot_be_parsed_is_a_finding(tmp_path):
    (tmp_path / "a_model.py").write_text("def create_model(\n")
    found = implementation_checks.docstrings("pt", tmp_path / "a_model.py")
    assert found.state == "failed"
    assert "a_model.py cannot be parsed: " in found.detail


def test_the_check_that_ended_the_worker_has_failed(tmp_path, monkeypatch):
    """Checks before it have findings, and those after it did not run."""

    def ends(*_):
        raise SessionEnded(Status.CRASHED, "call", "signal 11")

    checks = implementation_checks.WorkerChecks("pt", [None], None, None, tmp_path)
    for name in ("_runs_elsewhere", "_types", "_signal"):
        finding = findings.Finding(name.removeprefix("_"), "pt", "ok", "")
        monkeypatch.setattr(checks, name, lambda *_, finding=finding: finding)
    monkeypatch.setattr(checks, "_session", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(checks, "_prepare", lambda *_: tmp_path)
    monkeypatch.setattr(checks, "_seed", ends)
    states = {"seed": "failed", "memory": "not_run", "repeatable": "not_run"}
    assert {item.check: item.state for item in checks.run()[3:]} == states


def test_agreement_without_cases_in_the_first_framework(monkeypatch):
    """The others are compared."""
    monkeypatch.setattr(model_check, "workload_of", lambda _: SimpleNamespace(digest="1"))
    case = SimpleNamespace(name="models/M")
    chosen = {"jax": [], "pt": [case], "tf": [case]}
    truths = {"pt": [np.ones(3)], "tf": [np.ones(3)]}
    rows = model_check._agreement("m", ["jax", "pt", "tf"], truths, chosen)
    assert [(item.framework, item.state) for item in rows] == [
        *(("jax", "not_run"), ("pt", "ok"), ("tf", "ok"))
    ]


def test_a_model_without_cases_is_reported():
    found = implementation_checks.definitions("pt", "a.b", [])
    assert found.state == "failed"
    assert "a.b" in found.detail


def test_implementations_are_held_to_1e_9_of_the_scale():
    truth = [np.linspace(-100, 100, 50)]
    near = [truth[0] + 1e-8]
    far = [truth[0] + 1e-6]
    states = {
        finding.framework: finding.state
        for finding in findings.agreement({"pt": truth, "jax": near, "tf": far}, "hint")
    }
    assert states == {"pt": "failed", "jax": "ok", "tf": "failed"}
    other = findings.agreement({"pt": truth, "jax": [truth[0][:5]]}, "hint")
    assert [finding.state for finding in other] == ["failed", "failed"]
    assert "shapes differ" in other[1].detail
    assert all("hint" in (finding.fix or "") for finding in other)


def test_complex_outputs_are_compared_as_a_whole():
    truth = np.exp(1j * np.linspace(0, 3, 50))
    assert findings.relative_difference(truth, truth) == 0
    assert findings.relative_difference(truth.conj(), truth) == pytest.approx(2, rel=0.01)


def test_a_single_number_is_no_constant(tmp_path):
    checks = implementation_checks.WorkerChecks("pt", [None], None, None, tmp_path)
    states = [checks._signal([np.array(value)]).state for value in ([[1.5]], [0.0], [1.5, 1.5])]
    assert states == ["ok", "failed", "failed"]
