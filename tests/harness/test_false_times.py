"""Right outputs with false times, and truths within reach: neither gives a speed."""

import pytest

TOY = ("--suite", "cbs_test_plugin.suite", "-name", "models/TOY_NONE/.+")
FIXED = ("-w", "1", "-iter", "50")
REASONS = {
    "in-fetch": "a run on new inputs takes",
    "in-a-thread": "a run on new inputs takes",
    "kept": "a run on new inputs takes",
    "by-content": "a run on new inputs takes",
    "before": "it works between samples",
    "after": "it works between samples",
    "in-replacement": "a run on new inputs takes",
    "slow-clock": "its clock is wrong",
    "slow-clocks": "its clock is wrong",
}
# Right outputs on two inputs, and no run on others.
UNPROVEN = {
    "first-input": "the backend cannot replace a program's inputs",
    "two-inputs": "no further inputs were timed: ValueError: these inputs are not sorted",
}


def test_adversarial_times_are_all_caught(cbs_run, capsys):
    run = cbs_run(*TOY, *FIXED, "--backend", "test_numpy,test_liars")
    records = {
        r["definition"]["compiler"]: r
        for r in run.document["benchmarks"]
        if r["definition"]["backend"] == "test_liars"
    }
    assert records["honest"]["status"] == "ok", records["honest"]
    for name, reason in REASONS.items():
        record = records[name]
        assert record["status"] == "failed", (name, record.get("reason"))
        assert reason in record["reason"], name
    for name, reason in UNPROVEN.items():
        record = records[name]
        assert record["status"] == "ok", (name, record.get("reason"))
        assert reason in record["metrics"]["framework_level"]["not_ranked"], name
    with capsys.disabled():
        print(f"\nfalse times: {len(REASONS) + len(UNPROVEN)} planted, all caught")
    seen = [records[name] for name in ("reads-truth", "writes-truth")]
    for record in seen:
        if "truth_not_isolated" in record["metrics"]["framework_level"]:
            pytest.skip(record["metrics"]["framework_level"]["truth_not_isolated"])
    assert [record["status"] for record in seen] == ["wrong_output"] * 2, seen
