"""A model from `cbs new-model` follows the contract; a damaged one does not."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from agreement_support import need
from tests_support import python_path

pytestmark = pytest.mark.frameworks

ROOT = Path(__file__).resolve().parents[2]
SUITE = Path("common_benchmark_suite/openxla/benchmark")


@pytest.fixture(scope="module")
def new_model(tmp_path_factory, environment):
    """A copy of the checkout with a new model in it, and how to run `cbs` there."""
    need("torch")
    need("flax")
    copy = tmp_path_factory.mktemp("checkout")
    shutil.copytree(
        ROOT / "common_benchmark_suite",
        copy / "common_benchmark_suite",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (copy / "tests" / "frameworks").mkdir(parents=True)
    shutil.copy2(ROOT / "pyproject.toml", copy)
    path = python_path(copy / "common_benchmark_suite", ROOT)

    def cbs(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "comparative_benchmark", *arguments],
            cwd=copy,
            env={**environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    made = cbs("new-model", "my_mlp")
    assert made.returncode == 0, made.stderr
    return copy, cbs


def test_it_keeps_to_the_contract_at_once(new_model):
    _, cbs = new_model
    done = cbs("check-model", "my_mlp")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "20 checks ok" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[1:3] for row in rows if row[:1] in (["types"], ["agreement"])] == [["ok", "ok"]] * 2


SPOILT = '''
"""Spoilt in every way that leaves it running."""

import torch

from openxla.benchmark.models.pt import good

KEPT = []
UNSEEDED = torch.Generator()
UNSEEDED.seed()


class Spoilt(good.MyMlpModel):
    def forward(self, pixels):
        # Wider than declared, and another result each time.
        return super().forward(pixels).double() + 1e-5 * torch.randn((), generator=UNSEEDED)


def create_model(seed=0, **parameters):
    """Returns a model with the weights of one seed, whatever is asked for, and keeps it."""
    KEPT.append(Spoilt({"batch_size": 1, "data_type": "fp32", **parameters}))
    return KEPT[-1]
'''


@pytest.mark.nightly
def test_a_spoilt_one_fails_with_what_to_do(new_model):
    copy, cbs = new_model
    folder = copy / SUITE / "models" / "pt"
    good = (folder / "my_mlp.py").read_text()
    requirements = (folder / "requirements.txt").read_text()
    try:
        (folder / "good.py").write_text(good)
        (folder / "my_mlp.py").write_text(SPOILT.lstrip())
        (folder / "requirements.txt").write_text("torch>=999\n")
        done = cbs("check-model", "my_mlp")
    finally:
        (folder / "good.py").unlink()
        (folder / "my_mlp.py").write_text(good)
        (folder / "requirements.txt").write_text(requirements)
    assert done.returncode == 2, done.stdout + done.stderr
    failed = {line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("failed")}
    assert failed == {
        "failed  pt  docstrings",
        "failed  pt  requirements",
        "failed  pt  runs elsewhere",  # output_0 was not printed
        "failed  pt  types",
        "failed  pt  seed",
        "failed  pt  repeatable",
        "failed  pt  memory",
        "failed  pt  agreement",
        "failed  jax  agreement",
    }
    assert done.stdout.count("    fix: ") == len(failed)
    assert "cbs parity --drift" in done.stdout


def test_one_that_does_not_run_fails_and_the_rest_is_not_run(new_model):
    copy, cbs = new_model
    file = copy / SUITE / "models" / "pt" / "my_mlp.py"
    good = file.read_text()
    try:
        file.write_text(good.replace("return self.head(x)", "return self.tail(x)"))
        done = cbs("check-model", "my_mlp", "--framework", "pt")
    finally:
        file.write_text(good)
    assert done.returncode == 2
    assert "no attribute 'tail'" in done.stdout
    assert "not run  pt  memory: the model did not run" in done.stdout
    assert "n/a  pt  agreement" in done.stdout
