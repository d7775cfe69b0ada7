"""The contents of a matrix of `cbs parity`."""

import attrs
import pytest

from comparative_benchmark.backends import api as backend_api
from comparative_benchmark.engine.trial import installed_competitors, parse_competitors
from comparative_benchmark.studies.parity import grid
from openxla.benchmark import devices, testdata
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.def_types import BenchmarkCase, Model, ModelFrameworkType
from openxla.benchmark.workloads import workload_of

PT, JAX = ModelFrameworkType.PYTORCH, ModelFrameworkType.JAX
BERT = "models/BERT_TINY_FP32_PT_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"
EXAMPLE = "models/EXAMPLE_FP32_PT_BATCH1/.+"


@pytest.fixture(scope="module")
def every():
    return catalog.all_benchmarks()


@pytest.fixture
def make_cells(every, monkeypatch):
    """Makes the cells of the cases of a name, with everything installed."""
    monkeypatch.setattr(backend_api, "is_installed", lambda name: "missing" not in name)

    def make(name, competitors, frameworks=(PT, JAX)):
        rows = grid.rows(catalog.select(every, name=name), every)
        columns = grid.columns(frameworks, parse_competitors(competitors, "cpu"))
        return grid.cells(rows, columns, devices.HOST_CPU)

    return make


def by_column(cells):
    return {str(cell.column): cell for cell in cells}


def test_a_row_brings_the_case_of_every_framework(every):
    [row] = grid.rows(catalog.select(every, name=BERT), every)
    assert {PT, JAX} <= set(row.cases)
    assert len({workload_of(case).digest for case in row.cases.values()}) == 1
    assert row.label == row.workload.label


def test_rows_come_in_the_order_of_the_cases_and_once_each(every):
    selected = catalog.select(every, name="models/BERT_TINY_FP32_(PT|JAX)_.+_DEFAULT")
    labels = [row.label for row in grid.rows(selected, every)]
    assert len(labels) == len(set(labels)) == 2


def test_two_names_of_one_program_are_one_row(every):
    """The OpenXLA suite's VIT_CLASSIFICATION leaves out the data type that VIT_BASE names."""
    name = "models/(VIT_CLASSIFICATION_JAX_3X224X224XF32|VIT_BASE_FP32_JAX_.+_BATCH1)/.+"
    selected = catalog.select(every, name=name)
    assert len(selected) == 2
    assert len(grid.rows(selected, every)) == 1


def test_two_implementations_in_one_framework_have_a_row_each(every):
    case = catalog.select(every, name=BERT)[0]
    implementation = attrs.evolve(case.model.model_impl, name="OTHER", module_path="my.bert")
    model = Model(
        name="MY_BERT",
        model_impl=implementation,
        model_parameters=dict(case.model.model_parameters),
    )
    mine = BenchmarkCase.build(model=model, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)
    first, second = grid.rows([case, mine], [*every, mine])
    assert second.label == f"{first.label} MY_BERT"
    assert second.cases == {PT: mine}
    assert second.others[JAX] == first.cases[JAX]
    assert PT not in second.others
    [cell] = grid.cells(
        [second], grid.columns([JAX], parse_competitors("jax_xla", "cpu")), devices.HOST_CPU
    )
    assert cell.trial is None
    assert "row above" in cell.unsupported


def test_workloads_of_one_label_are_told_apart(every):
    case = catalog.select(every, name=BERT)[0]
    seeded = attrs.evolve(
        case,
        name="models/SEEDED/inputs/X",
        model=attrs.evolve(
            case.model, name="SEEDED", model_parameters={**case.model.model_parameters, "seed": 7}
        ),
    )
    assert workload_of(case).label == workload_of(seeded).label
    rows = grid.rows([case, seeded], [case, seeded])
    assert len({row.label for row in rows}) == 2


def test_no_combination_is_left_out(make_cells):
    cells = make_cells(f"({BERT}|{EXAMPLE})", "pt_inductor,jax_xla,iree")
    competitors = {str(cell.column.competitor) for cell in cells}
    assert len({cell.key for cell in cells}) == len(cells) == 2 * 2 * len(competitors)
    assert all((cell.trial is None) is (cell.unsupported is not None) for cell in cells)


def test_what_can_not_be_says_why_and_what_to_do(make_cells):
    cells = by_column(make_cells(EXAMPLE, "pt_inductor:eager,jax_xla,test_absent"))
    assert cells["pytorch pt_inductor:eager"].trial is not None
    assert "accepts only jax models" in cells["pytorch jax_xla:xla"].unsupported
    assert "add-a-model.md" in cells["jax jax_xla:xla"].unsupported
    assert "pip install a-module" in cells["pytorch test_absent:direct"].unsupported


def test_backends_that_are_not_installed_are_told_and_left_out(monkeypatch):
    monkeypatch.setattr(backend_api, "is_installed", lambda name: name in ("jax", "flax"))
    competitors, absent = installed_competitors("cpu")
    assert [str(item) for item in competitors if item.backend.name == "jax_xla"] == ["jax_xla:xla"]
    assert {item.backend.name for item in competitors} & set(absent) == set()
    assert "torch" in absent["pt_inductor"].modules


def test_all_stands_for_every_installed_backend():
    every, _ = installed_competitors("cpu")
    assert parse_competitors("all", "cpu") == every
    more = parse_competitors("all,jax_xla,pt_inductor:eager", "cpu")
    assert {str(item) for item in more} == {str(item) for item in every} | {"pt_inductor:eager"}
    assert len(more) == len(set(map(str, more)))


def test_another_setting_of_a_compiler_is_left_out_where_asked():
    every, _ = installed_competitors("cpu")
    main, _ = installed_competitors("cpu", variants=False)
    left_out = {str(item) for item in every} - {str(item) for item in main}
    assert left_out == {"iree:llvm-cpu-data-tiling", "tf_xla:graph"}
    assert {item.backend.name for item in main} == {item.backend.name for item in every}
