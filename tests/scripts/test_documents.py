"""The commands of README, CONTRIBUTING, every page and the OpenXLA suite's guide work.

All command lines are parsed, and their names resolved. The first documents that a user reads are
executed, too; all others are executed in the nightly tier.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import results_support
from documents_support import ROOT, blocks, copy_checkout, run_bash, shell_blocks
from tests_support import python_path

from comparative_benchmark.cli import command as cli

FIRST_READ = [
    "README.md",
    "docs/getting-started/first-race.md",
    "docs/getting-started/own-model.md",
]
# The tutorials need each other's results: in this order.
DOCUMENTS = [
    *FIRST_READ,
    *("docs/getting-started/install.md", "docs/guides/measure.md"),
    *("docs/guides/extend/add-a-model.md", "docs/guides/regression-in-ci.md"),
    *("docs/guides/explain.md", "docs/getting-started/read-a-result.md", "docs/guides/machine.md"),
]
# Their commands read results.json, or results/*.json, in the folder that they run in.
OF_RESULTS = ["docs/guides/report.md", "docs/guides/formats.md", "docs/guides/history.md"]
# Its commands use the page's first description, in one folder.
OF_FLEETS = "docs/guides/fleet.md"
# They write packages and install them, in a separate environment: test_contributing.py.
OF_PACKAGES = [f"docs/guides/extend/add-{thing}.md" for thing in ("a-backend", "a-recipe")]
OF_PACKAGES += ["docs/guides/extend/add-an-operator.md"]
# Blocks that cannot run inside a test, and the places where they run instead.
ELSEWHERE = {
    "./scripts/quickstart.sh": "tests/frameworks/test_backends.py runs it and reads its results",
    "./scripts/test.sh": "runs this test",
    ".venv/bin/pre-commit install": "changes the checkout's git hooks; test_hooks runs them",
    "pip install": "changes the environment; test_seed_guide_works_in_a_fresh_checkout makes one",
    "./scripts/nightly.sh": "tests/scripts/test_nightly_scripts.py",
    "PR_BODY=": "tests/scripts/test_nightly_scripts.py",
    "./scripts/update_artifacts.sh": "tests/scripts/test_nightly_scripts.py",
    "./scripts/gpu_": "needs a GPU or another machine; tests/gpu/test_gpu_scripts.py",
    "python benchmarks/published_results.py": "takes ten hours; unit/test_published_results.py",
    "cbs bisect": "installs releases from an index; tests/harness/test_bisect_run.py has a folder",
    "cbs artifacts": "needs a bucket; unit/maintenance/test_artifacts_command*.py have an emulator",
    "cbs list --json -name": "as the artifacts above, which it lists",
    "./comparative_benchmark/jax_xla/run_benchmarks.py": "tests/harness/test_fetched_artifacts.py",
    **{
        f"cbs fleet {action} {file}.toml": "needs other machines; unit/fleet has doubles of them"
        for action in ("submit", "status", "collect")
        for file in ("hosts", "cluster")
    },
    "cbs fleet collect FLEET.toml --exported": "unit/fleet/test_exports.py has its results",
    "cbs run --backend xla_hlo:stablehlo": "tests/frameworks/test_exported_program_runs.py",
}


def _blocks(document: str) -> list[str]:
    """Returns the shell blocks of a document, without comments and blocks that run elsewhere."""
    blocks = []
    for block in shell_blocks(document):
        # A line with its continuation lines.
        commands = re.findall(r"(?:.*\\\n)*.*\n", block)
        commands = [command for command in commands if not command.startswith(tuple(ELSEWHERE))]
        if any(map(str.strip, commands)):
            blocks.append("".join(commands))
    return blocks


@pytest.fixture(scope="module")
def environment(kept_environment):
    """Variables with the kept root: documents run models of the suite."""
    return kept_environment


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy of the working tree, with the existing environment."""
    target = tmp_path_factory.mktemp("checkout") / "suite"
    copy_checkout(target)
    return target


@pytest.fixture
def own_checkout(checkout, tmp_path, environment) -> tuple[Path, dict[str, str]]:
    """A copy for one test with the existing environment, whose `cbs` is the copy's."""
    target = tmp_path / "suite"
    shutil.copytree(checkout, target, ignore=shutil.ignore_patterns("*.venv"))
    (target / ".venv").symlink_to(ROOT / ".venv")
    path = python_path(target, target / "common_benchmark_suite")
    return target, {**environment, "PYTHONPATH": path}


# Replaces all commands of a block by functions that write their words to a file. Programs of the
# path are not found, so that the shell calls its handler for them.
RECORDER = """
RECORD=$1 PATH=/nonexistent
record() { printf '%s\\0' "$@" $'\\n' >> "${RECORD}"; }
command_not_found_handle() { record "$@"; }
source() { :; }
cd() { record cd "$@"; }
eval() { record eval "$@"; }
"""


