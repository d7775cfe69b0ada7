"""Imports a model folder as its authors expect, and creates its object.

For workers only, one for each folder and test: folders change the state of their process, and so
does this module, for good.
"""

import contextlib
import copy
import importlib
import importlib.machinery
import inspect
import os
import site
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import torch

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.sources.torchbench import folders, unsupported_reasons
from comparative_benchmark.sources.torchbench.unsupported_reasons import NetworkGuard

_HOST = Path(__file__).parent / "host"
_PACKAGE = "torchbenchmark"
_TORCHVISION = "torchvision"
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
# Freeing a library removes its definitions.
_kept: list[Any] = []


@attrs.frozen(kw_only=True)
class Request:
    """A folder to load, and how.

    Attributes:
      folder: the folder's path.
      test: `train` or `eval`.
      batch_size: batch size to create it with; None for its default.
      packages: directory of packages that were installed for it; None if none were.
      jit: whether to script it; protocol of 2021 only.
    """

    folder: Path
    test: str
    batch_size: int | None = None
    packages: Path | None = None
    jit: bool = False


class LoadedFolder:
    """An imported folder, which creates objects of its class `Model`.

    Raises:
      UnsupportedError: the folder needs the network, or a package that is not installed.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self._guard = NetworkGuard()
        self._guard.install()
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        with self.refusing():
            self._class = _with_base(import_folder(request).Model)
        parameters = inspect.signature(self._class.__init__).parameters
        self.is_current = "test" in parameters or _takes_any(parameters)
        self._parameters = parameters

    def scripted(self) -> "LoadedFolder":
        """Returns the same folder, whose objects will be scripted."""
        other = copy.copy(self)
        other.request = attrs.evolve(self.request, jit=True)
        return other

    @property
    def protocol(self) -> str:
        """`2021` for the guide's protocol, `current` for the one with `test` in the constructor."""
        return "current" if self.is_current else "2021"

    def make(self, device: str | None = None) -> Any:
        """Returns a new object of the folder's class, created with the seed.

        Raises:
          UnsupportedError: the folder does not implement this test here.
        """
        request, device = self.request, device or self.device
        with self.refusing(), torch.enable_grad():
            importlib.import_module(f"{_PACKAGE}.util.env_check").set_random_seed()
            if self.is_current:
                made = self._class(**self._current_arguments(device))
            else:
                made = self._class(**self._arguments_of_2021(device))
                made.test = request.test
                # A folder whose base class has another default, or none, need not have a module.
                with contextlib.suppress(NotImplementedError):
                    made.set_train() if request.test == "train" else made.set_eval()
        if not callable(getattr(made, "invoke", None)):
            raise TypeError(f"{self._class.__name__} does not extend BenchmarkModel")
        return made

    def _requires(self, name: str) -> bool:
        parameter = self._parameters.get(name)
        return parameter is not None and parameter.default is inspect.Parameter.empty

    def _current_arguments(self, device: str) -> dict[str, Any]:
        """Returns arguments of a constructor with `test`; some of 2022 have no `batch_size`."""
        given: dict[str, Any] = {"extra_args": [], **self._sizes()}
        if self._requires("jit"):
            given["jit"] = False
        taken = {key: value for key, value in given.items() if key in self._parameters}
        if "batch_size" in self._parameters or _takes_any(self._parameters):
            taken = {"batch_size": self.request.batch_size, **taken}
        elif self.request.batch_size is not None and not self._sizes().keys() & taken.keys():
            raise NotImplementedError("the folder does not accept a batch size")
        return {"test": self.request.test, "device": device, **taken}

    def _arguments_of_2021(self, device: str) -> dict[str, Any]:
        """Returns arguments of a constructor without `test`; later ones take two batch sizes."""
        request = self.request
        given: dict[str, Any] = {"device": device, "jit": request.jit, **self._sizes()}
        if request.batch_size is not None and f"{request.test}_bs" not in self._parameters:
            raise NotImplementedError("the folder's batch size is fixed (2021 protocol)")
        return {key: value for key, value in given.items() if key in self._parameters}

    def _sizes(self) -> dict[str, int]:
        """Returns the user's batch size by its names of 2022; empty without one."""
        size = self.request.batch_size
        return {} if size is None else {"train_bs": size, "eval_bs": size}

    def step_of(self, made: Any) -> Callable[[], Any]:
        """Returns a function that runs one iteration of an object's test."""
        grad = self.request.test == "train" or not made.eval_in_nograd()

        def step() -> Any:
            with torch.set_grad_enabled(grad):
                returned = made.invoke()
            if isinstance(returned, NotImplementedError):  # some return it instead of raising it
                raise returned
            return returned

        return step

    @contextlib.contextmanager
    def refusing(self, *but: type[Exception]) -> Iterator[None]:
        """Turns a folder's refusals into `UnsupportedError`.

        Args:
          but: errors that are raised unchanged.
        """
        raised_as_they_are: tuple[type[Exception], ...] = (UnsupportedError, *but)
        try:
            yield
        except raised_as_they_are:
            raise
        except NotImplementedError as error:
            where = f"{self.request.folder.name}, test {self.request.test}"
            said = str(error) or f"raises NotImplementedError on {self.device}"
            raise UnsupportedError(f"{where}: {said}") from error
        except Exception as error:
            reason = unsupported_reasons.reason(error, self.request.folder, self.request.packages)
            if reason := reason or self._guard.reason(error):
                raise UnsupportedError(reason) from error
            raise


