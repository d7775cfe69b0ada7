"""Operators and shapes: selection by `cbs micro`, and its messages for invalid requests."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
from tests_support import documented_plugin, python_path

from comparative_benchmark.analysis.stats.analysis import Interval, Verdict
from comparative_benchmark.backends import api
from comparative_benchmark.cli.command import main
from comparative_benchmark.cli.commands import run as run_command
from comparative_benchmark.engine import runner
from comparative_benchmark.engine.session import Limits
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial, parse_competitors
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.comparison import Comparison, Fate
from comparative_benchmark.results.results_file import ResultsFile
from comparative_benchmark.studies.micro import shapes, sweeps
from comparative_benchmark.studies.micro.sweeps import (
    estimate,
    needed_bytes,
    size_bytes,
    why_too_large,
)
from comparative_benchmark.terminal.console import Console
from openxla.benchmark import devices, operators
from openxla.benchmark.comparative_suite.operator_cases import cases, named
from openxla.benchmark.def_types import DefinitionError, ModelFrameworkType
from openxla.benchmark.models import second_input
from openxla.benchmark.operators import definition
from openxla.benchmark.operators.architecture import ARCHITECTURE, FORWARD, FORWARD_BACKWARD
from openxla.benchmark.operators.definition import Argument, Layer, Operator
from openxla.benchmark.operators.models import OperatorModel
from openxla.benchmark.workloads import has_weights, trains, workload_of

ROOT = Path(__file__).parents[3]
# How many shapes torchao's benchmarks give these names.
COUNTS = {
    "llama": 4,
    "llama4": 6,
    "deepseek_v3_236b": 4,
    "deepseek_v3_671b": 4,
    "qwen3_32b": 4,
    "gemma3_27b": 4,
    "pow2": 5,
    "pow2_extended": 10,
    "small_sweep": 35,
    "sweep": 512,
}


@pytest.mark.parametrize("name", COUNTS)
def test_shapes_by_name(name):
    found = shapes.named(name)
    assert len(found) == COUNTS[name]


def test_powers_bound_the_shapes():
    assert len(shapes.named("small_sweep", lowest=10, highest=15)) == 56
    assert {s.m for s in shapes.named("small_sweep", highest=9)} == {128, 256, 512}
    assert shapes.named("pow2", lowest=3, highest=3) == [shapes.Shape(8, 8, 8)]
    extended = shapes.named("pow2_extended", lowest=0, highest=2)
    assert [shape.m for shape in extended] == [1, 2, 3, 4, 6]
    assert {type(shape.m) for shape in extended} == {int}
    assert all(s.m <= s.k <= s.n for s in shapes.named("small_sweep"))
    assert shapes.named("llama", highest=12) == []


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: shapes.named("small_swep"), "did you mean small_sweep?"),
        (lambda: shapes.named("sweep", lowest=9, highest=8), "invalid powers 9 to 8"),
        (lambda: shapes.named("pow2", highest=17), "between 0 and 16"),
        (lambda: shapes.written("64x128"), "expected three numbers"),
        (lambda: shapes.written("64x-1x2"), "expected three numbers"),
        (lambda: shapes.of(0, 1, 1), "invalid m in shape: 0"),
        (lambda: shapes.of(1, 1, True), "invalid n in shape: True"),
        (lambda: shapes.of(1, 1), "expected three numbers in a shape"),
        (lambda: shapes.of(1, "2", 1), "invalid k in shape: '2'"),
    ],
)
def test_what_is_no_shape_is_reported(ask, told):
    with pytest.raises(UsageError) as error:
        ask()
    assert told in str(error.value)


def _shape(m, k, n):
    return [shapes.Shape(m, k, n)]


def test_every_operator_is_one_workload_in_all_frameworks():
    names = list(operators.operators())
    assert len(names) >= 14
    found = cases(names, _shape(64, 128, 96), ["fp32", "bf16", "fp16"])
    assert len(found) == len(names) * 3 * 3  # also where it is not written: it is refused there
    assert len({workload_of(case).digest for case in found}) == len(names) * 3
    layers = {name for name, item in operators.operators().items() if isinstance(item, Layer)}
    assert len(layers) >= 9
    assert {c.model.model_parameters["model_name"] for c in found if has_weights(c)} == layers


def test_shapes_that_an_operator_cannot_tell_apart_are_one():
    found = cases(["softmax"], [shapes.Shape(8, 16, n) for n in (1, 2, 3)], ["fp32"])
    assert [case.model.name for case in found] == [
        f"SOFTMAX_FP32_{framework}_8X16X1" for framework in ("PT", "JAX", "TF")
    ]
    assert workload_of(found[0]).label == "softmax-fp32-8x16"


def test_a_case_is_found_again_by_the_name_of_its_model():
    for case in cases(["ln_linear_relu", "softmax"], _shape(8, 16, 4), ["bf16"]):
        assert named(case.model.name) == case
    for name in ("MATMULL_FP32_PT_1X1X1", "MATMUL_FP32_X_1X1X1", "T5_LARGE_FP32_JAX_512XI32"):
        assert named(name) is None


@pytest.mark.parametrize("name", ["MyGelu", "my-gelu", "my.gelu_2"])
def test_a_case_of_a_plugin_is_found_again_however_it_is_spelt(name, monkeypatch):
    known = {**operators.operators(), name: attrs.evolve(operators.get("gelu"), name=name)}
    for module in (operators, definition):
        monkeypatch.setattr(module, "operators", lambda: known)
    for backward in (False, True):
        for case in cases([name], _shape(8, 16, 4), ["fp32"], backward=backward):
            assert named(case.model.name) == case


DIFFERENTIABLE = sorted(n for n, item in operators.operators().items() if item.is_differentiable)


def _parameters(name, **more):
    m, k, n = operators.get(name).shape(64, 128, 96)
    return {"model_name": name, "data_type": "bf16", "m": m, "k": k, "n": n, **more}


def test_a_case_is_forward_unless_it_says_so_and_its_identity_is_as_it_was():
    (case,) = cases(["linear"], _shape(64, 128, 96), ["fp32"], [ModelFrameworkType.PYTORCH])
    assert "direction" not in case.model.model_parameters
    # That of this case in results from before there was a direction.
    digest = "e407a608c54ec1977b7bfc70750773c3b614fbc11431c9d9e071346b3484ef85"
    assert workload_of(case).digest == digest
    assert not trains(case)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_forward_and_backward_is_another_workload_with_all_gradients(name):
    found = cases([name], _shape(64, 128, 96), ["bf16"], backward=True)
    forward = cases([name], _shape(64, 128, 96), ["bf16"])
    (digest,) = {workload_of(case).digest for case in found}
    assert digest != workload_of(forward[0]).digest
    assert "-fwd-bwd-bf16-" in workload_of(found[0]).label
    assert all(trains(case) and named(case.model.name) == case for case in found)
    plain, both = _parameters(name), _parameters(name, direction=FORWARD_BACKWARD)
    given, results = ARCHITECTURE.input_specs(plain), ARCHITECTURE.output_specs(plain)
    floating = [spec for spec in results if spec.dtype == "bf16"]
    assert ARCHITECTURE.input_specs(both) == (*given, *floating)
    gradients = ARCHITECTURE.output_specs(both)[len(results) :]
    inputs = [spec for spec in given if spec.dtype == "bf16"]
    assert list(gradients[: len(inputs)]) == inputs
    shapes = [spec.shape for spec in gradients[len(inputs) :]]
    operator = operators.get(name)
    weights = operator.weights(64, 128, 96) if isinstance(operator, Layer) else []
    assert shapes == [init.shape for init in weights if "running" not in init.name]


def test_what_has_no_gradients_is_reported():
    with pytest.raises(DefinitionError, match="quantize has no gradients: its results are integ"):
        cases(["quantize"], _shape(4, 4, 4), ["fp32"], backward=True)
    assert named("QUANTIZE_FWD_BWD_FP32_PT_4X4X4") is None
    with pytest.raises(DefinitionError, match="direction must be forward or"):
        ARCHITECTURE.input_specs(_parameters("linear", direction="backward"))


def test_a_competitor_that_quantises_for_inference_does_not_train():
    found = parse_competitors(
        "pt_inductor:eager,pt_inductor:eager+int8dq,tflite:dynamic-range,"
        "pt_inductor:inductor+int8_mixed_precision_training",
        "cpu",
    )
    refused = {}
    for backward in (False, True):
        chosen = cases(["linear"], _shape(8, 8, 8), ["fp32"], backward=backward)
        for trial in runner.plan(chosen, found, devices.HOST_CPU).trials:
            if trial.refused:
                refused[backward, str(trial.competitor)] = trial.refused
    assert sorted(refused) == [(True, "pt_inductor:eager+int8dq"), (True, "tflite:dynamic-range")]
    assert "int8dq does not support training in pt_inductor" in refused[True, str(found[1])]


def test_an_unknown_operator_is_reported():
    with pytest.raises(DefinitionError, match="did you mean matmul"):
        cases(["matmull"], _shape(1, 1, 1), ["fp32"])


@pytest.mark.parametrize("data_type", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    ("name", "direction"),
    [
        *((name, FORWARD) for name in sorted(operators.operators())),
        *((name, FORWARD_BACKWARD) for name in ("reduce", "topk", "linear")),
    ],
)
def test_inputs_are_as_declared_and_the_second_ones_differ(name, direction, data_type):
    operator = operators.get(name)
    m, k, n = operator.shape(64, 128, 96)
    parameters = _parameters(name, data_type=data_type, direction=direction)
    raw = ARCHITECTURE.default_inputs(parameters)
    inputs = ARCHITECTURE.preprocess(raw, parameters, None)
    specs = ARCHITECTURE.input_specs(parameters)
    assert [value.shape for value in inputs] == [spec.shape for spec in specs]
    again = ARCHITECTURE.preprocess(ARCHITECTURE.default_inputs(parameters), parameters, None)
    assert all(map(np.array_equal, inputs, again))
    model = type("Model", (OperatorModel,), {"forward": None})()
    model.set_operator(parameters)
    second = second_input.second_inputs(model, inputs)
    assert all(not np.array_equal(a, b) for a, b in zip(inputs, second, strict=True))
    for argument, first, other in zip(operator.arguments(m, k, n), inputs, second):
        assert other.shape == first.shape
        if argument.values == "indices":
            assert min(first.min(), other.min()) >= 0
            assert max(first.max(), other.max()) < argument.below
        if argument.values == "distinct":
            assert all(len(set(row.tolist())) == row.size for row in (*first, *other))


def test_a_row_with_too_few_different_numbers_is_refused():
    parameters = {"model_name": "topk", "data_type": "fp16", "m": 1, "k": 2**15, "n": 1}
    with pytest.raises(DefinitionError, match="has only 16384 values"):
        ARCHITECTURE.default_inputs(parameters)


def _trials(found):
    (competitor,) = parse_competitors("jax_xla", "cpu")
    return [
        Trial(case=case, workload=workload_of(case), competitor=competitor, device=devices.HOST_CPU)
        for case in found
    ]


def test_a_sweep_is_estimated_before_it_starts():
    small = _trials(cases(["matmul"], _shape(64, 64, 64), ["fp32"]))
    large = _trials(cases(["matmul"], _shape(8192, 8192, 8192), ["fp32"]))
    settings = RunSettings(device=devices.HOST_CPU, threads=2)
    assert size_bytes(large[0]) == 3 * 4 * 8192**2
    assert estimate(large, settings).seconds > 20 * estimate(small, settings).seconds
    assert "trials: 3, about " in str(estimate(large, settings))
    both = _trials(cases(["matmul"], _shape(8192, 8192, 8192), ["fp32"], backward=True))
    assert 2.9 < estimate(both, settings).seconds / estimate(large, settings).seconds < 3.1
    assert size_bytes(both[0]) == 6 * 4 * 8192**2


def test_what_does_not_fit_is_refused_before_anything_is_allocated():
    (small, large), settings = (
        (
            _trials(cases(["linear"], shapes.named("pow2", highest=power)[-1:], ["bf16"]))[0]
            for power in (6, 16)
        ),
        RunSettings(device=devices.HOST_CPU, threads=2, limits=Limits(memory_bytes=2**33)),
    )
    # Input, matrix and output, each in bf16 twice and in float64.
    assert needed_bytes(large) == 3 * 2**32 * 12
    assert why_too_large(small, settings) is None
    assert (
        "needs about 144.0 GiB of memory, including its float64 truth, but the limit is 8.0 GiB"
        in why_too_large(large, settings)
    )
    refused = [attrs.evolve(large, refused="too large"), small]
    assert "trials: 1, " in str(estimate(refused, settings))


def test_the_list_names_operators_shapes_and_recipes(capsys):
    assert main(["micro", "list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["operators"]) == set(operators.operators())
    assert set(found["shapes"]) == {"custom", *COUNTS}
    assert "int8wo" in found["recipes"]


@pytest.fixture
def selected(monkeypatch, tmp_path, capsys):
    """Runs `cbs micro run` up to where cases are known."""

    def select(*arguments):
        found = []
        monkeypatch.setattr(
            run_command, "run", lambda options, *rest: found.append((options, *rest)) or 0
        )
        output = ("-o", str(tmp_path / "results.json"))
        code = main(["micro", "run", "--backend", "jax_xla", *output, *arguments])
        return code, found[0] if found else None, capsys.readouterr().err

    return select


def test_a_sweep_shares_workers_unless_told_otherwise(selected):
    code, (options, selection, _), _ = selected(
        "--op", "matmul,softmax", "--shapes", "64x32x16,pow2", "--max-power", "4"
    )
    assert code == 0
    assert isinstance(options, argparse.Namespace)
    assert options.device == "host-cpu"
    assert selection.share_workers
    names = {case.model.name for case in selection.cases}
    assert len(names) == 3 * 2 * 4
    assert {"MATMUL_FP32_JAX_64X32X16", "SOFTMAX_FP32_TF_4X4X1"} <= names
    _, (_, selection, _), _ = selected("--op", "all", "--shapes", "4x4x4", "--own-workers")
    assert not selection.share_workers
    assert len(selection.cases) == 3 * len(operators.operators())
    _, (_, selection, _), _ = selected("--op", "all", "--shapes", "64x64x64", "--backward")
    assert len(selection.cases) == 3 * len(DIFFERENTIABLE)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--op", "matmull"), "did you mean matmul?"),
        (("--op", "quantize", "--backward"), "quantize has no gradients"),
        (("--op", "linear", "--backward", "--from-model", "x"), "supports only the forward"),
        (("--config", "x.yml", "--backward"), "`benchmark_mode: training`"),
        (("--config", "x.yml", "--from-model", "x"), "--config and --from-model cannot be"),
        (("--config", "x.yml", "--env", "old=venv"), "--config and --env cannot be"),
        (("--from-model", "BERT("), "--from-model 'BERT(' is not a regular expression"),
        (
            ("--dtype", "bf16"),
            "specify what to run: --op NAMES, --from-model REGEX or --config FILE",
        ),
        (("--op", "matmul", "--shapes", "lama"), "did you mean llama?"),
        (("--op", "matmul", "--shapes", "0x1x1"), "invalid m in shape: 0"),
        (("--op", "matmul", "--dtype", "fp64"), "--dtype 'fp64' is not one of fp32, bf16, fp16"),
        (("--op", "matmul", "--min-power", "9", "--max-power", "8"), "invalid powers 9 to 8"),
        (("--op", "matmul", "--shapes", "llama", "--max-power", "3"), "no shape is between"),
    ],
)
def test_what_cannot_be_is_reported_in_a_sentence(selected, arguments, told):
    code, found, said = selected(*arguments)
    assert (code, found) == (1, None)
    assert told in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-o", "/dev/null/r.json"), "-o /dev/null/r.json cannot be written: "),
        (("-o", "."), "-o . cannot be written: it is a directory"),
        (("-o", "r.json", "--plot", "/dev/null/p.svg"), "--plot /dev/null/p.svg cannot be written"),
        (("-o", "r.json", "--plot", "p.txt"), "file name must end in one of .svg"),
        (("-o", "r.json", "--budget", "0"), "expected a positive number of seconds, got '0'"),
        (("-o", "r.json", "--backend", "jax_xla:xla+int8w"), "did you mean int8wo?"),
        (("-o", "r.json", "--backend", "jax_xl"), "no backend 'jax_xl'"),
    ],
)
def test_what_cannot_be_is_reported_before_anything_is_made(
    arguments, told, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    command = ["micro", "run", "--op", "linear", "--shapes", "8x8x8", "--backend", "jax_xla"]
    try:
        code = main([*command, *arguments])
    except SystemExit as ended:
        code = ended.code
    assert code == 1
    assert told in capsys.readouterr().err
    # The first command of a process also keeps a list of plug-ins in the artifact root.
    assert [path.name for path in tmp_path.iterdir() if path.name != "artifact-root"] == []


def test_a_recipe_whose_library_is_missing_is_one_line_and_no_worker(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(api, "is_installed", lambda name: name != "torchao")
    competitors = parse_competitors("pt_inductor:eager+int8wo", "cpu")
    found = cases(["linear"], [shapes.Shape(8, 8, 8), shapes.Shape(8, 8, 16)], ["fp32"])
    plan = runner.plan(found, competitors, devices.HOST_CPU)
    assert len(plan.trials) == 2
    results = runner.execute(
        plan.trials,
        RunSettings(device=devices.HOST_CPU, threads=1, log_dir=tmp_path / "logs"),
        ResultsFile(tmp_path / "r.json"),
        Console(),
        command=["cbs"],
    )
    assert [result.status.value for result in results] == ["unsupported"] * 2
    Console().results([Case(result=result) for result in results])
    assert capsys.readouterr().out == (
        "not installed: torchao for pt_inductor recipes (pip install -e '.[recipes]')\n"
    )
    assert not (tmp_path / "logs").exists()


def test_an_operator_is_added_as_the_document_says(tmp_path):
    """A package with the file of the guide, and the line that registers it."""
    group = "openxla.benchmark.operators"
    documented_plugin(
        tmp_path,
        ROOT / "docs/guides/extend/add-an-operator.md",
        "hardswish",
        group,
        "hardswish:OPERATOR",
    )
    listed = subprocess.run(
        [sys.executable, "-m", "comparative_benchmark", "micro", "list", "--json"],
        env={**os.environ, "PYTHONPATH": python_path(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(listed.stdout)["operators"]["hardswish"] == "of each number in [m, k]"


def _half(**functions):
    shape = {name: lambda m, k, n: [Argument(shape=(m, k))] for name in ("arguments", "results")}
    return Operator(name="half", description="x / 2", uses=("m", "k"), **shape, **functions)


def test_an_operator_is_unsupported_where_it_is_not_written(monkeypatch):
    half = _half(torch=lambda x: x / 2)
    assert half.frameworks == ("torch",)
    registered = {**operators.operators(), "half": half}
    monkeypatch.setattr(operators.definition, "operators", lambda: registered)
    found = cases(["half", "gelu"], _shape(8, 16, 4), ["fp32"])
    competitors = parse_competitors("pt_inductor:eager,jax_xla,tf_xla:graph", "cpu")
    refused = {
        trial.case.model.name: trial.refused
        for trial in runner.plan(found, competitors, devices.HOST_CPU).trials
    }
    assert refused == {
        "HALF_FP32_PT_8X16X1": None,
        "HALF_FP32_JAX_8X16X1": "operator half has no jax function, only torch",
        "HALF_FP32_TF_8X16X1": "operator half has no tensorflow function, only torch",
        **{f"GELU_FP32_{framework}_8X16X1": None for framework in ("PT", "JAX", "TF")},
    }
    with pytest.raises(NotImplementedError, match="no function for this framework"):
        half.jax(1)


def test_an_operator_is_written_in_one_framework_at_least():
    with pytest.raises(DefinitionError, match="'half' has no function; define torch or jax or"):
        _half()


def _compared(label, verdict, estimate, competitor="iree:llvm-cpu"):
    ratio = Interval(
        estimate=estimate, low=estimate - 0.1, high=estimate + 0.1, level=0.98, processes=3
    )
    return Comparison(
        workload=label,
        label=label,
        competitor=competitor,
        framework="jax",
        device="host-cpu",
        fate=Fate.COMPARED,
        verdict=verdict,
        reason="",
        ratio=ratio,
    )


def test_a_sweep_says_who_loses_where(monkeypatch):
    found = [
        _compared("a", Verdict.SLOWER, 4.0),
        _compared("b", Verdict.SLOWER, 1.5),
        _compared("c", Verdict.UNCLEAR, 9.0),
        _compared("d", Verdict.FASTER, 0.5),
        _compared("a", Verdict.UNCLEAR, 1.0, "jax_xla:xla"),
    ]
    monkeypatch.setattr(sweeps, "compare_to_baseline", lambda *_: found)
    iree, xla = sweeps.by_competitor([], "pt_inductor:eager")
    assert iree == (
        "iree:llvm-cpu (jax) against pt_inductor:eager: faster on 1 and slower on 2 of 4 shapes; "
        "worst 4.00 x (3.90-4.10) at a; best 0.50 x (0.40-0.60) at d"
    )
    assert xla == (
        "jax_xla:xla (jax) against pt_inductor:eager: faster on 0 and slower on 0 of 1 shapes"
    )
    assert list(sweeps.by_competitor([], None)) == []
