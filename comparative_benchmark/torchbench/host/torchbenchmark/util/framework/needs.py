"""Packages that a factory needs, which may not be there."""

import importlib
from typing import Any


def module(name: str, why: str) -> Any:
    """Returns a module.

    Raises:
      NotImplementedError: it is not installed; says what to install.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name.partition(".")[0]:
            raise
        package = name.partition(".")[0]
        raise NotImplementedError(
            f"needs package {package}, which {why} imports and is not installed: pip install "
            f"{package}, or --install for the folder's own requirements"
        ) from error
