"""Why foreign code cannot run here: packages that are missing, or have another version."""

import importlib
import json
import sys
from pathlib import Path

import attrs
import numpy
import pytest

from comparative_benchmark.backends import missing_packages
from comparative_benchmark.backends.missing_packages import lack_of, requirements_beside
from comparative_benchmark.engine import preparation
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.worker.contributed_model import why_unsupported
from comparative_benchmark.results.record import Status
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.models.in_tree import IN_TREE, Tree


def _raised(program):
    with pytest.raises(Exception) as caught:
        exec(program, {"__name__": "somebodys", "json": json, "numpy": numpy})
    return caught.value


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import cbs_gone", "needs package cbs_gone, imported by it but not installed; R"),
        ("import cbs_gone.part", "needs package cbs_gone, imported by it but not installed; R"),
        (
            "import numpy.cbs_gone",
            "a different version of package numpy: No module named 'numpy.cbs",
        ),
        ("from numpy import cbs_gone", "a different version of package numpy: cannot import name"),
        ("numpy.cbs_gone", "a different version of package numpy: module 'numpy' has no attribute"),
        ("from json import cbs_gone", "needs a Python version other than 3."),
        ("json.cbs_gone", "needs a Python version other than 3."),
    ],
)
def test_what_is_missing_is_named(program, words):
    lack = lack_of(_raised(program))
    told = lack.sentence(requirements=None, importer="it", remedy="R")
    assert words in told
    if lack.package == "numpy":
        assert told.endswith(f"; numpy {numpy.__version__} is installed")


@pytest.mark.parametrize(
    "program",
    [
        "from openxla.benchmark import cbs_gone",
        "from comparative_benchmark.engine.worker import cbs_gone",
        "raise ImportError('no name')",
        "(1).cbs_gone",
        "import types; types.ModuleType('made_here').cbs_gone",
        "raise ValueError('No module named x')",
    ],
)
def test_what_is_no_package_is_no_excuse(program):
    assert lack_of(_raised(program)) is None


@pytest.mark.parametrize(
    ("module", "installed_by"),
    [("cv2", "opencv-python"), ("sklearn.svm", "scikit-learn"), ("timm", "timm")],
)
def test_the_remedy_has_the_name_of_the_package_index(module, installed_by):
    lack = missing_packages.Lack(module=module, is_installed=False, line="")
    assert lack.remedy == f"install it with `pip install {installed_by}`"


def test_the_nearest_requirements_file_that_lists_a_package_is_found(tmp_path):
    code = tmp_path / "models" / "pt" / "net"
    code.mkdir(parents=True)
    (code / "requirements.txt").write_text("# scikit-learn\ntorch\n")
    (code.parent / "requirements-extra.txt").write_text(
        "numpy\nScikit_Learn>=1 ; python_version>'3'"
    )
    lack = missing_packages.Lack(module="sklearn", is_installed=False, line="")
    found = requirements_beside(code, tmp_path / "models", lack)
    assert found == code.parent / "requirements-extra.txt"
    assert requirements_beside(code, code, lack) is None


@pytest.fixture
def tree(tmp_path):
    """Makes a module of another checkout's `models`; returns the parameters of its case."""

    def make(program):
        tree = Tree(folder=tmp_path / "models", module="pt.net.net_model")
        tree.file.parent.mkdir(parents=True)
        tree.file.write_text(program)
        (tree.file.parent / "requirements.txt").write_text("cbs-gone\nnumpy")
        return tree.parameters()

    return make


def _why(parameters):
    file = Tree(folder=Path(parameters["tree"]), module=parameters["tree_module"]).file
    program = compile(file.read_text(), str(file), "exec")
    with pytest.raises(Exception) as caught:
        exec(program, {"__name__": "openxla.benchmark.models.pt.net"})
    return why_unsupported(caught.value, IN_TREE, parameters)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import cbs_gone", "needs package cbs_gone (models/pt/net/requirements.txt), imported by"),
        (
            "from numpy import gone",
            "a different version of package numpy (models/pt/net/requirements",
        ),
        ("raise OSError('We couldn\\'t connect to the hub')", "network: the model needs a conn"),
        (
            "try: import cbs_gone\nexcept ImportError as error: raise ValueError('x') from error",
            "needs package cbs_gone (models",
        ),
        ("from openxla.benchmark.models import gone", None),
        ("raise ValueError('its own')", None),
    ],
)
def test_a_model_of_another_checkout_is_excused_by_what_it_lacks(tree, program, words):
    found = _why(tree(program))
    assert found is None if words is None else words in found


def test_an_error_outside_the_checkout_is_none_of_its_model(tree):
    parameters = tree("")
    assert why_unsupported(_raised("import cbs_gone"), IN_TREE, parameters) is None
    assert (
        why_unsupported(_raised("import cbs_gone"), "openxla.benchmark.user_models.x", {}) is None
    )
    assert why_unsupported(_raised("import cbs_gone"), "", {}) is None


def test_a_suite_in_a_package_is_excused_by_what_it_lacks_but_not_by_its_own(tmp_path, monkeypatch):
    package = tmp_path / "somebodys_suite"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "requirements.txt").write_text("cbs-gone")
    (package / "net.py").write_text("import cbs_gone")
    (package / "other.py").write_text("from somebodys_suite import not_there")
    monkeypatch.syspath_prepend(tmp_path)
    for name, words in (("net", "needs package cbs_gone (somebodys_suite/requir"), ("other", None)):
        module = f"somebodys_suite.{name}"
        with pytest.raises(ImportError) as caught:
            importlib.import_module(module)
        found = why_unsupported(caught.value, module, {})
        assert found is None if words is None else words in found
    sys.modules.pop("somebodys_suite")


def test_our_own_model_of_that_name_is_reported():
    case = next(iter(catalog.all_benchmarks()))
    ended = SessionEnded(Status.UNSUPPORTED, "load", "needs package x")
    other = _with(case, IN_TREE)
    told = preparation._with_our_own(ended, other)
    assert told.reason == (
        "needs package x; omit --suite-dir to run the built-in model of this name"
    )
    assert preparation._with_our_own(ended, case) is ended
    unknown = _with(case, IN_TREE, name="NET_THAT_NO_OTHER_HAS")
    assert preparation._with_our_own(ended, unknown) is ended
    failed = SessionEnded(Status.FAILED, "load", "x")
    assert preparation._with_our_own(failed, other) is failed


def _with(case, module_path, name=None):
    implementation = attrs.evolve(case.model.model_impl, module_path=module_path)
    model = attrs.evolve(case.model, model_impl=implementation, name=name or case.model.name)
    if name is None:
        return attrs.evolve(case, model=model)
    return type(case).build(model=model, input_data=case.input_data)
