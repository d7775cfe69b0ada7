"""Models of another OpenXLA suite checkout: where they are, and how a worker adapts them.

They are in its folder `models`. They call helpers and subclass an interface of that suite, which
they import from `models.utils` and `models.jax.jax_model_interface`; both are this module.
"""

import hashlib
import importlib
import importlib.util
import io
import sys
import urllib.request
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

from openxla.benchmark.def_types import DefinitionError, Model, ParameterValue
from openxla.benchmark.files import import_file
from openxla.benchmark.models.model_interfaces import InferenceModel

if TYPE_CHECKING:
    from PIL.Image import Image

MODELS = "openxla.benchmark.models"
# Module that makes such a model in a worker.
IN_TREE = "openxla.benchmark.models.in_tree"

_TIMEOUT_S = 30.0


@attrs.frozen(kw_only=True)
class Tree:
    """A folder `models`, and a module in it.

    Attributes:
      folder: absolute path.
      module: its dotted name relative to the folder, e.g. `jax.bert.bert_model`.
    """

    folder: Path
    module: str

    @property
    def file(self) -> Path:
        """The module's file."""
        return self.folder.joinpath(*self.module.split(".")).with_suffix(".py")

    def digest(self) -> str:
        """Returns the sha256 of the module and of all Python files next to and above it."""
        places = [self.file.parent, *self.file.parent.parents]
        inside = places[: places.index(self.folder) + 1]
        files = sorted(file for place in inside for file in place.glob("*.py"))
        lines = [
            f"{file.relative_to(self.folder)} {hashlib.sha256(file.read_bytes()).hexdigest()}"
            for file in files
        ]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def parameters(self) -> dict[str, ParameterValue]:
        """Returns model parameters that record the location and digest at planning time."""
        return {"tree": str(self.folder), "tree_module": self.module, "tree_sha256": self.digest()}

    def check(self, digest: str) -> None:
        """Raises DefinitionError if the files have changed since the run was planned."""
        if not self.file.is_file():
            raise DefinitionError(f"{self.file} no longer exists")
        if self.digest() != digest:
            raise DefinitionError(
                f"{self.file}, or a file that it imports, has changed since this run was planned"
            )


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
    source = Tree(folder=Path(tree), module=tree_module)
    source.check(tree_sha256)
    create = getattr(_imported(source), "create_model", None)
    if create is None:
        raise DefinitionError(f"{source.file} has no function create_model(**parameters)")
    model = create(**parameters)
    return OfInputsAlone(model) if isinstance(model, JaxInferenceModel) else model


class JaxInferenceModel(InferenceModel):
    """A model whose `forward` is compiled, with its parameters as constants."""

    def apply(self, *preprocessed_inputs: Any) -> Any:
        """Runs the model as a pure function of its inputs; returns one array or a tuple."""
        raise NotImplementedError(f"{type(self).__name__} has no apply()")


class OfInputsAlone:
    """Adapts a JAX model that has `forward` alone to ours, whose `apply` also takes parameters.

    That suite compiles `forward`, in which the weights are constants.
    """

    params: tuple[()] = ()

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def apply(self, _: tuple[()], *inputs: Any) -> Any:
        """Runs the model."""
        return self._model.forward(*inputs)


def download_and_read_img(url: str) -> "Image":
    """Returns the picture at an address.

    Raises:
      OSError: the address cannot be reached, or holds no picture.
      ValueError: the address is not http or https.
    """
    from PIL import Image

    if not url.startswith(("https://", "http://")):
        raise ValueError(f"{url!r} is not an http or https URL")
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:  # noqa: S310  # checked above
        return Image.open(io.BytesIO(answer.read()))


def create_model_obj(model: Model) -> Any:
    """Returns the model of a definition, created with its parameters."""
    module = importlib.import_module(str(model.model_impl.module_path))
    return module.create_model(**model.model_parameters)


def canonicalize_to_tuple(return_value: Any) -> tuple[Any, ...]:
    """Returns a tuple unchanged, and a single value as a tuple of one."""
    return return_value if isinstance(return_value, tuple) else (return_value,)


def _imported(tree: Tree) -> ModuleType:
    """Imports the module under its name in the checkout.

    Neighbouring modules come from the checkout. Interfaces in parent packages are ours if we have
    them, because our harness checks for them.
    """
    *packages, last = tree.module.split(".")
    name, folder = MODELS, tree.folder
    _extend_package(name, folder, first=False)
    for depth, part in enumerate(packages):
        name, folder = f"{name}.{part}", folder / part
        _extend_package(name, folder, first=depth > 0)
    return import_file(f"{name}.{last}", tree.file)


def _extend_package(name: str, folder: Path, *, first: bool) -> None:
    """Adds a folder to the search path of a package; creates the package if we have none."""
    if name not in sys.modules:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.submodule_search_locations is None:
            # A model of ours is a module, which this package replaces in the worker.
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__path__ = []
    package = importlib.import_module(name)
    places = [place for place in package.__path__ if place != str(folder)]
    package.__path__ = [str(folder), *places] if first else [*places, str(folder)]
