"""The parts of the tables in `benchmarks/` that need no framework."""

import argparse
import importlib
import json
import pkgutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from openxla.benchmark.models import architectures
from openxla.benchmark.models.architectures import Architecture

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
TOOLS = ("_keras_hub", "_keras_port", "_race", "_timing", "_weights", "_zoo")
FRAMEWORKS = {"jax", "torch", "tensorflow", "keras", "keras_hub", "flax"}


@pytest.fixture(scope="module")
def tools():
    """The modules of `benchmarks/`, which is not a package, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield SimpleNamespace(**{name.strip("_"): importlib.import_module(name) for name in TOOLS})


@pytest.fixture
def sizes(tools, monkeypatch):
    """The configurations of the benchmarks, for this test alone."""
    for name in tools.zoo.ENTRIES:
        kind = type(architectures.get(name))
        monkeypatch.setattr(kind, "configs", kind.configs)
    tools.zoo.add_sizes()
    return tools.zoo.ENTRIES


def _calls(outputs):
    return {name: lambda value=value: np.array(value) for name, value in outputs.items()}


def test_what_is_shared_imports_no_framework(run_python):
    program = f"import sys, {', '.join(TOOLS)}; print(*sys.modules)"
    done = run_python(program, PYTHONPATH=str(BENCHMARKS))
    assert done.stderr == ""
    assert "_race" in done.stdout.split()
    assert not FRAMEWORKS & set(done.stdout.split())


def test_a_program_with_another_output_is_not_timed_and_misses_the_goal(tools):
    calls = _calls({"ours": [1.0, 2.0], "same": [1.0, 2.001], "other": [1.0, 2.1]})
    raced = tools.race.race(calls, np.asarray, 3)
    assert raced.different == ["other"]
    assert set(raced.blocks_ms) == {"ours", "same"}
    assert set(raced.ratios) == {"same"}
    assert not raced.met


@pytest.mark.parametrize("wrong", [[1.0, float("nan")], [1.0], [[1.0, 2.0]]])
def test_an_output_that_can_not_be_compared_is_another_output(tools, wrong):
    raced = tools.race.race(_calls({"ours": [1.0, 2.0], "other": wrong}), np.asarray, 1)
    assert raced.different == ["other"]


def test_the_fastest_other_decides(tools):
    ratios = {name: tools.timing.Ratio(value, value, value) for name, value in RATIOS.items()}
    common = {"differences": {}, "largest": 1.0, "iterations": 1, "blocks_ms": {}, "different": []}
    raced = tools.race.Raced(ratios=ratios, **common)
    assert raced.slowdown.median == 1.06
    assert not raced.met
    del ratios["fastest"]
    assert raced.met
    assert tools.race.Raced(ratios={}, **common).slowdown is None


RATIOS = {"slow": 0.5, "fastest": 1.06, "as fast": 1.05}


def test_blocks_are_long_enough_and_not_too_long(tools, monkeypatch):
    monkeypatch.setattr(tools.race, "interleave", fake := _FakeInterleave())
    calls = _calls({"ours": [1.0], "other": [1.0]})
    for slowest_s, due in ((1e-6, 50), (0.01, 25), (10.0, 2)):
        fake.slowest_s = slowest_s
        assert tools.race.race(calls, np.asarray, 7).iterations == due
        assert fake.asked[-1] == (7, due)


class _FakeInterleave:
    """Returns made-up times; the second program is slower."""

    def __init__(self):
        self.asked = []
        self.slowest_s = 0.0

    def __call__(self, calls, *, rounds, iterations):
        self.asked.append((rounds, iterations))
        times = zip(calls, (self.slowest_s / 3, self.slowest_s), strict=True)
        return {name: [value] * rounds for name, value in times}


def test_a_line_takes_the_place_of_the_one_of_the_same_model(tools, tmp_path):
    file = tmp_path / "recorded" / "table.jsonl"
    for model, compiler, value in (
        ("a", "xla", 1),
        ("b", "xla", 2),
        ("a", "graph", 3),
        ("a", "xla", 4),
    ):
        found = {"model": model, "compiler": compiler, "value": value}
        tools.race.keep(file, found, ("model", "compiler"))
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [line["value"] for line in lines] == [2, 3, 4]
    assert list(file.parent.iterdir()) == [file]


def test_a_record_tells_what_it_was_measured_on(tools):
    raced = tools.race.race(_calls({"ours": [1.0], "other": [1.0]}), np.asarray, 3)
    found = tools.race.entry("bert", {"seq_len": 8}, "xla", raced, ["numpy"])
    assert json.loads(json.dumps(found)) == found
    assert found["conditions"]["versions"] == {"numpy": np.__version__}
    assert len(found["blocks_ms"]["other"]) == 3
    assert found["ratios"].keys() == {"other"}


def test_every_architecture_that_runs_alone_has_a_table(sizes):
    # The others are these, called several times.
    pipelines = {"gpt2_pipeline", "sd_pipeline", "t5_for_cond_gen"}
    names = [module.name for module in pkgutil.iter_modules(architectures.__path__)]
    known = {name for name in names if _is_architecture(name)}
    # An architecture that has just been added has tiny configurations only.
    grown = {name for name in known if not _is_tiny(architectures.get(name))}
    assert grown - pipelines <= set(sizes) <= known - pipelines


def _is_tiny(architecture):
    return all(name.endswith("-tiny") for name in architecture.configs)


def _is_architecture(name):
    found = importlib.import_module(f"{architectures.__name__}.{name}")
    return isinstance(getattr(found, "ARCHITECTURE", None), Architecture)


def test_sizes_are_configurations_of_their_architectures(sizes):
    for name, entry in sizes.items():
        architecture = architectures.get(name)
        for parameters in (entry.parameters, entry.quick):
            given = {"batch_size": 1, "data_type": "fp32", **parameters}
            config = architecture.config(parameters["model_name"])
            assert architecture.input_specs(given)
            assert len(list(architecture.tensors(config))) > 10


def test_sizes_are_small_enough_for_a_quarter_of_an_hour(sizes):
    for name, entry in sizes.items():
        architecture = architectures.get(name)
        config = architecture.config(entry.parameters["model_name"])
        numbers = sum(int(np.prod(init.shape)) for init in architecture.tensors(config))
        assert 4e6 < numbers < 130e6, name


def test_options_name_what_is_unknown(tools, capsys, monkeypatch):
    parser = tools.zoo.options("what", script="table")
    assert parser.parse_args(["--only", "t5,bert"]).only == ("t5", "bert")
    monkeypatch.setattr(sys, "argv", ["table", "--only", "bert,bart"])
    with pytest.raises(SystemExit):
        tools.zoo.prepared(parser)
    assert "unknown architecture 'bart'; choices are bert, resnet" in capsys.readouterr().err
    with pytest.raises(argparse.ArgumentTypeError):
        parser._option_string_actions["--only"].type("")


def test_keras_has_a_program_or_a_reason_for_each(tools):
    assert set(tools.keras_hub.ABSENT) == set(tools.zoo.ENTRIES) - set(tools.keras_hub._PROGRAMS)
    assert set(tools.keras_hub.REMARKS) <= set(tools.keras_hub._PROGRAMS)


class _Variable:
    """A variable as Keras has it: a path, a shape, and a value that can be assigned."""

    def __init__(self, path, shape):
        self.path, self.shape, self.value = path, shape, None

    def assign(self, value):
        assert value.shape == self.shape
        self.value = value


def test_variables_are_set_by_their_paths(tools):
    kernel, moving, own = (
        _Variable("block_3/query/kernel", (2, 3, 1)),
        _Variable("block_3/bn/moving_variance", (3,)),
        _Variable("normalization/mean", (1,)),
    )
    network = SimpleNamespace(name="net", weights=[kernel, moving, own])
    weights = {
        "layers.3.q.weight": np.arange(6.0).reshape(2, 3),
        "layers.3.bn.running_var": np.ones(3),
    }
    renaming = ((r"^block_(\d+)/", r"layers.\1."), (r"\.query/", ".q/"), (r"^normalization.*$", ""))
    tools.keras_port.port(network, weights, renaming)
    assert kernel.value.tolist() == [[[0], [1], [2]], [[3], [4], [5]]]
    assert moving.value.tolist() == [1, 1, 1]
    assert own.value is None
    with pytest.raises(ValueError, match=r"net did not accept extra\.weight"):
        tools.keras_port.port(network, {**weights, "extra.weight": np.ones(1)}, renaming)
    with pytest.raises(KeyError):
        tools.keras_port.port(network, {"layers.3.bn.running_var": np.ones(3)}, renaming)


@pytest.mark.parametrize(
    ("name", "dimensions", "axes"),
    [
        ("encoder.layer.0.output.dense.weight", 2, (1, 0)),
        ("embeddings.word_embeddings.weight", 2, (0, 1)),
        ("time_embedding.linear_1.weight", 2, (1, 0)),
        ("transformer.h.0.attn.c_attn.weight", 2, (0, 1)),
        ("down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q.weight", 2, (1, 0)),
        ("model.encoder.conv1.weight", 3, (2, 1, 0)),
        ("vit.embeddings.cls_token", 3, (0, 1, 2)),
        ("vit.embeddings.patch_embeddings.projection.weight", 4, (2, 3, 1, 0)),
        ("shared.weight", 2, (0, 1)),
        ("lm_head.weight", 2, (1, 0)),
        ("norm.weight", 1, (0,)),
    ],
)
def test_matrices_and_kernels_are_turned_and_tables_are_not(tools, name, dimensions, axes):
    assert tools.weights._axes(name, dimensions) == axes


def test_what_the_timers_wrap_is_there():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        wrapped = importlib.import_module("_spans")._WRAPPED
    for path, _ in wrapped:
        module, _, name = path.partition(":")
        found = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        assert callable(found), path
