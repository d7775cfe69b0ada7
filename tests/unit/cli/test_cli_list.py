"""`cbs list` and `cbs backends`."""

import json
import re

import pytest

from comparative_benchmark.cli import command as cli
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.workloads import workload_of


@pytest.fixture
def cbs(capsys, monkeypatch):
    """Runs `cbs` in this process and returns what it printed."""
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)

    def run(*arguments):
        assert cli.main(arguments) == 0
        captured = capsys.readouterr()
        assert captured.err == ""
        return captured.out

    return run


@pytest.fixture(scope="module")
def cases():
    return catalog.all_benchmarks()


def names(output):
    return [line.split()[0] for line in output.splitlines()]


def test_every_case_is_one_line_with_its_workload(cbs, cases):
    rows = [line.split() for line in cbs("list").splitlines()]
    assert rows == [[case.name, workload_of(case).id] for case in cases]


def test_columns_are_aligned(cbs):
    lines = cbs("list").splitlines()
    assert len({line.rindex(" ") for line in lines}) == 1


def test_filters_hold_together(cbs):
    name = "models/(BERT|VIT)_TINY.*DEFAULT"
    arguments = ("-name", name, "--tag", "batch-4", "--framework", "jax")
    assert sorted(names(cbs("list", *arguments))) == sorted(
        f"models/{family}_{data_type}_JAX_{shape}_BATCH4/inputs/INPUT_DATA_MODEL_DEFAULT"
        for data_type, element in (("FP32", "F32"), ("FP16", "F16"), ("BF16", "BF16"))
        for family, shape in (("BERT_TINY", "32XI32"), ("VIT_TINY", f"3X32X32X{element}"))
    )


def test_a_workload_is_found_by_a_part_of_its_id(cbs):
    output = cbs("list", "--workload", "resnet-50-fp32-1x3x224")
    found = {name.split("/")[1] for name in names(output)}
    assert {f"RESNET50_FP32_{name}_3X224X224XF32_BATCH1" for name in ("JAX", "PT")} <= found
    assert all(re.fullmatch(r"RESNET50_FP32_\w+_[0-9X]+XF32_BATCH1", name) for name in found)


def test_json_holds_the_definition_of_each_case(cbs, cases):
    found = json.loads(cbs("list", "--json", "--tag", "tiny"))
    by_name = {case.name: case for case in cases}
    assert len(found) == len(catalog.select(cases, tags=["tiny"]))
    for item in found:
        case = by_name[item["benchmark_name"]]
        assert item["model_parameters"] == dict(case.model.model_parameters)
        assert item["tags"] == list(case.tags)
        assert item["framework"] == case.model.model_impl.framework_type.value
        assert item["workload"] == workload_of(case).id
        assert item["inputs"] == [str(spec) for spec in workload_of(case).inputs]


def test_a_plugged_in_suite_is_listed(cbs, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "listed_suite.py").write_text(
        "from openxla.benchmark import def_types, testdata\n"
        "I = def_types.ModelImplementation(\n"
        "    name='I', framework_type=def_types.ModelFrameworkType.JAX, module_path='listed')\n"
        "M = def_types.Model(name='LISTED', model_impl=I, model_parameters={})\n"
        "ALL_BENCHMARKS = [def_types.BenchmarkCase.build(\n"
        "    model=M, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)]\n"
    )
    output = cbs("list", "--suite", "listed_suite", "-name", ".*LISTED.*")
    assert names(output) == ["models/LISTED/inputs/INPUT_DATA_MODEL_DEFAULT"]


def test_backends_are_listed_with_compilers_options_and_state(cbs):
    output = cbs("backends")
    for text in (
        "jax_xla:xla",
        "iree:llvm-cpu",
        "pt_inductor:inductor [+max-autotune] [+freezing] [+cuda-graphs]",
    ):
        assert text in output


def test_a_backend_that_is_not_installed_explains_how_to_install_it(cbs, monkeypatch):
    from comparative_benchmark.backends import api as backend_api

    monkeypatch.setattr(backend_api, "is_installed", lambda name: name != "flax")
    output = cbs("backends")
    assert "needs flax: run " in output
    assert "(pytorch models; installed)" in output
