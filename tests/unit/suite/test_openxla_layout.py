"""A folder in the layout of the OpenXLA suite, with definitions written as there."""

import os
import subprocess
import sys

import pytest

from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.comparative_suite import pt as ours
from openxla.benchmark.def_types import DefinitionError, ModelFrameworkType
from openxla.benchmark.models import in_tree
from openxla.benchmark.models.in_tree import IN_TREE, Tree
from openxla.benchmark.workloads import workload_of

MODELS = """
import string
from openxla.benchmark import def_types
from openxla.benchmark.comparative_suite import utils

IMPL = def_types.ModelImplementation(
    name="NET_{label}", tags=["mlp"], framework_type=def_types.ModelFrameworkType.{framework},
    module_path=f"{{utils.MODELS_MODULE_PATH}}.{module}")
TEMPLATE = utils.ModelTemplate(
    name=utils.BATCH_NAME("NET_FP32_{label}_16XF32"), tags=["fp32", utils.BATCH_TAG],
    model_impl=IMPL,
    model_parameters={{"batch_size": utils.BATCH_SIZE_PARAM, "data_type": "fp32"}},
    artifacts_dir_url=string.Template("https://example.org/models/${{name}}"),
    exported_model_types=[def_types.ModelArtifactType.STABLEHLO_MLIR])
NETS = utils.build_batch_models(template=TEMPLATE, batch_sizes=[1, 8])
GENERATES = utils.build_gen_models(
    template=utils.ModelTemplate(
        name=utils.GEN_NAME("GEN_{label}"), tags=[utils.GEN_TAG], model_impl=IMPL,
        model_parameters={{"max_new_tokens": "${{gen_size}}", "data_type": "fp32"}}),
    gen_sizes=[16])
"""
BENCHMARKS = """
import itertools
from openxla.benchmark.comparative_suite import utils
from openxla.benchmark.comparative_suite.{folder} import model_definitions
NET_CASES = utils.build_batch_benchmark_cases(
    batch_models=model_definitions.NETS, verify_parameters={{"absolute_tolerance": 0.5}},
    batch_sizes=[1, 8])
GEN_CASES = utils.build_gen_benchmark_cases(
    model_dict=model_definitions.GENERATES, verify_parameters={{}}, gen_sizes=[16])
ALL_BENCHMARKS = list(itertools.chain(NET_CASES.values(), GEN_CASES.values()))
"""
OWN = """
from openxla.benchmark.models import model_interfaces, utils
from openxla.benchmark.models.pt.own import sizes

class Net(model_interfaces.InferenceModel):
    def __init__(self, batch_size):
        self.batch_size = batch_size
    def generate_default_inputs(self):
        return self.batch_size * sizes.WIDTH
    def preprocess(self, raw_input):
        return utils.canonicalize_to_tuple(raw_input)
    def forward(self, *inputs):
        return inputs

def create_model(batch_size=1, data_type="fp32", **_unused_params):
    return Net(batch_size)
"""


@pytest.fixture
def checkout(tmp_path):
    """Returns `comparative_suite` of a checkout with two frameworks and its own model."""
    root = tmp_path / "openxla" / "benchmark"
    for folder, framework, module in (
        ("pt", "PYTORCH", "pt.own.net_model"),
        ("tflite", "TFLITE", "tflite.tflite_model"),
    ):
        place = root / "comparative_suite" / folder
        place.mkdir(parents=True)
        fields = {"label": folder.upper(), "framework": framework, "module": module}
        (place / "model_definitions.py").write_text(MODELS.format(**fields))
        (place / "benchmark_definitions.py").write_text(BENCHMARKS.format(folder=folder))
    own = root / "models" / "pt" / "own"
    own.mkdir(parents=True)
    (own / "net_model.py").write_text(OWN)
    (own / "sizes.py").write_text("WIDTH = 16\n")
    return root / "comparative_suite"


@pytest.fixture
def packages():
    """Puts back what a model of another checkout adds to our packages."""
    before = dict(sys.modules)
    places = {name: list(m.__path__) for name, m in before.items() if name in _TOUCHED}
    yield
    for name in set(sys.modules) - set(before):
        if name.startswith("openxla.benchmark.models.pt.own"):
            del sys.modules[name]
    for name, place in places.items():
        sys.modules[name].__path__ = place


_TOUCHED = ("openxla.benchmark.models", "openxla.benchmark.models.pt")


def test_its_cases_are_listed_as_they_are_written(checkout):
    cases = {case.name: case for case in catalog.all_benchmarks([str(checkout)])}
    assert sorted(cases) == sorted(
        f"models/{name}_{label}{rest}/inputs/INPUT_DATA_MODEL_DEFAULT"
        for label in ("PT", "TFLITE")
        for name, rest in (
            ("NET_FP32", "_16XF32_BATCH1"),
            ("NET_FP32", "_16XF32_BATCH8"),
            ("GEN", "_GEN16"),
        )
    )
    batch_8 = cases["models/NET_FP32_PT_16XF32_BATCH8/inputs/INPUT_DATA_MODEL_DEFAULT"]
    assert batch_8.model.artifacts_dir_url.endswith("/NET_FP32_PT_16XF32_BATCH8")
    assert batch_8.model.model_impl.framework_type is ModelFrameworkType.PYTORCH
    assert {"mlp", "fp32", "batch-8"} <= set(batch_8.tags)
    generates = cases["models/GEN_TFLITE_GEN16/inputs/INPUT_DATA_MODEL_DEFAULT"]
    assert generates.model.model_parameters["max_new_tokens"] == 16


