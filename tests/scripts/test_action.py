"""The composite GitHub Action is valid, and its steps work with a double of `cbs`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
INSTALL, RACE = ACTION["runs"]["steps"]

# Records its arguments, writes results, and fails for one model.
FAKE_CBS = """#!/bin/bash
printf '%s\\n' "$@" --- >> calls
if [[ "$1" == run ]]; then
  [[ "$2" == broken.py ]] && exit 1
  echo '{}' > "$6"
  [[ "$2" == wrong.py ]] && exit 2
else
  echo "| the table |"
fi
exit 0
"""


def test_the_action_is_valid():
    tool = Path(sys.executable).with_name("check-jsonschema")
    if not tool.exists():
        pytest.skip("check-jsonschema is not installed")
    command = [tool, "--builtin-schema", "vendor.github-actions", ROOT / "action.yml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_input_can_become_code():
    for step in (INSTALL, RACE):
        assert "${{" not in step["run"]
    used = " ".join([*INSTALL["env"].values(), *RACE["env"].values()])
    assert all(f"inputs.{name} " in used for name in ACTION["inputs"])


def race(folder, **inputs):
    """Runs the second step; returns its exit code, the calls of `cbs`, and what GitHub gets."""
    programs = folder / "cbs.venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "cbs").write_text(FAKE_CBS)
    (programs / "cbs").chmod(0o755)
    values = {name: about.get("default", "") for name, about in ACTION["inputs"].items()} | inputs
    environment = {
        "PATH": os.environ["PATH"],
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary"),
        **{name.upper(): value for name, value in values.items()},
    }
    # GitHub calls bash so.
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", RACE["run"]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    calls = [call.split() for call in (folder / "calls").read_text().split("---\n") if call]
    summary = folder / "summary"
    return done.returncode, calls, (folder / "output").read_text(), summary.exists()


def test_a_race_is_run_and_its_table_is_shown(tmp_path):
    code, calls, output, shown = race(
        tmp_path, model="net.py", options="--processes 3\n--batch 1,8"
    )
    assert (code, output, shown) == (0, "exit-code=0\n", True)
    assert calls == [
        [
            *("run", "net.py", "--backend", "pt_inductor:eager,onnxruntime", "-o", "results.json"),
            *("--processes", "3", "--batch", "1,8"),
        ],
        ["report", "results.json", "--markdown", "-"],
    ]


@pytest.mark.parametrize(
    ("model", "code", "shown"), [("wrong.py", 2, True), ("broken.py", 1, False)]
)
def test_the_exit_code_is_that_of_the_run(tmp_path, model, code, shown):
    found, calls, output, has_summary = race(tmp_path, model=model)
    assert (found, output, has_summary) == (code, f"exit-code={code}\n", shown)
    assert len(calls) == 1 + shown


def test_a_model_that_looks_like_an_option_is_a_file(tmp_path):
    _, calls, _, _ = race(tmp_path, model="-o=x.py")
    assert calls[0][1] == "./-o=x.py"
