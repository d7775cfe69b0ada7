"""The YAML of torchao's guide: its meaning, and messages for invalid entries."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import attrs
import pytest
from formats_support import validate
from msgspec import UNSET

from comparative_benchmark.analysis.machine import nvml
from comparative_benchmark.cli.command import main
from comparative_benchmark.engine import runner
from comparative_benchmark.engine.trial import parse_competitors
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.record import Contention, Process, ProfileRecord, Status
from comparative_benchmark.studies.micro import guide
from comparative_benchmark.studies.micro.config import read
from openxla.benchmark.operators import guide_functions

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "benchmarks/dashboard/microbenchmark_quantization_config.yml"
# Of the later framework, as its own runner wrote them.
GUIDE_COLUMNS = (
    "name,quantization,sparsity,m,k,n,high_precision_dtype,torch_compile_mode,device,model_type,"
    "output_dir,enable_profiler,enable_memory_profiler,baseline_model_eager_inference_time_in_ms,"
    "quantized_model_eager_inference_time_in_ms,baseline_model_compiled_inference_time_in_ms,"
    "quantized_model_compiled_inference_time_in_ms,eager speedup on baseline,compile speedup on "
    "baseline,eager vs compile speedup,profiler_json_path,memory_profile_path,"
    "memory_visualization_path,memory_stats"
)
LATER = """
benchmark_mode: inference
quantization_config_recipe_names: [baseline, int8wo, int8dq]
sparsity_config_recipe_names: [semi-sparse, block-64]
model_params:
  - name: small
    matrix_shapes:
      - name: custom
        shapes: [[64, 128, 64], [32, 64, 32]]
    high_precision_dtype: torch.bfloat16
    torch_compile_mode: default
    device: cpu
    model_type: ln_linear
