"""The workflows: valid by GitHub's schema, pinned, with few rights, and safe from injected text."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from comparative_benchmark.backends.api import backends
from comparative_benchmark.engine.trial import parse_competitors
from openxla.benchmark import devices

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
# Allowed steps other than scripts of the checkout.
PLAIN = {"cat"}
WRITERS = {
    ("run_comparative_benchmark.yml", "shard"): {"id-token"},
    ("release.yml", "publish"): {"id-token"},
    ("run_comparative_benchmark.yml", "parity"): {"id-token"},
    ("run_comparative_benchmark.yml", "publish"): {"id-token", "issues"},
    ("pr_benchmark.yml", "comment"): {"pull-requests"},
    ("site.yml", "publish"): {"id-token", "pages"},
    ("update_artifacts.yml", "update"): {"id-token"},
}


def _read(path):
    # YAML 1.1 takes the key `on` for a truth value.
    document = yaml.safe_load(path.read_text())
    return {("on" if key is True else key): value for key, value in document.items()}


def _steps(path):
    return [(name, job, step) for name, job in _read(path)["jobs"].items() for step in job["steps"]]


def _validate(*files):
    tool = Path(sys.executable).with_name("check-jsonschema")
    if not tool.exists():
        pytest.skip("check-jsonschema is not installed")
    schema = ("--builtin-schema", "vendor.github-workflows")
    return subprocess.run([tool, *schema, *files], capture_output=True, text=True, check=False)


def test_there_are_the_workflows_that_the_documents_name():
    assert [path.name for path in WORKFLOWS] == [
        "ci.yml",
        "pr_benchmark.yml",
        "release.yml",
        "run_comparative_benchmark.yml",
        "site.yml",
        "update_artifacts.yml",
    ]


def test_they_are_valid_by_the_schema(tmp_path):
    done = _validate(*WORKFLOWS)
    assert done.returncode == 0, done.stdout + done.stderr
    broken = tmp_path / "broken.yml"
    broken.write_text(WORKFLOWS[0].read_text().replace("runs-on", "runs-of"))
    assert _validate(broken).returncode == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_digest_and_say_their_version(path):
    lines = [line.strip() for line in path.read_text().splitlines() if "uses:" in line]
    assert lines
    for line in lines:
        assert re.fullmatch(r"(- )?uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_an_action_has_one_digest_everywhere():
    used = {step["uses"] for path in WORKFLOWS for _, _, step in _steps(path) if "uses" in step}
    assert len({use.partition("@")[0] for use in used}) == len(used)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_text_of_others_becomes_part_of_a_command(path):
    for _, _, step in _steps(path):
        assert "${{" not in step.get("run", "")
    assert "pull_request_target" not in _read(path)["on"]
    assert "workflow_run" not in _read(path)["on"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_command_is_a_script_that_runs_here(path):
    for _, _, step in _steps(path):
        if "run" in step:
            program = step["run"].split()[0]
            assert program in PLAIN or os.access(ROOT / program, os.X_OK), step["run"]
            assert "\n" not in step["run"].strip()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_jobs_may_read_and_write_what_they_need_and_no_more(path):
    document = _read(path)
    assert document["permissions"] in ({"contents": "read"}, {})
    for name, job in document["jobs"].items():
        rights = job.get("permissions", document["permissions"])
        writes = {right for right, level in rights.items() if level == "write"}
        assert writes == WRITERS.get((path.name, name), set())
        assert rights["contents"] == "read"
        assert job["timeout-minutes"] <= 360
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_what_a_pull_request_proposes_never_runs_with_a_right_to_write():
    jobs = _read(ROOT / ".github/workflows/pr_benchmark.yml")["jobs"]
    for job in jobs.values():
        [checkout] = [s for s in job["steps"] if s.get("uses", "").startswith("actions/checkout")]
        proposed = "head" in checkout["with"]["ref"]
        assert proposed != ("write" in job["permissions"].values())
    assert "github.event.pull_request.head.repo.full_name" in jobs["comment"]["if"]


def test_the_shards_name_devices_and_backends_that_there_are():
    text = (ROOT / ".github/workflows/run_comparative_benchmark.yml").read_text()
    [usual] = re.findall(r"\|\| '(\[.*?\])'\)", text, re.DOTALL)
    shards = json.loads(usual)
    known = {device.name: device for device in devices.ALL_DEVICES}
    raced = set()
    for shard in shards:
        device = known[shard["device"]]
        competitors = parse_competitors(shard["backends"], device.accelerator_type)
        raced |= {competitor.backend.name for competitor in competitors}
    ours = {name for name, backend in backends().items() if "test_" not in name}
    assert raced == ours
    assert len({shard["name"] for shard in shards}) == len(shards)
