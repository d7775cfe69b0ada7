"""`--dry-run` and `--share-workers` of `cbs run`."""

import pytest

from comparative_benchmark.cli import command as cli

TOYS = ("--suite", "cbs_test_plugin.suite", "--backend", "test_numpy", "-w", "1", "-iter", "3")
CASE = "models/TOY_NONE/inputs/INPUT_DATA_MODEL_DEFAULT"


def test_a_dry_run_prints_the_trials_and_runs_none(cbs_run, tmp_path):
    run = cbs_run(*TOYS, "-name", "models/TOY_(NONE|BUSY)/.+", "--dry-run")
    assert run.code == 0, run.err
    assert run.out.splitlines() == [
        f"{CASE}  test_numpy:direct",
        f"{CASE.replace('NONE', 'BUSY')}  test_numpy:direct",
    ]
    assert "trials: 2, workloads: 1, competitors: 1; nothing was run" in run.err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_names_trials_that_are_refused(capsys):
    training = "models/BERT_TINY_TRAIN_ADAMW_FP32_PT_32XI32_BATCH4/.+"
    code = cli.main(
        ["run", "-t", "train", "-name", training, "--backend", "onnxruntime", "--dry-run"]
    )
    assert code == 0
    assert "unsupported: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-name", "models/NO_SUCH/.+"], "no case is named"),
        (["--backend", "test_nampy"], "did you mean test_numpy?"),
        (["--cpus", "4000"], "this process cannot use 4000"),
    ],
)
def test_a_dry_run_refuses_what_a_run_would(capsys, arguments, words):
    assert cli.main(["run", *TOYS, "-name", CASE, *arguments, "--dry-run"]) == 1
    assert words in capsys.readouterr().err


def test_one_worker_serves_all_cases_and_ends_with_the_first_failure(cbs_run):
    run = cbs_run(
        *(*TOYS, "--backend", "test_numpy:direct,test_numpy:direct+tires"),
        *("-name", "models/TOY_(NONE|BUSY|RAISES|FLOODS)/.+", "--share-workers"),
    )
    assert run.code == 1, run.err
    for compiler in ("direct", "direct+tires"):
        found = {
            record["definition"]["model"]: record
            for record in run.document["benchmarks"]
            if record["definition"]["compiler"] == compiler
        }
        assert {name: record["status"] for name, record in found.items()} == {
            "TOY_NONE": "ok",
            "TOY_BUSY": "ok",
            "TOY_RAISES": "failed",
            "TOY_FLOODS": "ok",
        }
        good = [found[name]["metrics"]["framework_level"] for name in ("TOY_NONE", "TOY_BUSY")]
        assert [metrics["race"]["shared_workers"] for metrics in good] == [True, True]
        assert all(len(metrics["latencies_ms"]) == 3 for metrics in good)
    assert run.err.count("failed in a shared worker: retrying it in a separate one") == 2
    logs = {path.name for path in run.output.with_suffix(".logs").rglob("*.log")}
    # One worker up to the failure and one after it; the failed trial has another one alone.
    shared = [name for name in logs if ".process-0" in name and "tires" not in name]
    assert len(shared) == 2, sorted(logs)