"""
TINY_BERT = "models/BERT_TINY_BF16_PT_32XI32_BATCH4/.+_DEFAULT"


@pytest.fixture
def config(tmp_path):
    def write(text):
        (tmp_path / "c.yml").write_text(textwrap.dedent(text))
        return tmp_path / "c.yml"

    return write


def test_the_guides_own_file_is_read_as_it_stands():
    found = read(GUIDE)
    (model,) = found.models
    assert len(model.shapes) == 56
    assert found.first_generation
    assert found.quantizations[0] == "baseline"
    assert model.compiler == "inductor+max-autotune"
    assert (model.device, model.data_type, model.model_type) == ("host-cpu", "bf16", "linear")
    assert len(guide.rows(found, model)) == 6 * 56
    competitors = guide.competitors(found, model)
    assert len(competitors) == 2 * 6
    assert len(parse_competitors(",".join(competitors), "cpu")) == 12
    # Bounded: the sweep keeps its width below the bound.
    assert {shape.m for _, shape in read(GUIDE, highest=8).models[0].shapes} == {64, 128, 256}


def test_a_later_file_pairs_sparsities_with_what_torchao_pairs_them_with(config):
    found = read(config(LATER))
    (model,) = found.models
    assert not found.first_generation
    assert model.model_type == "ln_linear_relu"
    rows = guide.rows(found, model)
    assert len(rows) == 3 * 3 * 2
    by_name = {row.dtype: row for row in rows}
    assert by_name["baseline-block-64"].recipe == "block-64"
    assert by_name["baseline"].recipe is None
    assert "runs only on NVIDIA GPUs" in by_name["int8dq-semi-sparse"].refused
    assert "cannot combine int8wo with block-64" in by_name["int8wo-block-64"].refused


def _replaced(old, new):
    assert old in LATER
    return LATER.replace(old, new)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            _replaced("benchmark_mode", "benchmark_mod"),
            ":2:1: unknown key 'benchmark_mod'; did you",
        ),
        (
            f"benchmark_mode: training\nmodel_params: {{model_type: {TINY_BERT}}}",
            ":1:17: whole models support only the mode 'inference'",
        ),
        (_replaced("int8wo,", "int8w,"), ":3:46: unknown recipe 'int8w'; did you mean int8wo?"),
        (_replaced("device: cpu", "device: gpu"), ":12:13: unknown value 'gpu'; "),
        (
            _replaced("ln_linear", "linar"),
            ":13:17: unknown model type 'linar'; did you mean linear?",
        ),
        (_replaced("bfloat16", "bfloat17"), "unknown value 'torch.bfloat17'; did you mean"),
        (_replaced("[64, 128, 64]", "[64, 128]"), "expected three numbers in a shape"),
        (_replaced("[64, 128, 64]", "[0, 128, 64]"), "invalid m in shape: 0"),
        (_replaced("[64, 128, 64]", "[a, 128, 64]"), ":9:19: expected a whole number, got 'a'"),
        (_replaced("[64, 128, 64]", "!!python/name:os.system x"), "is not supported"),
        (_replaced("name: custom", "name: custm"), "did you mean custom?"),
        (_replaced("shapes: [[64, 128, 64], [32, 64, 32]]", "min_power: 3"), "'shapes' is missing"),
        (_replaced("name: small", "name: small\n    name: x"), "duplicate key 'name'"),
        ("a: &x [1]\nb: [*x, *x]\n", ":1:4: anchors and aliases are not supported"),
        (
            "model_params: {matrix_shapes: {name: sweep, min_power: 9, max_power: 8}}",
            "powers 9 to 8",
        ),
        ("model_params: [", "invalid YAML"),
        ("[" * 10_000, ":1:21: more than 20 nested levels"),
        ("#" * (2**20 + 1), "is larger than 1048576 bytes"),
        ("model_params: []", ":1:15: 'model_params' must list at least one model"),
        ("? [a]\n: b", ":1:3: keys must be strings"),
        ("a: b\n---\nc: d", "found another document"),
        (_replaced("[64, 128, 64]", "[1.5, 128, 64]"), "expected a whole number, got '1.5'"),
        (_replaced("int8wo,", "intx-4,"), "expected intx-<bits>-<group>"),
        ("", "is empty"),
        ("- 1", "must be a mapping; allowed keys are"),
        ("benchmark_mode: inference", "'model_params' is missing"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(config, text, told):
    with pytest.raises(UsageError) as error:
        read(config(text))
    assert told in str(error.value)
    assert "c.yml" in str(error.value)


def test_a_file_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere\.yml"):
        read(tmp_path / "nowhere.yml")
    with pytest.raises(UsageError, match="/dev/zero is not a regular file"):
        read(Path("/dev/zero"))


def test_a_table_that_cannot_be_written_is_reported_before_anything_is_measured(tmp_path, capsys):
    (tmp_path / "r.csv").mkdir()
    (tmp_path / "c.yml").write_text(LATER)
    output = str(tmp_path / "r.json")
    assert main(["micro", "run", "--config", str(tmp_path / "c.yml"), "-o", output]) == 1
    assert "r.csv cannot be written: it is a directory" in capsys.readouterr().err


def _result(model, compiler, status=Status.OK, median=1.0, recipe=None, *, disturbed=False):
    """The fields of one trial in a results file that the guide's table reads."""
    notes = {"recipe": {"bytes_after": 2_000_000}} if recipe else {}
    verification = attrs.make_class("V", ["sqnr_db"])(41.5 if recipe else None)
    made_of = ["median_latency_ms", "verification", "program", "processes", "device_memory_peak_mb"]
    made_of.append("contention")
    reasons = ("other processes used 0.4 of a CPU",) if disturbed else ()
    contention = Contention(contended=disturbed, reasons=reasons)
    processes = [
        Process(host_memory_base_mb=300.0, host_memory_peak_mb=300.0 + own) for own in (9, 7, 5)
    ]
    measured = attrs.make_class("M", made_of)(
        median, verification, attrs.make_class("P", ["notes"])(notes), processes, None, contention
    )
    fields = ["model", "backend", "compiler", "environment", "device"]
    definition = attrs.make_class("D", fields)(model, "pt_inductor", compiler, None, "host-cpu")
    profile = ProfileRecord(directory="profiles/x") if recipe else UNSET
    made = attrs.make_class("R", ["status", "reason", "measured", "definition", "profile", "word"])
    return made(status, "no kernel", measured, definition, profile, status.value)


