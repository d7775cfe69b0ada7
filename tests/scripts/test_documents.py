"""The commands of README, CONTRIBUTING, the tutorial and the OpenXLA suite's guide work."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What cannot be run inside a test, and where it is run instead.
ELSEWHERE = {
    "./scripts/quickstart.sh": "tests/frameworks/test_backends.py runs it and reads its results",
    "./scripts/test.sh": "runs this test",
    ".venv/bin/pre-commit install": "changes the checkout's git hooks; test_hooks runs them",
}


def _blocks(document: str) -> list[str]:
    """Returns the shell blocks of a document, without comments and what runs elsewhere."""
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = []
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        lines = [line for line in block.splitlines() if not line.startswith(tuple(ELSEWHERE))]
        if any(lines):
            blocks.append("\n".join(lines))
    return blocks


def _run(script: str, cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the checkout as it stands, with the environment that is there."""
    target = tmp_path_factory.mktemp("checkout") / "suite"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)
    return target


@pytest.fixture
def own_checkout(checkout, tmp_path, environment) -> tuple[Path, dict[str, str]]:
    """A copy for one test with the environment that is there, whose `cbs` then is the copy's."""
    target = tmp_path / "suite"
    shutil.copytree(checkout, target, ignore=shutil.ignore_patterns("*.venv"))
    (target / ".venv").symlink_to(ROOT / ".venv")
    path = os.pathsep.join([str(target), str(target / "common_benchmark_suite")])
    return target, {**environment, "PYTHONPATH": path}


@pytest.mark.parametrize(
    "block",
    [
        block
        for document in ("README.md", "CONTRIBUTING.md", "docs/own-model.md", "docs/explain.md")
        for block in _blocks(document)
    ],
)
def test_shell_blocks_run(block, environment, request):
    # What makes an environment, or a model, does so in a copy; all else in the one that is there.
    cwd = ROOT
    if "setup_venv.sh" in block:
        cwd = request.getfixturevalue("checkout")
    elif "new-model" in block:
        cwd, environment = request.getfixturevalue("own_checkout")
    done = _run(block, cwd, environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_every_command_that_is_left_out_is_in_a_document():
    text = (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    assert all(command in text for command in ELSEWHERE)


def test_nightly_script_runs_the_cases_of_one_backend(environment, tmp_path):
    script = ". .venv/bin/activate; ./comparative_benchmark/jax_xla/benchmark_all.sh"
    done = _run(f"{script} host-cpu {tmp_path}/r.json --tag tiny -w 0 -iter 2", ROOT, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count(" ok") == 12


def test_hooks_pass(environment):
    done = _run(".venv/bin/pre-commit run --all-files", ROOT, environment)
    assert done.returncode == 0, done.stdout[-3000:]
    assert done.stdout.count("Passed") == 4


# Step 3-1 of the OpenXLA suite's guide, word for word but for the folder of the results.
SEED_GUIDE = r"""
python3 --version
./comparative_benchmark/pt_inductor/setup_venv.sh
source ./pt-benchmarks.venv/bin/activate
./comparative_benchmark/pt_inductor/run_benchmarks.py \
  -name "models/EXAMPLE_FP32_PT_BATCH.+" \
  -device host-cpu \
  -o results.json \
  --generate-artifacts \
  --verbose
"""


def test_seed_guide_works_in_a_fresh_checkout(checkout, environment):
    clean = {k: v for k, v in environment.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    clean["PATH"] = os.pathsep.join(
        part for part in clean["PATH"].split(os.pathsep) if str(ROOT) not in part
    )
    done = _run(SEED_GUIDE, checkout, clean)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count(" ok") >= 6
    assert "installing" in done.stderr
    installed = _run("./pt-benchmarks.venv/bin/python -m pip list", checkout, clean).stdout
    assert "torch" in installed
    assert not re.search(r"^(jax|iree|nvidia|triton)", installed, re.MULTILINE)
    again = _run("./comparative_benchmark/pt_inductor/setup_venv.sh", checkout, clean)
    assert "installing" not in again.stderr
