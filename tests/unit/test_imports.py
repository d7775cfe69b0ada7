"""The parent process imports no framework, and works where none is installed."""

import json
import tomllib
from pathlib import Path

import pytest

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
FRAMEWORKS = (
    *("torch", "transformers", "diffusers", "jax", "jaxlib", "flax", "tensorflow", "keras"),
    *("onnx", "onnxruntime", "openvino", "ai_edge_litert"),
)
IREE = ("iree.compiler", "iree.runtime")

IMPORT_ALL = """
import importlib, json, pkgutil, sys
frameworks, names, left_out = json.loads(sys.argv[1])
for name in frameworks:
    sys.modules[name] = None
imported = []
for name in names:
    module = importlib.import_module(name)
    imported.append(name)
    for found in pkgutil.walk_packages(getattr(module, "__path__", []), name + "."):
        if found.name in left_out:
            continue
        importlib.import_module(found.name)
        imported.append(found.name)
print(json.dumps(imported))
"""

RUN_COMMAND = """
import json, sys
from comparative_benchmark import cli
code = cli.main(sys.argv[1:])
print(json.dumps([code, sorted(sys.modules)]), file=sys.stderr)
"""


def contract():
    contracts = tomllib.loads(PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    (found,) = [item for item in contracts if "import no framework" in item["name"]]
    return found


def loaded_by(run_python, *arguments):
    done = run_python(RUN_COMMAND, *arguments)
    assert done.returncode == 0, done.stderr
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0
    assert done.stdout
    return set(modules)


@pytest.mark.slow
def test_modules_of_the_contract_import_without_any_framework(run_python):
    names = contract()["source_modules"]
    assert set(contract()["forbidden_modules"]) == {*FRAMEWORKS, "iree"}
    blocked = [*contract()["forbidden_modules"], *IREE]
    left_out = [line.partition(" -> ")[0] for line in contract()["ignore_imports"]]
    done = run_python(IMPORT_ALL, json.dumps([blocked, names, left_out]))
    assert done.returncode == 0, done.stderr
    imported = json.loads(done.stdout)
    assert set(names) <= set(imported)
    assert set(left_out).isdisjoint(imported)
    assert "comparative_benchmark.engine.worker.executor" in imported
    assert "openxla.benchmark.models.architectures.bert" in imported


def test_cbs_list_loads_no_framework_and_not_even_numpy(run_python):
    loaded = loaded_by(run_python, "list")
    assert not loaded & {*FRAMEWORKS, "iree", *IREE, "numpy", "ml_dtypes", "PIL", "tokenizers"}


def test_cbs_backends_loads_no_framework(run_python):
    loaded = loaded_by(run_python, "backends")
    # Looking for `iree.compiler` makes the empty namespace `iree`; nothing in it may be loaded.
    assert not {name for name in loaded if name.startswith("iree.")}
    assert not loaded & set(FRAMEWORKS)


def test_only_the_command_line_knows_argparse_namespaces():
    product = PYPROJECT.parent / "comparative_benchmark"
    cli, torchbench = product / "cli", product / "sources" / "torchbench" / "host"
    found = [
        str(path.relative_to(product))
        for path in product.rglob("*.py")
        # TorchBench's own interface passes namespaces to its models.
        if not path.is_relative_to(cli) and not path.is_relative_to(torchbench)
        if "argparse.Namespace" in path.read_text()
    ]
    assert found == []
