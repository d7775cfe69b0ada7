"""A folder in the layout of the OpenXLA suite: `FRAMEWORK/benchmark_definitions.py`, for each.

Such a file imports its neighbour as `openxla.benchmark.comparative_suite.FRAMEWORK`, which is a
package here, too. So each is imported in its place, and ours are put back. Models whose modules lie
beside the folder, in `models/`, are those; others are the suite's own of the same path.
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
    """Returns the subfolders that define benchmarks; none if the layout is another."""
    return sorted(path.parent for path in folder.glob(f"*/{DEFINITIONS}.py"))


def load(framework: Path) -> ModuleType:
    """Imports the definitions of a subfolder, in the place of ours of that name."""
    name = f"{comparative_suite.__name__}.{framework.name}"
    with _in_place_of_ours(name, framework):
        return importlib.import_module(f"{name}.{DEFINITIONS}")


def with_models_beside(case: BenchmarkCase, suite: Path) -> BenchmarkCase:
    """Returns a case whose model is the one in the tree that the suite lies in, if it is there.

    A TFLite model is a file that its address names; the module beside it has nothing to run.
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
    """Returns a case of a folder whose model shares its process with no other, unless it is ours.

    Models of two folders may import modules of one name.
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