def import_folder(request: Request) -> ModuleType:
    """Imports a folder as `torchbenchmark.models.<its name>`; returns the module.

    Its siblings are importable, too: some folders read another one's files.
    """
    if _PACKAGE in sys.modules and not _is_ours(sys.modules[_PACKAGE]):
        raise RuntimeError(f"this process has already imported another {_PACKAGE} package")
    sys.dont_write_bytecode = True  # leave no files in the folder
    folder = request.folder
    os.environ["CBS_TORCHBENCH_REPO"] = str(folders.repository(folder))
    os.environ["CBS_TORCHBENCH_TEST"] = request.test
    os.chdir(tempfile.mkdtemp(prefix="folder-"))
    if request.packages is not None:
        _put_first(request.packages)
    sys.path.insert(0, str(_HOST))
    sys.meta_path.insert(0, TorchvisionFinder())
    for name in ("models", "canary_models"):
        package = importlib.import_module(f"{_PACKAGE}.{name}")
        package.__path__ = [str(folder.parent)]
    module = importlib.import_module(f"{_PACKAGE}.models.{folder.name}")
    if not inspect.isclass(getattr(module, "Model", None)):
        raise AttributeError(f"{folder / '__init__.py'} defines no class Model")
    return module


def has_scripted_code() -> bool:
    """Returns whether modules of folders hold functions or modules of TorchScript."""
    kinds = (torch.jit.ScriptFunction, torch.jit.ScriptModule)
    return any(
        isinstance(value, kinds)
        for name, module in list(sys.modules.items())
        if name.startswith(f"{_PACKAGE}.models.")
        for value in list(vars(module).values())
    )


def _is_ours(package: ModuleType) -> bool:
    return Path(str(package.__file__)).is_relative_to(_HOST)


def _put_first(packages: Path) -> None:
    """Puts packages of a folder before ours on the path; modules imported already stay ours."""
    before = list(sys.path)
    site.addsitedir(str(packages))
    added = [entry for entry in sys.path if entry not in before]
    sys.path[:] = [*added, *before]


def _with_base(kind: Any) -> Any:
    """Returns a class that extends `BenchmarkModel`: folders of 2020 had none to extend."""
    base: Any = importlib.import_module(f"{_PACKAGE}.util.model").BenchmarkModel
    if kind.__bases__ != (object,):
        return kind
    return type(base)(kind.__name__, (kind, base), {"__module__": kind.__module__})


def _takes_any(parameters: Any) -> bool:
    return any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values())


class TorchvisionFinder(MetaPathFinder):
    """Lets torchvision be imported with a PyTorch that its own library was not built for.

    The index has torchvision for CUDA only. With a PyTorch for the CPU its library cannot be
    loaded, and its import fails, because it describes operators that only the library defines.
    They are defined here, without kernels: calls of them (detection) still fail, with an error.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Returns None: the usual finders continue."""
        if fullname == _TORCHVISION:
            sys.meta_path.remove(self)
            spec = importlib.machinery.PathFinder.find_spec(_TORCHVISION)
            if spec is not None and spec.origin is not None:
                _define_missing(Path(spec.origin).parent)


def _define_missing(package: Path) -> None:
    for library in package.glob("_C*.so"):
        try:
            torch.ops.load_library(str(library))
        except OSError:
            continue
        return
    definitions = torch.library.Library(_TORCHVISION, "DEF")
    for operator in _OPERATORS:
        definitions.define(operator)
    _kept.append(definitions)