def test_a_row_has_a_number_or_a_reason(config, monkeypatch):
    monkeypatch.setattr(
        guide.Case,
        "competitor",
        property(lambda case: f"pt_inductor:{case.result.definition.compiler}"),
    )
    found = read(config(LATER))
    (model,) = found.models
    name = "LN_LINEAR_RELU_BF16_PT_64X128X64"
    results = [
        _result(name, "eager", median=4.0),
        _result(name, "eager+int8wo", median=2.0, recipe="int8wo"),
        _result(name, "inductor", median=1.0),
        _result(name, "inductor+int8wo", median=2.0, recipe="int8wo", disturbed=True),
        _result(name, "eager+int8dq", Status.FAILED),
    ]
    table = guide.Table(found, guide.rows(found, model), results)
    lines = [line for line in table.lines() if line["m"] == 64]
    by_name = {(line["quantization"], line["sparsity"]): line for line in lines}
    good = by_name["int8wo", None]
    assert (good["eager speedup on baseline"], good["compile speedup on baseline"]) == (2.0, 0.5)
    assert "profiler_json_path" not in good  # not requested
    assert (good["status"], good["sqnr_db"], good["weights_mb"]) == ("ok", 41.5, 2.0)
    assert good["memory_stats"] == 7.0  # on top of what was there before
    assert by_name["int8dq", None]["status"] == "failed"
    assert by_name["int8dq", None]["reason"] == "no kernel"
    assert by_name["int8wo", "semi-sparse"]["status"] == "unsupported"
    assert by_name["int8wo", "semi-sparse"]["compile speedup on baseline"] is None
    # Of the baseline against itself there is one measurement, and so no ratio to be had of noise.
    assert by_name["baseline", None]["compile speedup on baseline"] == 1.0

    rows = list(csv.DictReader(io.StringIO(guide.csv_text(found, lines))))
    assert tuple(rows[0]) == guide.COLUMNS
    assert ",".join(guide.COLUMNS) == f"{GUIDE_COLUMNS},status,reason,sqnr_db,weights_mb,disturbed"
    told = {(row["quantization"], row["sparsity"]): row["disturbed"] for row in rows}
    assert told["int8wo", ""] == "other processes used 0.4 of a CPU"
    assert told["baseline", ""] == ""
    older = attrs.evolve(found, first_generation=True)
    (first, *_) = csv.DictReader(io.StringIO(guide.csv_text(older, lines)))
    assert first["use_torch_compile"] == "True"
    records = json.loads(guide.json_text(lines, arch="a CPU"))
    (record, *others) = [r for r in records if r["benchmark"]["dtype"] == "int8wo"]
    assert record == {
        "benchmark": {
            "name": "micro-benchmark api",
            "mode": "inference",
            "dtype": "int8wo",
            "extra_info": {
                "device": "cpu",
                "arch": "a CPU",
                "status": "ok",
                "disturbed": "other processes used 0.4 of a CPU",
            },
        },
        "model": {
            "name": "64-128-64",
            "type": "micro-benchmark custom layer",
            "origins": ["torchao"],
        },
        "metric": {"name": "speedup(wrt bf16)", "benchmark_values": [0.5], "target_value": 0.0},
        "runners": [],
        "dependencies": {},
    }
    assert [r["metric"]["name"] for r in others] == [
        "Fwd Speedup (x)",
        "Bfloat16 Fwd Time (ms)",
        "Quantized Fwd Time (ms)",
        "Allocated Memory (MB)",
    ]
    for record in records:
        # The guide's own, with one key that must not be in the database: it would prevent
        # the uploader from setting it.
        assert record.pop("runners") == []
        validate(record, "oss-benchmark-v3.schema.json")


@pytest.mark.parametrize("competitor", ["inductor+int8wo+max-autotune", None])
def test_a_row_finds_its_result_however_its_options_are_ordered(config, monkeypatch, competitor):
    """Competitors are named with their options in order, which `max-autotune` comes late in."""
    monkeypatch.setattr(
        guide.Case,
        "competitor",
        property(lambda case: f"pt_inductor:{case.result.definition.compiler}"),
    )
    mode = "torch_compile_mode: max-autotune"
    found = read(config(LATER.replace("torch_compile_mode: default", mode)))
    (model,) = found.models
    assert model.compiler == "inductor+max-autotune"
    name = "LN_LINEAR_RELU_BF16_PT_64X128X64"
    results = [
        _result(name, "eager", median=4.0),
        _result(name, "eager+int8wo", median=2.0, recipe="int8wo"),
        _result(name, "inductor+max-autotune", median=1.0),
    ]
    if competitor:
        results.append(_result(name, competitor, median=2.0, recipe="int8wo"))
    table = guide.Table(found, guide.rows(found, model), results)
    line = next(
        line for line in table.lines() if (line["m"], line["quantization"]) == (64, "int8wo")
    )
    # Without its compiled half a row is not whole.
    due = ("ok", 0.5) if competitor else ("left_out", None)
    assert (line["status"], line["speedup"]) == due


def test_tables_name_the_device_that_was_used(config, monkeypatch):
    """The option `-device` overrides the file's device."""
    monkeypatch.setattr(guide.Case, "competitor", "pt_inductor:eager")
    found = read(config(LATER))
    rows = guide.rows(found, attrs.evolve(found.models[0], device="host-gpu"))
    for results, device in (([_result("M", "eager")], "cpu"), ([], "cuda")):
        lines = guide.Table(found, rows, results).lines()
        assert {line["device"] for line in lines} == {device}


