"""The two functions that users of torchao's guide edit: `benchmarks/microbenchmarks/utils.py`.

`string_to_config()` makes recipes, and `create_model_and_input_data()` makes models. Names unknown
to the suite may be handled by them. Only workers and child processes import that file.
"""

import ast
import functools
import hashlib
import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs

from openxla.benchmark import bounded, installation, testdata
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DefinitionError,
    Model,
    ModelFrameworkType,
    ModelImplementation,
)
from openxla.benchmark.files import import_file
from openxla.benchmark.text import one_line

FILE = "benchmarks/microbenchmarks/utils.py"
RECIPE_HINT = (
    f"to add a recipe, add a branch to string_to_config() in the checkout's {FILE}, or run "
    "cbs new-recipe"
)
MODEL_HINT = (
    f"to add a model type, define it in the checkout's {FILE}, with a branch in "
    "create_model_and_input_data() (that file replaces "
    "torchao/testing/model_architectures.py), or run cbs new-operator"
)
IMPLEMENTATION = "GUIDE_FUNCTION_PT"
# By its name: this process must not import the framework.
_MODELS = "openxla.benchmark.operators.guide_models"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# Imports of the file as shipped; other imported modules may define names.
_OWN_IMPORTS = ("typing", "comparative_benchmark", "openxla", "torch", "torchao")
# Importing the frameworks takes seconds, and they reserve memory for their libraries.
_DEADLINE_S, _MEMORY_BYTES = 120.0, 32 << 30


@attrs.frozen
class Refusal:
    """Why a function of the file does not handle a name.

    Attributes:
      error: exception that it raised; None if the function does not know the name.
    """

    error: str | None = None

    @property
    def clause(self) -> str:
        """The error as a clause of a message; empty without one."""
        return f"{self.error}; " if self.error else ""


def file() -> Path | None:
    """Returns the file with the functions; None if the suite does not run from a checkout."""
    checkout = installation.checkout()
    return checkout / FILE if checkout is not None and (checkout / FILE).is_file() else None


def may_be(name: str) -> bool:
    """Returns whether the functions may know a name, without importing anything."""
    path = file()
    return path is not None and _may_define(path, name)


def why_no_recipe(name: str) -> Refusal | None:
    """Returns why `string_to_config()` makes no recipe for a name; None if it does."""
    return _probe(name, _recipe_probe, name)


def why_no_model(name: str, shape: Sequence[int], data_type: str) -> Refusal | None:
    """Returns why `create_model_and_input_data()` makes no model for a name; None if it does."""
    return _probe(name, _model_probe, name, tuple(shape), data_type)


def _probe(name: str, probe: Any, *arguments: Any) -> Refusal | None:
    path = file()
    if path is None or not _may_define(path, name):
        return Refusal()
    try:
        answer: Refusal | None = bounded.call(
            probe, *arguments, deadline_s=_DEADLINE_S, memory_bytes=_MEMORY_BYTES
        )
    except (bounded.TooCostlyError, DefinitionError) as error:
        return Refusal(one_line(str(error)))
    return answer


def _may_define(path: Path, name: str) -> bool:
    """Returns whether the file is worth importing: most unknown names are misspelt."""
    if not _NAME.fullmatch(name):
        return False
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (SyntaxError, ValueError):
        return True  # the child reports the error
    texts = (node.value for node in nodes if isinstance(node, ast.Constant))
    if any(isinstance(text, str) and name.partition("-")[0] in text for text in texts):
        return True
    imported = [
        *(alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names),
        *(str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)),
    ]
    return any(module.partition(".")[0] not in _OWN_IMPORTS for module in imported)


def digest() -> str | None:
    """Returns the sha256 of the file; None if it is missing."""
    path = file()
    return None if path is None else hashlib.sha256(path.read_bytes()).hexdigest()


@functools.cache
def module() -> ModuleType:
    """Returns the module of the file, in a worker or a child process.

    Raises:
      DefinitionError: the suite does not run from a checkout.
    """
    path = file()
    if path is None:
        raise DefinitionError(f"{FILE} not found: the suite is not running from a checkout")
    return import_file("cbs_guide_functions", path)


def config_of(name: str) -> Any:
    """Returns the result of `string_to_config()` for a name; None if the name is unknown."""
    function = module().string_to_config
    for given in ((name, None), (None, name)):
        try:
            config = function(*given)
        except LookupError as error:
            if isinstance(error, KeyError | IndexError):  # a mistake in a user's branch
                raise
            continue  # our branch, for an unknown recipe
        if config is not None:
            return config
    return None


def _recipe_probe(name: str) -> Refusal | None:
    try:
        config = config_of(name)
    except Exception as error:
        return Refusal(f"string_to_config() raised {type(error).__name__}: {error}")
    return None if config is not None else Refusal()


def _model_probe(name: str, shape: tuple[int, int, int], data_type: str) -> Refusal | None:
    try:
        importlib.import_module(_MODELS).made(name, shape, data_type)
    except DefinitionError:  # from our function, for an unknown layer
        return Refusal()
    except Exception as error:
        m, k, n = shape
        return Refusal(
            f"create_model_and_input_data({name!r}, {m}, {k}, {n}) raised "
            f"{type(error).__name__}: {error}"
        )
    return None


def case(name: str, shape: Any, data_type: str) -> BenchmarkCase:
    """Returns the case of a model that the function makes, in PyTorch."""
    sizes = {letter: getattr(shape, letter) for letter in "mkn"}
    model = Model(
        name=model_name(name, shape, data_type),
        model_impl=ModelImplementation(
            name=IMPLEMENTATION,
            tags=["operator"],
            framework_type=ModelFrameworkType.PYTORCH,
            module_path=_MODELS,
        ),
        model_parameters={
            "model_name": name,
            "data_type": data_type,
            **sizes,
            # Editing the file gives another model.
            "functions_sha256": digest(),
        },
    )
    return BenchmarkCase.build(model=model, input_data=testdata.INPUT_DATA_MODEL_DEFAULT)


def model_name(name: str, shape: Any, data_type: str) -> str:
    """Returns e.g. `MY_CUSTOM_MODEL_BF16_PT_64X128X256`."""
    sizes = f"{shape.m}X{shape.k}X{shape.n}"
    return f"{name.upper()}_{data_type.upper()}_PT_{sizes}"
