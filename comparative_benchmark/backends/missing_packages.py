"""Missing or incompatible packages that a backend, a recipe or foreign code needs."""

import importlib.util
import platform
import re
import sys
import traceback
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import ModuleType

import attrs

from openxla.benchmark.installation import checkout


def chain(error: BaseException, *, implicit: bool) -> list[BaseException]:
    """Returns an error and its causes, including implicit ones if `implicit`."""
    errors: list[BaseException] = []
    following: BaseException | None = error
    while following is not None and following not in errors:
        errors.append(following)
        following = following.__cause__ or (following.__context__ if implicit else None)
    return errors


def setup_script(backend: str) -> str | None:
    """Returns the command that creates a backend's environment; None outside a checkout."""
    return None if checkout() is None else f"./comparative_benchmark/{backend}/setup_venv.sh"


# Package names on the index, where they differ from import names.
_ON_INDEX = {
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "distutils": "setuptools",
    "git": "GitPython",
    "PIL": "Pillow",
    "pkg_resources": "setuptools",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "torch_geometric": "torch-geometric",
    "yaml": "PyYAML",
}
# Packages built for one version of PyTorch; any other version replaces PyTorch.
_OF_PYTORCH = ("torchvision", "torchaudio", "torchtext")
# A missing part of these packages cannot be installed.
_OURS = ("openxla", "comparative_benchmark")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


@attrs.frozen(kw_only=True)
class Absence:
    """Modules that a backend or its recipes need, but that are not installed.

    Attributes:
      modules: import names of the missing modules.
      install: command that installs them; None if they are missing from another environment.
      setup_script: command that creates an environment with these modules; None without one.
      recipes_of: backend whose recipes need them; None if the backend needs them for any model.
      environment, python: name and interpreter of the environment that lacks them; None for the
        current process's environment.
    """

    modules: tuple[str, ...]
    install: str | None = None
    setup_script: str | None = None
    recipes_of: str | None = None
    environment: str | None = None
    python: str | None = None

    @property
    def sentence(self) -> str:
        """The reason and the remedy; results store it as `reason`."""
        names = ", ".join(self.modules)
        if self.environment is not None:
            return f"{names} not installed in the environment {self.environment}: {self.python}"
        if self.recipes_of is not None:
            return (
                f"{self.recipes_of} recipes need {names}, which is not installed; "
                f"run {self.commands}"
            )
        return f"{names} not installed; run {self.commands}"

    @property
    def commands(self) -> str:
        """The commands that install them, for the end of a sentence."""
        return f"{self.setup_script}, or {self.install}" if self.setup_script else str(self.install)

    @property
    def remedy(self) -> str:
        """The shortest command that installs them, or the environment that they belong in."""
        if self.environment is not None:
            return f"{', '.join(self.modules)} in the environment {self.environment}: {self.python}"
        return str(self.install)


@attrs.frozen(kw_only=True)
class Lack:
    """A package that code needs, but that is missing or has the wrong version.

    Attributes:
      module: the module that the code tried to import or to read a name from.
      is_installed: whether another version of the package is installed.
      line: the error's message.
    """

    module: str
    is_installed: bool
    line: str

    @property
    def package(self) -> str:
        """The package's import name."""
        return self.module.partition(".")[0]

    @property
    def on_index(self) -> str:
        """The package's name on the index."""
        return _ON_INDEX.get(self.package, self.package)

    @property
    def belongs_to_pytorch(self) -> bool:
        """Whether its version must fit PyTorch's."""
        return self.package in _OF_PYTORCH

    @property
    def remedy(self) -> str:
        """The instruction that installs the package."""
        if self.belongs_to_pytorch:
            return (
                f"install the version for PyTorch {_version('torch')} with "
                f"`pip install --no-deps {self.on_index}`"
            )
        return f"install it with `pip install {self.on_index}`"

    def sentence(self, *, requirements: str | None, importer: str, remedy: str) -> str:
        """Returns the reason as a sentence.

        Args:
          requirements: name of the file that lists the package; None for no file.
          importer: name of the importing package or code.
          remedy: what to do if the package is not installed.
        """
        if self.is_installed and self.package in sys.stdlib_module_names:
            return f"needs a Python version other than {platform.python_version()}: {self.line}"
        listed = f" ({requirements})" if requirements else ""
        if self.is_installed:
            had = f"; {self.on_index} {_version(self.on_index)} is installed"
            return f"needs a different version of package {self.package}{listed}: {self.line}{had}"
        return (
            f"needs package {self.package}{listed}, imported by {importer} but not installed; "
            f"{remedy}"
        )


def lack_of(error: BaseException) -> Lack | None:
    """Returns the package that an error reports as missing; None if it reports none.

    Code may import from a package, or look up a name in a module that it has imported.
    """
    if isinstance(error, ImportError):
        module = error.name or ""
    elif isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        module = error.obj.__name__
    else:
        return None
    package = module.partition(".")[0]
    if not package or package in _OURS:
        return None
    if isinstance(error, AttributeError):
        # Modules of the code itself are not packages.
        if package not in sys.stdlib_module_names and package not in packages_distributions():
            return None
        has_package = True
    else:
        is_missing = isinstance(error, ModuleNotFoundError)
        has_package = not is_missing or ("." in module and is_installed(package))
    line = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return Lack(module=module, is_installed=has_package, line=line)


def importer_of(error: BaseException, own: str) -> str | None:
    """Returns the installed package that imports; None if code of the package `own` does."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        name = str(frame.f_globals.get("__name__")).partition(".")[0]
        if name == own:
            break
        if name != "importlib":
            return f"package {name}"
    return None


def requirements_beside(code: Path, top: Path, lack: Lack) -> Path | None:
    """Returns the nearest requirements file that lists a package, from a folder up to another."""
    names = {_normalised(lack.package), _normalised(lack.on_index)}
    for place in (code, *code.parents):
        if not place.is_relative_to(top):
            return None
        for file in sorted(place.glob("requirements*.txt")):
            if names & _listed(file):
                return file
    return None


def _listed(file: Path) -> set[str]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    return {_normalised(match[1]) for line in lines if (match := _REQUIREMENT.match(line))}


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def is_installed(module: str) -> bool:
    """Returns whether a module can be found; imports its parent packages, but not the module."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "in this environment"
