"""The command of torchao's guide gives rows with numbers or with reasons."""

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from agreement_support import need
from tests_support import python_path

import comparative_benchmark as cb
from comparative_benchmark.studies.micro import sweeps

pytestmark = pytest.mark.frameworks

ROOT = Path(__file__).parents[2]
CONFIG = """
quantization_config_recipe_names: [int8wo]
model_params:
  - name: small
    matrix_shapes:
      - {name: custom, shapes: [[16, 64, 32]]}
    high_precision_dtype: torch.bfloat16
    use_torch_compile: false
    device: cpu
    model_type: linear
    enable_profiler: true
    enable_memory_profiler: true
  - name: tiny_bert
    model_type: models/BERT_TINY_BF16_PT_32XI32_BATCH1/.+_DEFAULT
    use_torch_compile: false
    device: cpu
"""
# Recipes that this machine refuses.
REFUSED = CONFIG.replace("[int8wo]", "[int8wo, float8dq-row]")
REFUSED += "sparsity_config_recipe_names: [semi-sparse]\n"


def _run(*command, directory, environment):
    """Runs a Python command, which must succeed; returns its output."""
    done = subprocess.run(
        [sys.executable, *command],
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def run(request, tmp_path_factory, recipes_environment):
    need("torch")
    directory = tmp_path_factory.mktemp("guide")
    selected = {getattr(item, "function", None) for item in request.session.items}
    with_refused = {
        test_every_row_has_a_number_or_a_reason,
        test_profiles_are_taken_where_the_file_asks_for_them,
    }
    (directory / "c.yml").write_text(REFUSED if selected & with_refused else CONFIG)
    _run(
        ROOT / "benchmarks/dashboard/ci_microbenchmark_runner.py",
        *("--config", "c.yml", "--output", "benchmark_results.json", "-w", "1", "-iter", "5"),
        directory=directory,
        environment=recipes_environment,
    )
    return directory


@pytest.mark.nightly
def test_every_row_has_a_number_or_a_reason(run):
    rows = list(csv.DictReader(io.StringIO((run / "benchmark_results.results.csv").read_text())))
    found, whole = (
        {(row["quantization"], row["sparsity"]): row for row in rows if bool(row["m"]) is layer}
        for layer in (True, False)
    )
    assert len(found) == len(whole) == 6
    assert float(whole["int8wo", ""]["speedup"]) > 0
    assert float(whole["int8wo", ""]["sqnr_db"]) > 30
    for row in (found["int8wo", ""], whole["int8wo", ""]):
        assert 0 < float(row["weights_mb"]) < float(row["memory_stats"])
    baseline = found["baseline", ""]
    assert baseline["status"] == "ok"
    assert float(baseline["baseline_inference_time_in_ms"]) > 0
    assert baseline["speedup"] == "1.0"
    assert found["int8wo", ""]["status"] == "ok"
    assert "compute capability" in found["float8dq-row", ""]["reason"]
    for names, row in found.items():
        assert row["status"] == "ok" or row["reason"], names
        assert bool(row["speedup"]) == (row["status"] == "ok"), names


TRAINING = """
benchmark_mode: training
quantization_config_recipe_names: [int8wo, int8_weight_only_quantized_training]
model_params:
  - name: small
    matrix_shapes:
      - {name: custom, shapes: [[16, 64, 32]]}
    high_precision_dtype: torch.bfloat16
    device: cpu
    model_type: linear
"""


@pytest.mark.nightly
def test_training_has_a_number_where_a_recipe_allows_it(tmp_path, recipes_environment):
    (tmp_path / "c.yml").write_text(TRAINING)
    _run(
        *("-m", "comparative_benchmark", "micro", "run", "--config", "c.yml", "-w", "1"),
        *("-iter", "3", "-o", "results.json"),
        directory=tmp_path,
        environment=recipes_environment,
    )
    rows = csv.DictReader(io.StringIO((tmp_path / "results.csv").read_text()))
    found = {row["quantization"]: row for row in rows}
    compiled = "quantized_model_compiled_inference_time_in_ms"
    for name in ("baseline", "int8_weight_only_quantized_training"):
        assert found[name]["status"] == "ok", found[name]["reason"]
        assert float(found[name][compiled]) > 0
    assert "int8wo does not support training" in found["int8wo"]["reason"]
    results = json.loads((tmp_path / "results.json").read_text())["benchmarks"]
    graphs = [
        result["metrics"]["framework_level"]["program"]["notes"].get("graphs")
        for result in results
        if result["status"] == "ok"
    ]
    # The module alone is one graph of Dynamo's, whose backward Inductor compiles as well.
    assert sorted(graphs, key=str) == [1, 1, None, None]


def test_profiles_are_taken_where_the_file_asks_for_them(run):
    rows = list(csv.DictReader(io.StringIO((run / "benchmark_results.results.csv").read_text())))
    rows = [row for row in rows if row["m"]]
    (quantised,) = [r for r in rows if (r["quantization"], r["sparsity"]) == ("int8wo", "")]
    trace = json.loads(Path(quantised["profiler_json_path"]).read_text())
    assert sum(event["name"] == "iteration" for event in trace["traceEvents"]) > 1
    assert "sorted by self_cpu_memory" in Path(quantised["memory_profile_path"]).read_text()
    (refused,) = [r for r in rows if (r["quantization"], r["sparsity"]) == ("float8dq-row", "")]
    assert refused["profiler_json_path"] == refused["memory_profile_path"] == ""


def test_records_are_those_of_the_guide(run):
    records = json.loads((run / "benchmark_results.json").read_text())
    assert {record["model"]["name"] for record in records} == {"16-64-32", "tiny_bert"}
    names = {r["metric"]["name"] for r in records if r["benchmark"]["dtype"] == "baseline"}
    assert names >= {"speedup(wrt bf16)", "Fwd Speedup (x)", "Bfloat16 Fwd Time (ms)"}


@pytest.mark.nightly
def test_a_models_products_explain_a_share_of_its_time(tmp_path, environment):
    need("torch")
    said = _run(
        *("-m", "comparative_benchmark", "micro", "run"),
        *("--from-model", "models/BERT_TINY_FP32_PT_32XI32_BATCH4/.+_DEFAULT"),
        *("--backend", "pt_inductor:eager", "-w", "2", "-iter", "10", "-o", "r.json"),
        directory=tmp_path,
        environment=environment,
    )
    # Queries, keys, values and output, and two of the MLP, in two layers.
    told = re.search(
        r"eager \(pytorch\): (\d+) matrix products take .* on their own, (\d+)% of", said
    )
    assert told, said
    assert int(told[1]) == 12
    assert int(told[2]) > 0


@pytest.mark.nightly
def test_a_sweep_is_drawn_by_shape_and_its_recipes_by_signal(tmp_path, recipes_environment):
    need("onnxruntime")
    said = _run(
        *("-m", "comparative_benchmark", "micro", "run", "--op", "linear"),
        *("--shapes", "pow2", "--min-power", "5", "--max-power", "6", "--plot", "p.svg"),
        *("--backend", "onnxruntime:default,onnxruntime:default+int8dq-tensor,jax_xla:xla"),
        *("-w", "1", "-iter", "5", "-o", "r.json"),
        directory=tmp_path,
        environment=recipes_environment,
    )
    assert "plot: p.svg" in said
    results = [case.result for case in cb.load(tmp_path / "r.json")]
    [shapes], [bits] = sweeps.panels(results, "onnxruntime:default")
    recipe = shapes.series["onnxruntime:default+int8dq-tensor (pytorch)"]
    assert [point.at for point in recipe] == [32**3, 64**3]
    assert len(shapes.series["jax_xla:xla (jax)"]) == 2
    assert {trade.stack for trade in bits.trades} == {"onnxruntime:default (pytorch)"}
    assert all(trade.sqnr_db > 25 for trade in bits.trades)
    drawn = (tmp_path / "p.svg").read_text()
    for title in ("linear, fp32", "linear, fp32, means over 2 shapes"):
        assert f"<!-- {title} -->" in drawn
    assert "<!-- signal-to-noise ratio, dB -->" in drawn


RECIPES = """
    elif quantization == "my_new_quantization":
        from torchao.quantization import Int8WeightOnlyConfig

        return Int8WeightOnlyConfig(**kwargs)
    elif sparsity == "my_new_sparsity":
        return lambda module: [p.mul_(p.abs() > p.abs().median()) for p in module.parameters()]
    elif quantization == "my_idle_quantization":
        return lambda module: None
"""
MODEL = """
    elif model_type == "my_custom_model":
        model = MyCustomModel(k, n, high_precision_dtype).to(device)
        input_data = torch.randn(m, k, device=device, dtype=high_precision_dtype)
"""
CLASS = """
class MyCustomModel(torch.nn.Module):
    def __init__(self, input_dim, output_dim, dtype=torch.bfloat16):
        super().__init__()
        self.layer1 = torch.nn.Linear(input_dim, 512, bias=False).to(dtype)
        self.activation = torch.nn.ReLU()
        self.layer2 = torch.nn.Linear(512, output_dim, bias=False).to(dtype)

    def forward(self, x):
        return self.layer2(self.activation(self.layer1(x)))
"""
EDITED_CONFIG = """
quantization_config_recipe_names: [my_new_quantization, my_idle_quantization]
sparsity_config_recipe_names: [my_new_sparsity]
model_params:
  name: mine
  matrix_shapes: {name: custom, shapes: [[16, 64, 32]]}
  high_precision_dtype: torch.bfloat16
  use_torch_compile: false
  device: cpu
  model_type: my_custom_model
"""


def test_branches_that_the_guide_adds_take_effect(tmp_path, recipes_environment):
    need("torch")
    for folder in ("common_benchmark_suite", "benchmarks/microbenchmarks"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy2(ROOT / "pyproject.toml", tmp_path)
    file = tmp_path / "benchmarks" / "microbenchmarks" / "utils.py"
    text = file.read_text()
    for comment, branch in (
        ("    # Your recipes:", RECIPES),
        ("    # Your models:", MODEL),
        ("\ndef string_to_config", CLASS),
    ):
        assert text.count(comment) == 1
        text = text.replace(comment, f"{branch.strip(chr(10))}\n{comment}")
    file.write_text(text)
    (tmp_path / "c.yml").write_text(EDITED_CONFIG)
    path = python_path(
        tmp_path / "common_benchmark_suite", ROOT, given=recipes_environment["PYTHONPATH"]
    )
    done = subprocess.run(
        [
            *(sys.executable, "-m", "comparative_benchmark", "micro", "run"),
            *("--config", "c.yml", "-w", "1", "-iter", "2", "-o", "r.json"),
        ],
        env={**recipes_environment, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr  # one recipe does nothing
    rows = csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text()))
    found = {(row["quantization"], row["sparsity"]): row for row in rows}
    assert found["baseline", ""]["status"] == "ok"
    quantised, sparse = found["my_new_quantization", ""], found["baseline", "my_new_sparsity"]
    assert (quantised["status"], sparse["status"]) == ("ok", "ok"), done.stdout
    assert float(quantised["sqnr_db"]) > 30 > float(sparse["sqnr_db"]) > 5
    idle = found["my_idle_quantization", ""]
    assert "my_idle_quantization changed 0 of 2 linear layers" in idle["reason"]
    again = "--op my_custom_model --shapes 16x64x32 --dtype bf16 -device host-cpu"
    assert f"cbs micro run --backend pt_inductor:eager+my_idle_quantization {again}" in (
        done.stdout + done.stderr
    )
    models = {case.result.definition.model for case in cb.load(tmp_path / "r.json")}
    assert models == {"MY_CUSTOM_MODEL_BF16_PT_16X64X32"}