def _commands(block: str, folder: Path) -> list[list[str]]:
    """Returns the commands of a shell block, each as its words after expansion; runs none."""
    # A path cannot be a function, so that it becomes an argument of one.
    renamed = re.sub(r"^(\s*)(\.\S*/\S+)", r"\1record \2", block, flags=re.MULTILINE)
    record = folder / "commands"
    record.touch()
    done = subprocess.run(
        ["/bin/bash", "-c", RECORDER + renamed, "bash", record],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "syntax error" not in done.stderr, done.stderr
    lines = record.read_text().split("\0\n\0")
    return [line.split("\0") for line in lines if line]


PAGES = ["README.md", "CONTRIBUTING.md"]
PAGES += [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", [page for page in PAGES if shell_blocks(page)])
def test_command_lines_are_right(page, tmp_path, monkeypatch, capsys):
    found = []
    for number, block in enumerate(shell_blocks(page)):
        folder = tmp_path / f"block-{number}"
        folder.mkdir()
        found += _commands(block, folder)
    assert found
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    for name, *words in found:
        if "/" in name and not name.startswith(".venv"):
            assert os.access(ROOT / name, os.X_OK), name
        if name == "cbs":
            _check(words, capsys)


def _check(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Parses a command line of `cbs`; resolves the names of a run of the catalogue."""
    names_cases = words[:1] == ["run"] and "-name" in words
    try:
        if names_cases and "MY_" not in " ".join(words):
            code = cli.main([*words, "--dry-run"])
        else:
            code = cli.parse(words) is None
    except SystemExit as ended:
        code = ended.code
    assert code == 0, (words, capsys.readouterr().err)


def _tiers(name: str, block: str) -> list[Any]:
    """Returns marks of a block's tests: races are short by default, and word for word nightly."""
    default = [()] if name in FIRST_READ else []
    return default if default and "--processes" not in block else [*default, pytest.mark.nightly]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{name}-{number}{'' if marks else '-short'}", marks=marks)
        for name in DOCUMENTS
        for number, block in enumerate(_blocks(name))
        for marks in _tiers(name, block)
    ],
)
def test_shell_blocksrun_bash(block, environment, request):
    # A block that makes an environment or a model runs in a copy of the checkout.
    cwd = ROOT
    if "setup_venv.sh" in block:
        cwd = request.getfixturevalue("checkout")
    elif "new-model" in block:
        cwd, environment = request.getfixturevalue("own_checkout")
    if "nightly" not in request.node.keywords:
        # Short races; with a budget, they do not measure the ceilings of the machine. `--all` does.
        block = re.sub(r"--processes \d", "--processes 3 --trial-budget 3 --budget 600", block)
    done = run_bash(block, cwd, environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("document", OF_RESULTS)
def test_shell_blocks_run_on_results_that_are_there(document, environment, tmp_path):
    results_support.write(tmp_path / "results.json")
    (tmp_path / "results").mkdir()
    results_support.write(tmp_path / "results" / "one.json")
    [block] = _blocks(document)
    changes = {"PATH": f"{ROOT}/.venv/bin:{environment['PATH']}", "XDG_DATA_HOME": str(tmp_path)}
    done = run_bash(block, tmp_path, {**environment, **changes})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.nightly
def test_a_fleet_runs_on_this_machine(environment, tmp_path):
    [first, *_] = blocks((ROOT / OF_FLEETS).read_text(), "toml")
    (tmp_path / "FLEET.toml").write_text(first)
    path = {"PATH": f"{ROOT}/.venv/bin:{environment['PATH']}"}
    done = run_bash("".join(_blocks(OF_FLEETS)), tmp_path, {**environment, **path})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "4 new results: results/tiny.json" in done.stdout


def test_no_block_of_any_page_is_forgotten():
    every = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    run = {*DOCUMENTS, *OF_RESULTS, *OF_PACKAGES, OF_FLEETS}
    assert [name for name in every if name not in run and _blocks(name)] == []


def test_every_command_that_is_left_out_is_in_a_document():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    text = "\n".join(page.read_text() for page in pages)
    assert [start for start in ELSEWHERE if f"\n{start}" not in text] == []


# The page on installation has a block for one backend that runs `run_benchmarks.py`.
@pytest.mark.nightly
def test_nightly_script_runs_the_cases_of_one_backend(environment, tmp_path):
    script = ". .venv/bin/activate; ./comparative_benchmark/jax_xla/benchmark_all.sh"
    options = "--tag tiny -w 0 -iter 2 --share-workers"
    done = run_bash(f"{script} host-cpu {tmp_path}/r.json {options}", ROOT, environment)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count(" ok") == 12


# `./scripts/test.sh` runs the same checks.
@pytest.mark.nightly
def test_hooks_pass(environment):
    done = run_bash(".venv/bin/pre-commit run --all-files", ROOT, environment)
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


# Making an environment takes minutes.
@pytest.mark.nightly
def test_seed_guide_works_in_a_fresh_checkout(checkout, environment):
    clean = {k: v for k, v in environment.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    clean["PATH"] = os.pathsep.join(
        part for part in clean["PATH"].split(os.pathsep) if str(ROOT) not in part
    )
    done = run_bash(SEED_GUIDE, checkout, clean)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert done.stdout.count(" ok") >= 6
    assert "installing" in done.stderr
    installed = run_bash("./pt-benchmarks.venv/bin/python -m pip list", checkout, clean).stdout
    assert "torch" in installed
    assert not re.search(r"^(jax|iree|nvidia|triton)", installed, re.MULTILINE)
    again = run_bash("./comparative_benchmark/pt_inductor/setup_venv.sh", checkout, clean)
    assert "installing" not in again.stderr
