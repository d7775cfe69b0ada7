"""In a worker: adapts a model of another OpenXLA suite checkout to our interfaces."""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.files import import_file
from openxla.benchmark.models.jax.jax_model_interface import JaxInferenceModel
from openxla.benchmark.models.trees import MODELS, Tree


def create_model(*, tree: str, tree_module: str, tree_sha256: str, **parameters: Any) -> Any:
    """Returns the result of the module's own `create_model(**parameters)`.

    Args:
      tree: the folder `models` of that checkout.
      tree_module: name of the module in it, e.g. `jax.bert.bert_model`.
      tree_sha256: see `Tree.digest`.
      **parameters: parameters of the model.

    Raises:
      DefinitionError: the module has changed, or has no `create_model`.
    """
    found = Tree(folder=Path(tree), module=tree_module)
    found.check(tree_sha256)
    create = getattr(_imported(found), "create_model", None)
    if create is None:
        raise DefinitionError(f"{found.file} has no function create_model(**parameters)")
    model = create(**parameters)
    return _OfInputsAlone(model) if isinstance(model, JaxInferenceModel) else model


class _OfInputsAlone:
    """Adapts that suite's JAX interface to ours, in which `apply` also takes parameters.

    That suite compiles `forward`, in which the weights are constants.
    """

    params: tuple[()] = ()

    def __init__(self, model: JaxInferenceModel) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def apply(self, _: tuple[()], *inputs: Any) -> Any:
        """Runs the model."""
        return self._model.forward(*inputs)


def _imported(tree: Tree) -> ModuleType:
    """Imports the module under its name in the checkout.

    Neighbouring modules come from the checkout. Interfaces in parent packages are ours if we have
    them, because our harness checks for them.
    """
    *packages, last = tree.module.split(".")
    name, folder = MODELS, tree.folder
    _also_found_in(name, folder, first=False)
    for depth, part in enumerate(packages):
        name, folder = f"{name}.{part}", folder / part
        _also_found_in(name, folder, first=depth > 0)
    return import_file(f"{name}.{last}", tree.file)


def _also_found_in(name: str, folder: Path, *, first: bool) -> None:
    """Adds a folder to the search path of a package; creates the package if necessary."""
    try:
        package = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        package = ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package
    places = [place for place in package.__path__ if place != str(folder)]
    package.__path__ = [str(folder), *places] if first else [*places, str(folder)]