def test_our_own_definitions_are_back_afterwards(checkout):
    before = [case.name for case in catalog.all_benchmarks()]
    catalog.all_benchmarks([str(checkout)])
    assert sys.modules["openxla.benchmark.comparative_suite.pt"] is ours
    assert [case.name for case in catalog.all_benchmarks()] == before


def test_a_model_next_to_the_definitions_is_that_one_and_the_others_are_ours(checkout):
    by_framework = {
        case.model.model_impl.framework_type: case
        for case in catalog.all_benchmarks([str(checkout)])
    }
    own = by_framework[ModelFrameworkType.PYTORCH].model
    assert own.model_impl.module_path == IN_TREE
    assert own.model_parameters["tree_module"] == "pt.own.net_model"
    tflite = by_framework[ModelFrameworkType.TFLITE].model.model_impl
    assert tflite.module_path == "openxla.benchmark.models.tflite.tflite_model"


def test_a_case_that_is_listed_twice_is_one(checkout):
    file = checkout / "pt" / "benchmark_definitions.py"
    file.write_text(file.read_text() + "ALL_BENCHMARKS += ALL_BENCHMARKS[:1]\n")
    names = [case.name for case in catalog.all_benchmarks([str(checkout)])]
    assert len(names) == len(set(names)) == 6


def test_a_tflite_model_is_the_file_of_its_address_whatever_lies_beside(checkout):
    beside = checkout.parent / "models" / "tflite"
    beside.mkdir()
    (beside / "tflite_model.py").write_text("def create_model(model_uri):\n    return model_uri\n")
    cases = catalog.select(catalog.all_benchmarks([str(checkout)]), framework="tflite")
    assert {c.model.model_impl.module_path for c in cases} == {
        "openxla.benchmark.models.tflite.tflite_model"
    }


def test_its_model_is_made_on_our_interfaces(checkout, packages):
    (case,) = catalog.select(catalog.all_benchmarks([str(checkout)]), name="models/NET.*PT.*H8/.+")
    model = in_tree.create_model(**case.model.model_parameters)
    assert model.preprocess(model.generate_default_inputs()) == (128,)


def test_a_model_folder_of_its_own_hides_our_model_of_that_name(tmp_path):
    folder = tmp_path / "models" / "tflite" / "bert"
    folder.mkdir(parents=True)
    (folder / "bert_model.py").write_text("WIDTH = 16\n")
    (folder / "wide_model.py").write_text(
        "from openxla.benchmark.models.tflite.bert.bert_model import WIDTH\n"
        "def create_model(): return WIDTH\n"
    )
    tree = Tree(folder=tmp_path / "models", module="tflite.bert.wide_model")
    script = (
        "from openxla.benchmark.models import in_tree; "
        f"print(in_tree.create_model(**{dict(tree.parameters())!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == "16\n"


def test_its_identity_is_what_its_files_are_wherever_they_lie(checkout, tmp_path):
    def digest(suite):
        cases = catalog.all_benchmarks([str(suite)])
        return workload_of(catalog.select(cases, name="models/NET.*PT.*H8/.+")[0]).digest

    before = digest(checkout)
    moved = (tmp_path / "openxla").rename(tmp_path / "elsewhere")
    suite = moved / "benchmark" / "comparative_suite"
    assert digest(suite) == before
    (moved / "benchmark" / "models" / "pt" / "own" / "sizes.py").write_text("WIDTH = 32\n")
    assert digest(suite) != before


def test_a_model_that_has_changed_since_is_refused(checkout, packages):
    tree = Tree(folder=checkout.parent / "models", module="pt.own.net_model")
    parameters = tree.parameters()
    (checkout.parent / "models" / "pt" / "own" / "sizes.py").write_text("WIDTH = 32\n")
    with pytest.raises(DefinitionError, match="has changed since"):
        in_tree.create_model(**parameters)
    tree.file.unlink()
    with pytest.raises(DefinitionError, match="no longer exists"):
        in_tree.create_model(**parameters)


def test_a_folder_without_definitions_says_what_was_looked_for(tmp_path):
    (tmp_path / "pt").mkdir()
    with pytest.raises(DefinitionError, match=r"no \*_definitions.py and no folder with"):
        catalog.all_benchmarks([str(tmp_path)])


def test_a_definition_that_raises_is_named_and_ours_are_back(checkout):
    (checkout / "pt" / "model_definitions.py").write_text("import no_such_package\n")
    with pytest.raises(DefinitionError, match="no_such_package"):
        catalog.all_benchmarks([str(checkout)])
    assert sys.modules["openxla.benchmark.comparative_suite.pt"] is ours
