"""Accuracy through real workers: fp32 does in two frameworks what float64 does."""

import pytest

pytestmark = [pytest.mark.frameworks, pytest.mark.nightly]


def test_programs_in_fp32_do_their_task_as_the_float64_model_does(cbs_run):
    run = cbs_run(
        *("--backend", "pt_inductor:eager,jax_xla", "-w", "0", "-iter", "1", "--threads", "1"),
        *("-name", "models/.+_TRAINED_FP32_(PT|JAX)_.+"),
    )
    assert run.code == 0, run.err
    assert "accuracy" in run.out
    results = run.document["benchmarks"]
    assert len(results) == 6
    for result in results:
        (metrics,) = result["metrics"].values()
        found = metrics["accuracy"]
        assert found["value"] == pytest.approx(found["reference"], rel=1e-4), found
        if found["metric"] == "top-1":
            assert (found["lost"], found["gained"]) == (0, 0)
            assert found["value"] > 0.75
        else:
            assert found["value"] < 60
