"""The base package of a model folder, under the name that folders import it by.

It offers the names that folders of pytorch/benchmark import; none of it is their code.
"""

import importlib
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

# The folder's checkout, or else its parent directory; see `loading.import_folder`.
REPO_PATH = Path(os.environ.get("CBS_TORCHBENCH_REPO", Path.cwd()))
DATA_PATH = str(REPO_PATH / "torchbenchmark" / "data" / ".data")


class add_path:  # noqa: N801  # its name in folders
    """Has a directory first on the import path inside a `with` block."""

    def __init__(self, path: str) -> None:
        self.path = str(path)

    def __enter__(self) -> None:
        sys.path.insert(0, self.path)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.path in sys.path:
            sys.path.remove(self.path)


def load_model_by_name(model: str) -> Any:
    """Returns the class `Model` of a sibling of the running folder; None if missing."""
    return _loaded("models", model)


def load_canary_model_by_name(model: str) -> Any:
    """Returns the class `Model` of a folder of `canary_models`; None if missing."""
    return _loaded("canary_models", model)


def list_models(model_match: str | None = None) -> list[Any]:
    """Returns the classes `Model` of the running folder's siblings with matching names."""
    package = importlib.import_module(f"{__name__}.models")
    places = [Path(place) for place in package.__path__]
    names = [path.parent.name for place in places for path in sorted(place.glob("*/__init__.py"))]
    wanted = [name for name in names if model_match is None or model_match in name]
    return [loaded for name in wanted if (loaded := load_model_by_name(name)) is not None]


def _loaded(kind: str, name: str) -> Any:
    try:
        module = importlib.import_module(f"{__name__}.{kind}.{name}")
    except ModuleNotFoundError:
        return None
    model_class = getattr(module, "Model", None)
    if model_class is not None and not hasattr(model_class, "name"):
        model_class.name = name
    return model_class
