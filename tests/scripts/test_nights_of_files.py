"""Thirty nights of files through `nightly_publish.sh`: what is planted in the last is found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
CASES = ("BERT", "GPT2", "RESNET", "VIT")
NIGHTS = 30
PLANTED = "GPT2"


def document(night, *, factor=1.0, status="ok", leaves_out=False):
    """Results of a night; the arguments are what is planted in one case."""
    random = np.random.default_rng(night)
    records = []
    for scale, case in enumerate(CASES, 1):
        if case != PLANTED:
            records.append(record(night, case, scale, random))
        elif not leaves_out:
            records.append(record(night, case, scale * factor, random, status))
    return {
        "schema_version": 1,
        "runs": [
            {
                "run_id": f"night-{night}",
                "trigger": {
                    "timestamp": f"2026-10-{night + 1:02}T02:00:00+00:00",
                    "command": ["cbs", "run"],
                },
                "execution_environment": {
                    "git_revision": f"{night:040x}",
                    "host": {"cpu_model": "A CPU", "threads": 2, "python": "3.11.7"},
                },
            }
        ],
        "benchmarks": records,
    }


def record(night, case, latency_ms, random, status="ok"):
    nightly_factor = 1 + 0.005 * random.standard_normal()
    processes = [
        {
            "blocks": [
                {
                    "round": number,
                    "latencies_ms": (
                        latency_ms * nightly_factor * (1 + 0.003 * random.standard_normal(4))
                    ).tolist(),
                    "contended": False,
                }
                for number in range(5)
            ]
        }
        for _ in range(3)
    ]
    found = {
        "processes": processes,
        "latencies_ms": [v for p in processes for b in p["blocks"] for v in b["latencies_ms"]],
        "program": {"artifact_sha256": f"{night:064x}"},
        "final_verification": {"passed": True, "relative_rmse": 1e-6},
    }
    if status != "ok":
        found = {"final_verification": {"passed": False, "relative_rmse": 0.3}}
    return {
        "run_id": f"night-{night}",
        "definition": {
            "benchmark_name": f"models/{case}_FP32_JAX/inputs/DEFAULT",
            "framework": "ModelFrameworkType.JAX",
            "data_type": "fp32",
            "batch_size": 1,
            "backend": "jax_xla",
            "compiler": "xla",
            "device": "host-cpu",
            "options": [],
            "tags": [],
            "workload": {"digest": case.lower() * 8, "label": case.lower(), "inputs": ["1xf32"]},
        },
        "status": status,
        "metrics": {"framework_level": found},
        "versions": {"jax": f"0.10.{night}"},
        **({} if status == "ok" else {"phase": "verify", "reason": "relative error 0.3"}),
    }


@pytest.fixture
def publish(tmp_path, environment):
    """Publishes night 30 to a store that holds 29 nights; returns what the script did."""
    store = tmp_path / "store"
    for night in range(NIGHTS - 1):
        path = store / "nights" / f"{night + 1:02}" / "host-cpu.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(document(night)))

    def run(**planted):
        results = tmp_path / "host-cpu.json"
        results.write_text(json.dumps(document(NIGHTS - 1, **planted)))
        done = subprocess.run(
            [SCRIPTS / "nightly_publish.sh", store, tmp_path / "work", results],
            env={**os.environ, **environment, "CBS_VENV": sys.prefix, "NIGHT": f"{NIGHTS}"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done, store / "nights" / f"{NIGHTS}"

    return run


def test_thirty_nights_of_noise_raise_nothing(publish):
    done, night = publish()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 trends: 0 steps, 0 turned bad, 0 missing, 0 withheld" in done.stdout + done.stderr
    assert (night / "report.html").exists()
    assert not (night / "issue.md").exists()


@pytest.mark.parametrize(
    ("planted", "code", "found"),
    [
        ({"factor": 1.08}, 2, "1 steps, 0 turned bad, 0 missing"),
        ({"status": "wrong_output"}, 2, "0 steps, 1 turned bad, 0 missing"),
        ({"leaves_out": True}, 3, "0 steps, 0 turned bad, 1 missing"),
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
