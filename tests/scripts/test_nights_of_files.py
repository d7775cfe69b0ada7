"""Thirty nights of files with `nightly_publish.sh`: changes planted in the last are found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from report_support import document, record, run

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
CASES = ("BERT", "GPT2", "RESNET", "VIT")
NIGHTS = 30
PLANTED = "GPT2"


def results_of(night, *, factor=1.0, status="ok", leaves_out=False):
    """Results of a night; the arguments are the changes planted in one case."""
    random, run_id = np.random.default_rng(night), f"night-{night}"
    records = []
    for latency_ms, case in enumerate(CASES, 1):
        noise = 1 + 0.005 * random.standard_normal()
        is_planted = case == PLANTED
        if is_planted and leaves_out:
            continue
        made = record(
            case,
            run_id=run_id,
            scale=latency_ms * noise * (factor if is_planted else 1),
            status=status if is_planted else "ok",
            metrics={"program": {"artifact_sha256": f"{night:064x}"}},
            workload={"digest": case.lower() * 8, "label": case.lower(), "inputs": ["1xf32"]},
        )
        records.append({**made, "versions": {"jax": f"0.10.{night}"}})
    return document(*records, runs=[run(run_id, day=night + 1, revision=f"{night:040x}")])


@pytest.fixture
def publish(tmp_path, environment):
    """Publishes night 30 to a store with 29 nights; returns the outcome of the script."""
    store = tmp_path / "store"
    for night in range(NIGHTS - 1):
        path = store / "nights" / f"{night + 1:02}" / "host-cpu.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(results_of(night)))

    def publish_last(**planted):
        results = tmp_path / "host-cpu.json"
        results.write_text(json.dumps(results_of(NIGHTS - 1, **planted)))
        done = subprocess.run(
            [SCRIPTS / "nightly_publish.sh", store, tmp_path / "work", results],
            env={**os.environ, **environment, "CBS_VENV": sys.prefix, "NIGHT": f"{NIGHTS}"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done, store / "nights" / f"{NIGHTS}"

    return publish_last


def test_thirty_nights_of_noise_raise_nothing(publish):
    done, night = publish()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trends: 4; steps: 0, newly failing: 0, missing: 0, not" in done.stdout + done.stderr
    assert (night / "report.html").exists()
    assert not (night / "issue.md").exists()


@pytest.mark.parametrize(
    ("planted", "code", "found"),
    [
        ({"factor": 1.08}, 2, "steps: 1, newly failing: 0, missing: 0"),
        ({"status": "wrong_output"}, 2, "steps: 0, newly failing: 1, missing: 0"),
        ({"leaves_out": True}, 3, "steps: 0, newly failing: 0, missing: 1"),
    ],
    ids=["8 % slower", "a wrong output", "a missing case"],
)
def test_what_is_planted_in_the_thirtieth_is_found_and_named(publish, planted, code, found):
    done, night = publish(**planted)
    assert done.returncode == code, done.stdout + done.stderr
    assert found in done.stdout + done.stderr
    issue = (night / "issue.md").read_text()
    assert f"`{PLANTED.lower()} jax_xla:xla (jax, host-cpu)`" in issue
    assert not any(f"`{case.lower()} " in issue for case in CASES if case != PLANTED)
    # The last good night and the first bad one.
    for name in ("run `night-28`", "run `night-29`"):
        assert name in issue
    regressions = (night / "regressions.yaml").read_text()
    for text in ('jax: "0.10.28"', 'jax: "0.10.29"', f"model={PLANTED.lower()}"):
        assert text in regressions
