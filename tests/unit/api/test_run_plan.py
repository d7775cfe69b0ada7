"""Before a run: its plan, and a first look instead of a race."""

import pytest

from comparative_benchmark.analysis.stats.planning import FixedCounts
from comparative_benchmark.api.measuring import _outlook, plan_run, sampling
from comparative_benchmark.cli.command import parse
from comparative_benchmark.cli.options.run import request_from
from comparative_benchmark.errors import UsageError

CASE = "BERT_TINY_FP32_PT_32XI32_BATCH1"


def planned(tmp_path, *words):
    options = parse(["run", "-name", CASE, "-o", str(tmp_path / "r.json"), *words])
    return plan_run(request_from(options), lambda _: None)


def outlook(tmp_path, *words):
    found = planned(tmp_path, *words)
    return _outlook(found.trials, found.settings)


def test_a_long_race_prints_what_it_takes(tmp_path):
    backends = "pt_inductor:eager,pt_inductor:inductor,onnxruntime,openvino"
    line = outlook(tmp_path, "--backend", backends, "--processes", "10")
    assert line.startswith("workloads: 1, competitors: 4, processes: 40 or more; takes ")
    assert "takes 5 min with models of 1 ms, 13 min with models of 100 ms (" in line
    many = outlook(tmp_path, "--backend", backends, "--processes", "500")
    assert "processes: 2000 or more; takes 4.4 h" in many


@pytest.mark.parametrize(
    "words",
    [["--processes", "3"], ["-w", "1", "-iter", "5"], ["--processes", "50", "--budget", "60"]],
)
def test_a_short_run_prints_nothing(tmp_path, words):
    assert outlook(tmp_path, "--backend", "eager,inductor", *words) == ""


def test_a_quick_run_has_fixed_counts():
    options = parse(["run", "-name", CASE, "--quick"])
    assert sampling(request_from(options)) == FixedCounts(warmup_iterations=3, iterations=20)


@pytest.mark.parametrize(
    "words", [["-iter", "5"], ["-w", "1"], ["--processes", "3"], ["--compile-only"]]
)
def test_a_quick_run_excludes_other_counts(words):
    with pytest.raises(UsageError, match="--quick cannot be combined with"):
        sampling(request_from(parse(["run", "-name", CASE, "--quick", *words])))


def test_the_default_baseline_supports_a_selected_case(tmp_path):
    words = ["run", "-name", CASE.replace("_PT_", "_JAX_"), "-o", str(tmp_path / "r.json")]
    request = request_from(parse([*words, "--backend", "eager,jax_xla,iree"]))
    found = plan_run(request, lambda _: None)
    assert found.baseline == str(found.trials[0].competitor) == "jax_xla:xla"
    assert planned(tmp_path, "--backend", "onnxruntime,eager").baseline == "pt_inductor:eager"