@pytest.mark.slow
def test_the_guides_own_tests_pass():
    done = subprocess.run(
        [sys.executable, "-m", "unittest", "discover", "benchmarks/microbenchmarks/test"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"Ran [6-9] tests", done.stderr)


def test_the_older_command_puts_its_tables_where_the_file_says(
    utils, config, monkeypatch, tmp_path
):
    from benchmarks.microbenchmarks import benchmark_runner

    called = []
    monkeypatch.setattr(benchmark_runner, "main", lambda command: called.append(command) or 0)
    monkeypatch.setattr(sys, "argv", ["benchmark_runner.py"])
    path = config(LATER + f"output_dir: {tmp_path}/out\n")
    assert benchmark_runner.run(["--config", str(path), "--max-power", "6"]) == 0
    ((*_, given, option, output, more, power),) = called
    assert (given, option, more, power) == (str(path), "-o", "--max-power", "6")
    assert re.fullmatch(rf"{tmp_path}/out/inference/results_\d{{8}}_\d{{6}}\.json", output)
    assert sys.argv == ["cbs", *called[0]]


def test_training_is_forward_and_backward(config, monkeypatch):
    monkeypatch.setattr(
        guide.Case,
        "competitor",
        property(lambda case: f"pt_inductor:{case.result.definition.compiler}"),
    )
    found = read(config(_replaced("mode: inference", "mode: training")))
    (model,) = found.models
    (first, _) = guide.cases_of(model)
    name = "LN_LINEAR_RELU_FWD_BWD_BF16_PT_64X128X64"
    assert first.model.name == name
    results = [
        _result(name, "inductor", median=1.0),
        _result(name, "inductor+int8wo", Status.UNSUPPORTED),
        _result("LN_LINEAR_RELU_BF16_PT_64X128X64", "eager", median=4.0),
    ]
    lines = list(guide.Table(found, guide.rows(found, model), results).lines())
    by_name = {(line["quantization"], line["m"]): line for line in lines if not line["sparsity"]}
    assert by_name["baseline", 64]["baseline_model_compiled_inference_time_in_ms"] == 1.0
    assert by_name["baseline", 64]["baseline_model_eager_inference_time_in_ms"] is None
    assert by_name["int8wo", 64]["status"] == "unsupported"
    records = json.loads(guide.json_text(lines, arch="a CPU"))
    assert {record["benchmark"]["mode"] for record in records} == {"training"}
    assert "Fwd+Bwd Speedup (x)" in {record["metric"]["name"] for record in records}


WHOLE = """
quantization_config_recipe_names: [int8wo]
model_params:
  name: tiny_bert
  model_type: models/BERT_TINY_BF16_PT_32XI32_BATCH4/.+_DEFAULT
  device: cpu
"""


def test_a_whole_model_is_named_as_a_case(config):
    found = read(config(WHOLE))
    (model,) = found.models
    assert (model.data_type, model.shapes) == ("bf16", (("", None),))
    (case,) = guide.cases_of(model)
    assert case.model.name == "BERT_TINY_BF16_PT_32XI32_BATCH4"
    rows = guide.rows(found, model)
    assert [row.recipe for row in rows] == [None, "int8wo"]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (("BATCH4", "BATCH5"), ":5:15: no case is named"),
        (("BATCH4/.+_DEFAULT", "BATCH[14]/.+"), ":5:15: 'models/BERT_TINY_BF16_PT_32XI32_BATCH"),
        (("BATCH4", "BATCH("), ":5:15: missing )"),
        (("device: cpu", "matrix_shapes: []"), ":6:18: a whole model defines its own shapes"),
        (
            ("device: cpu", "high_precision_dtype: float"),
            ":6:25: expected the model's data type (bf16), got ",
        ),
    ],
)
def test_what_a_whole_model_cannot_be_is_reported(config, changed, told):
    with pytest.raises(UsageError) as error:
        read(config(WHOLE.replace(*changed)))
    assert told in str(error.value)


def test_short_names_are_those_that_torchao_takes_them_for(config):
    found = read(config(_replaced("block-64", "block").replace("int8dq", "float8dq")))
    assert found.sparsities == (None, "semi-sparse", "block-64")
    assert found.quantizations == ("baseline", "int8wo", "float8dq-tensor")


@pytest.fixture
def utils(monkeypatch):
    monkeypatch.syspath_prepend(ROOT)
    from benchmarks.microbenchmarks import utils

    return utils


