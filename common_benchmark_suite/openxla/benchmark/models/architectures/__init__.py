"""Framework-neutral architectures: configurations, weights, input and output signatures.

Each module here offers `ARCHITECTURE`; other packages name theirs by a dotted path.
"""

import functools
import importlib

from openxla.benchmark.def_types import DefinitionError
from openxla.benchmark.models.architectures.base import Architecture, TensorInit

__all__ = ["Architecture", "TensorInit", "get"]


@functools.cache
def get(name: str) -> Architecture:
    """Returns the architecture of that name (`bert`) or dotted path (`my_package.my_model`).

    Raises:
      DefinitionError: the module does not exist, or offers no `ARCHITECTURE`.
    """
    path = name if "." in name else f"{__name__}.{name}"
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise DefinitionError(f"unknown architecture {name!r}: {error}") from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # code of another package
        raise DefinitionError(f"architecture {name!r}: {type(error).__name__}: {error}") from error
    architecture = getattr(module, "ARCHITECTURE", None)
    if not isinstance(architecture, Architecture):
        raise DefinitionError(f"architecture {name!r}: {path} defines no ARCHITECTURE")
    return architecture
