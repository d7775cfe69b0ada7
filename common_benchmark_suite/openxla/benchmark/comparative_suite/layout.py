"""Folders in the layout of the OpenXLA suite: one `FRAMEWORK/benchmark_definitions.py` each.

Such a file imports its neighbour as `openxla.benchmark.comparative_suite.FRAMEWORK`, which is also
one of our packages. So each file is imported in place of ours, which is then restored. Models come
from the neighbouring folder `models/` if it has their modules; otherwise from the suite's module of
the same path.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import attrs

from openxla.benchmark import comparative_suite
from openxla.benchmark.def_types import BenchmarkCase, ModelFrameworkType
from openxla.benchmark.models.trees import IN_TREE, MODELS, Tree

DEFINITIONS = "benchmark_definitions"


def frameworks_in(folder: Path) -> list[Path]:
    """Returns the subfolders that define benchmarks; empty for another layout."""
    return sorted(path.parent for path in folder.glob(f"*/{DEFINITIONS}.py"))


def load(framework: Path) -> ModuleType:
    """Imports the definitions of a subfolder, in place of our package of that name."""
    name = f"{comparative_suite.__name__}.{framework.name}"
    with _in_place_of_ours(name, framework):
        return importlib.import_module(f"{name}.{DEFINITIONS}")


def with_models_beside(case: BenchmarkCase, suite: Path) -> BenchmarkCase:
    """Returns a case with its model from the tree that contains the suite, if it is there.

    A TFLite model is a file named by its address; the neighbouring module cannot be run.
    """
    if case.model.model_impl.framework_type is ModelFrameworkType.TFLITE:
        return case
    path = case.model.model_impl.module_path or ""
    tree = Tree(folder=suite.parent / "models", module=path.removeprefix(f"{MODELS}."))
    if not path.startswith(f"{MODELS}.") or not tree.file.is_file():
        return case
    model = attrs.evolve(
        case.model,
        model_impl=attrs.evolve(
            case.model.model_impl, module_path=IN_TREE, architecture=None, own_process=True
        ),
        model_parameters={**case.model.model_parameters, **tree.parameters()},
    )
    return attrs.evolve(case, model=model)


def in_own_process(case: BenchmarkCase) -> BenchmarkCase:
    """Returns a case whose model, unless it is ours, runs in a process without other models.

    Models of two folders may import modules of the same name.
    """
    implementation = case.model.model_impl
    if implementation.own_process or (implementation.module_path or "").startswith(f"{MODELS}."):
        return case
    own = attrs.evolve(implementation, own_process=True)
    return attrs.evolve(case, model=attrs.evolve(case.model, model_impl=own))


@contextmanager
def _in_place_of_ours(name: str, folder: Path) -> Iterator[None]:
    last = name.rpartition(".")[2]
    hidden = {key: sys.modules.pop(key) for key in list(sys.modules) if _is_in(key, name)}
    had = getattr(comparative_suite, last, None)
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    setattr(comparative_suite, last, package)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for key in [key for key in sys.modules if _is_in(key, name)]:
            del sys.modules[key]
        sys.modules.update(hidden)
        if had is None:
            delattr(comparative_suite, last)
        else:
            setattr(comparative_suite, last, had)


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")