def test_names_become_configurations_as_the_guide_calls_it(utils):
    assert utils.string_to_config("baseline", None) is None
    assert utils.string_to_config(None, None) is None
    with pytest.raises(LookupError, match="did you mean int8wo"):
        utils.string_to_config("int8w", None)
    with pytest.raises(LookupError, match="cannot be combined"):
        utils.string_to_config("int8wo", "semi-sparse")


def test_a_model_type_without_weights_takes_no_recipe(utils):
    with pytest.raises(TypeError, match="matmul has no weights"):
        utils.create_model_and_input_data("matmul", 1, 1, 1)
    with pytest.raises(UsageError, match=r"did you mean torch\.bfloat16"):
        utils.create_model_and_input_data("linear", 1, 1, 1, "torch.bfloat17")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (_replaced("int8wo,", "my_new_quantization,"), "string_to_config() in "),
        (_replaced("[semi-sparse", "[my_new_sparsity"), "or run cbs new-recipe"),
        (_replaced("ln_linear", "my_custom_model"), "branch in create_model_and_input_data()"),
        (_replaced("ln_linear", "my_custom_model"), "torchao/testing/model_architectures.py"),
        (_replaced("ln_linear", "my_custom_model"), "or run cbs new-operator"),
    ],
)
def test_what_the_guide_would_add_is_reported_with_the_file_to_write(
    config, text, hint, monkeypatch
):
    # An unknown name of a function starts no process.
    monkeypatch.setattr(guide_functions.bounded, "call", None)
    with pytest.raises(UsageError) as error:
        read(config(text))
    assert hint in str(error.value)
    assert guide_functions.FILE in str(error.value)


EDITED = """
{imports}

def string_to_config(quantization, sparsity, **kwargs):
    if quantization == "stops":
        raise RuntimeError("no such kernel")
    elif quantization == "mine" or sparsity == "sparse":
        return object()
    elif quantization in elsewhere:
        return object()

def create_model_and_input_data(model_type, m, k, n, high_precision_dtype=None, device="cuda"):
    raise ValueError(f"unknown {{model_type}}")
"""


@pytest.mark.parametrize(
    ("name", "imports", "reason"),
    [
        ("mine", "elsewhere = ()", None),
        ("sparse", "elsewhere = ()", None),
        ("mine-4", "elsewhere = ()", ""),
        ("moved", "from my_recipes import elsewhere", None),
        ("stops", "elsewhere = ()", "string_to_config() raised RuntimeError: no such kernel"),
        ("stops", "nothing = ", "SyntaxError"),
        ("other", "elsewhere = ()", ""),
        ("a b", "from my_recipes import elsewhere", ""),
    ],
)
def test_a_recipe_of_the_guides_function_is_found_in_a_child(
    tmp_path, monkeypatch, name, imports, reason
):
    (tmp_path / "my_recipes.py").write_text("elsewhere = ['moved']\n")
    monkeypatch.syspath_prepend(tmp_path)
    _edit(tmp_path, monkeypatch, EDITED.format(imports=imports))
    found = guide_functions.why_no_recipe(name)
    assert (found is None) is (reason is None), found
    assert (reason or "") in (found.clause if found else "")
    assert not found or bool(found.error) is bool(reason)


def _edit(checkout, monkeypatch, text):
    """Makes a file the one that users edit, here and in child processes."""
    path = checkout / guide_functions.FILE
    path.parent.mkdir(parents=True)
    path.write_text(text)
    # A child finds it through a module that Python imports at its start.
    (checkout / "sitecustomize.py").write_text(
        "import pathlib\nfrom openxla.benchmark import root\n"
        f"root.checkout = lambda: pathlib.Path({str(checkout)!r})\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(checkout), *sys.path]))
    monkeypatch.setattr(guide_functions.installation, "checkout", lambda: checkout)


def test_an_absent_gpu_is_reported_before_anything_is_announced(
    config, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(nvml, "why_no_gpu", lambda: "no driver")
    monkeypatch.setattr(runner, "Preparation", _NothingToPrepare)
    path = config(_replaced("device: cpu", "device: cuda"))
    output = tmp_path / "r.json"
    assert main(["micro", "run", "--config", str(path), "-o", str(output)]) == 0
    told = capsys.readouterr().err
    assert "the largest uses" not in told
    assert "GiB" not in told
    rows = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert {row["status"] for row in rows} == {"unsupported"}
    of_machine = [row["reason"] for row in rows if "torchao does not" not in row["reason"]]
    assert any("host-gpu: no driver; check `nvidia-smi`" in reason for reason in of_machine)


class _NothingToPrepare(runner.Preparation):
    def run(self, trials, *more):
        assert not trials
