"""`cbs artifacts generate`: what it selects, writes, prints and returns."""

import json

import pytest

from comparative_benchmark.backends.api import get_backend
from comparative_benchmark.cli.commands import artifacts
from comparative_benchmark.cli.options import maintenance as options
from comparative_benchmark.cli.options.parsing import Parser
from comparative_benchmark.errors import UsageError
from comparative_benchmark.maintenance.artifacts import selection
from openxla.benchmark.artifacts import manifests
from openxla.benchmark.artifacts.publish import publish
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.comparative_suite import families as suite_exports
from openxla.benchmark.def_types import DefinitionError, ModelFrameworkType

pytestmark = pytest.mark.slow

TOY = ("--suite", "cbs_test_plugin.suite")
PLAIN = ("--types", "inputs,outputs,truth,workload,checkpoint")


def run(*arguments):
    parser = Parser()
    options.add_generate_arguments(parser)
    return artifacts.generate(parser.parse_args(arguments))


@pytest.fixture(autouse=True)
def _numpy_for_truth(monkeypatch):
    """Toy models claim to be PyTorch's; their truth needs numpy alone."""
    monkeypatch.setattr(selection, "_reference_of", lambda _: get_backend("test_numpy"))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)


def test_a_model_is_generated_and_could_be_published(tmp_path, capsys):
    out = tmp_path / "out"
    assert run("-name", "TOY_NONE", "-o", str(out), *TOY, *PLAIN) == 0
    printed = capsys.readouterr()
    assert f"{out / 'TOY_NONE'}  " in printed.out
    assert "models: 1, artifacts: 5 (5 ok)" in printed.out
    assert "[5/5] ok" in printed.err
    report = publish(out / "TOY_NONE", str(tmp_path / "store"))
    assert report.model == "TOY_NONE"
    assert report.strays == ()


def test_the_date_can_be_given(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    run("-name", "TOY_NONE", "-o", str(tmp_path / "out"), *TOY, "--types", "inputs")
    (file,) = manifests.read_manifest(tmp_path / "out" / "TOY_NONE").files
    assert file.date == "1970-01-02T00:00:00+00:00"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UsageError, match="SOURCE_DATE_EPOCH='yesterday'"):
        run("-name", "TOY_NONE", "-o", str(tmp_path / "two"), *TOY, "--types", "inputs")


def test_what_is_there_is_not_touched(tmp_path, capsys):
    out = tmp_path / "out"
    assert run("-name", "TOY_NONE", "-o", str(out), *TOY, "--types", "inputs") == 0
    before = (out / "TOY_NONE" / "manifest.json").stat()
    with pytest.raises(UsageError, match="TOY_NONE already exists"):
        run("-name", "TOY_NONE", "-o", str(out), *TOY, "--types", "inputs")
    assert run("-name", "TOY_NONE", "-o", str(out), *TOY, "--resume") == 0
    assert (out / "TOY_NONE" / "manifest.json").stat() == before
    assert "models: 0, artifacts: 0" in capsys.readouterr().out


def test_nothing_meant_is_3_and_names_the_nearest(tmp_path, capsys):
    assert run("-name", "BERT_TINI_FP32_PT.+", "-o", str(tmp_path)) == 3
    printed = capsys.readouterr().err
    assert "no model name matches 'BERT_TINI_FP32_PT.+'" in printed
    assert "BERT_TINY_FP32_PT" in printed


def test_nothing_in_a_framework_does_not_deny_the_name(tmp_path, capsys):
    arguments = ("-name", "BERT_TINY_FP32_PT.+", "--framework", "jax", "-o", str(tmp_path))
    assert run(*arguments) == 3
    assert "no selected model has an implementation in jax" in capsys.readouterr().err


def test_a_model_without_truth_is_1_and_has_no_directory(tmp_path, capsys):
    out = tmp_path / "out"
    assert run("-name", "TOY_NO_MODULE", "-o", str(out), *TOY, "--types", "inputs") == 1
    assert list(out.iterdir()) == []
    assert "TOY_NO_MODULE: preparation failed in import: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-name", "("), "is not a regular expression"),
        (("-name", "TOY_NONE", "--types", "onxx"), "unknown artifact type 'onxx'"),
    ],
)
def test_typos_are_reported(tmp_path, arguments, message):
    with pytest.raises(UsageError, match=message):
        run(*arguments, "-o", str(tmp_path / "out"), *TOY)


@pytest.mark.parametrize("option", [("--jobs", "0"), ("--jobs", "many"), ("--timeout", "-1")])
def test_numbers_have_bounds(tmp_path, option, capsys):
    with pytest.raises(SystemExit):
        run("-name", "TOY_NONE", "-o", str(tmp_path), *option)
    assert option[1] in capsys.readouterr().err


def test_a_framework_has_the_folders_name_and_that_of_results():
    assert selection.framework("pt") is selection.framework("pytorch")
    assert selection.framework("tf") is ModelFrameworkType.TF_V2
    with pytest.raises(DefinitionError, match="choices are pytorch, jax, tensorflow_v2, tflite"):
        selection.framework("theano")


def test_models_are_selected_by_their_names_or_those_of_their_cases():
    every = catalog.all_benchmarks()

    def names(**arguments):
        return [case.model.name for case in selection.cases(every, **arguments)]

    expected = [f"EXAMPLE_FP32_PT_BATCH{size}" for size in (1, 16, 32)]
    assert names(name="EXAMPLE_FP32_PT_BATCH.+", of=None) == expected
    assert names(name="models/EXAMPLE_FP32_PT_BATCH.+", of=None) == expected
    assert names(name="EXAMPLE_FP32_PT_BATCH.+", of=ModelFrameworkType.JAX) == []
    everything = names(name=None, of=None)
    assert len(set(everything)) == len(everything)


@pytest.mark.parametrize(
    ("endings", "failed", "code"),
    [
        (["ok", "unsupported"], False, 0),
        ([], False, 0),
        (["ok", "failed"], False, 1),
        (["ok"], True, 1),
        (["failed", "wrong_output"], True, 2),
    ],
)
def test_exit_codes(endings, failed, code):
    assert artifacts.exit_code(endings, failed=failed) == code


def test_what_was_proved_is_written_where_definitions_read_it(tmp_path, monkeypatch):
    path = tmp_path / "exported_types.json"
    monkeypatch.setattr(suite_exports, "PROVED_FILE", path)
    arguments = ("-name", "TOY_NONE", *TOY, "--types", "inputs", "--record-types")
    assert run(*arguments, "-o", str(tmp_path / "out")) == 0
    assert json.loads(path.read_text())["models"]["TOY_NONE"]["types"] == []


def test_the_recorded_file_is_what_the_definitions_say():
    models = {case.model.name: case.model for case in catalog.all_benchmarks()}
    recorded = suite_exports.recorded_exports(suite_exports.PROVED_FILE)
    assert recorded
    for name, entry in recorded.items():
        model = models[name]
        key = suite_exports.key_of_exports(model.model_impl, model.model_parameters)
        assert key == (entry["module_path"], entry["data_type"], entry["generates"])
        if "tiny" in model.tags:
            assert {kind.value for kind in model.exported_model_types} <= set(entry["types"])
