"""A Python file that lies on no path is imported under a name that is given to it."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def import_file(name: str, file: Path) -> ModuleType:
    """Imports a file under that name; one that raises leaves nothing behind.

    Raises:
      ImportError: it is not a Python file.
      Exception: what the file raises.
    """
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    # There while it is executed: dataclasses and pickles look for their module.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module
