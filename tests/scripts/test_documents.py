"""The commands of README, CONTRIBUTING, every page and the OpenXLA suite's guide work."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import results_support
from tests_support import python_path

ROOT = Path(__file__).resolve().parents[2]

# The tutorials need each other's results: in this order.
DOCUMENTS = [
    *("README.md", "CONTRIBUTING.md", "docs/quickstart.md", "docs/own-model.md"),
    *("docs/regression-in-ci.md", "docs/explain.md", "docs/read-a-result.md", "docs/machine.md"),
]
# Their commands read results.json, or results/*.json, in the folder that they run in.
OF_RESULTS = ["docs/report.md", "docs/formats.md", "docs/history.md"]
# What cannot be run inside a test, and where it is run instead.
ELSEWHERE = {
    "./scripts/quickstart.sh": "tests/frameworks/test_backends.py runs it and reads its results",
    "./scripts/test.sh": "runs this test",
    ".venv/bin/pre-commit install": "changes the checkout's git hooks; test_hooks runs them",
    "pip install": "changes the environment; test_seed_guide_works_in_a_fresh_checkout makes one",
    "./scripts/nightly.sh": "tests/scripts/test_nightly_scripts.py",
    "PR_BODY=": "tests/scripts/test_nightly_scripts.py",
    "./scripts/update_artifacts.sh": "tests/scripts/test_nightly_scripts.py",
    "./scripts/gpu_": "needs a GPU or another machine; tests/scripts/test_gpu_scripts.py",
    "cbs bisect": "installs releases from an index; tests/harness/test_bisect_run.py has a folder",
    "cbs artifacts": "needs a bucket; tests/unit/test_artifacts_command*.py have an emulator",
    "cbs list --json -name": "as the artifacts above, which it lists",
    "./comparative_benchmark/jax_xla/run_benchmarks.py": "tests/harness/test_fetched_artifacts.py",
    "cbs run --backend xla_hlo:stablehlo": "tests/frameworks/test_exported_program_runs.py",
}


def _blocks(document: str) -> list[str]:
    """Returns the shell blocks of a document, without comments and what runs elsewhere."""
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = []
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        # A line with the lines that it goes on in.
        commands = re.findall(r"(?:.*\\\n)*.*\n", block)
        commands = [command for command in commands if not command.startswith(tuple(ELSEWHERE))]
        if any(map(str.strip, commands)):
            blocks.append("".join(commands))
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
    path = python_path(target, target / "common_benchmark_suite")
    return target, {**environment, "PYTHONPATH": path}


@pytest.mark.parametrize("block", [block for name in DOCUMENTS for block in _blocks(name)])
def test_shell_blocks_run(block, environment, request):
    # What makes an environment, or a model, does so in a copy; all else in the one that is there.
    cwd = ROOT
    if "setup_venv.sh" in block:
        cwd = request.getfixturevalue("checkout")
    elif "new-model" in block:
        cwd, environment = request.getfixturevalue("own_checkout")
    done = _run(block, cwd, environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("document", OF_RESULTS)
def test_shell_blocks_run_on_results_that_are_there(document, environment, tmp_path):
    results_support.write(tmp_path / "results.json")
    (tmp_path / "results").mkdir()
    results_support.write(tmp_path / "results" / "one.json")
    [block] = _blocks(document)
    changes = {"PATH": f"{ROOT}/.venv/bin:{environment['PATH']}", "XDG_DATA_HOME": str(tmp_path)}
    done = _run(block, tmp_path, {**environment, **changes})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_no_block_of_any_page_is_forgotten():
    every = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    run = {*DOCUMENTS, *OF_RESULTS}
    assert [name for name in every if name not in run and _blocks(name)] == []


def test_every_command_that_is_left_out_is_in_a_document():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    assert [start for start in ELSEWHERE if f"\n{start}" not in text] == []


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
