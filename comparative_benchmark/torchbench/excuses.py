"""Why a folder cannot be run here through no fault of its own or ours.

A package, data or a device that is not there ends a trial as `unsupported`; all else that a folder
raises is its failure.
"""

import traceback
from pathlib import Path

import torch

from comparative_benchmark.backends.causes import chain
from comparative_benchmark.torchbench.folders import repository

_BASE = "torchbenchmark"
# What TorchBench's guide has installed by "an outsider", and not by a folder's install.py.
_OF_PYTORCH = ("torchvision", "torchaudio", "torchtext")
# What PyTorch says where it was built without CUDA, or there is no GPU.
_NO_GPU = (
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "deserialize object on a CUDA device but torch.cuda.is_available() is False",
)


def reason(error: BaseException, folder: Path, packages: Path | None) -> str | None:
    """Returns why an error excuses a folder; None if it does not.

    Args:
      error: that the folder raised.
      folder: where it is.
      packages: where packages are that its install.py installed; None if it has not run.
    """
    for one in chain(error, implicit=False):
        if isinstance(one, ImportError) and one.name:
            missing = isinstance(one, ModuleNotFoundError)
            return _module(one, folder, packages) if missing else _version(one, folder)
        if isinstance(one, FileNotFoundError) and (found := _file(one, folder)):
            return found
        if isinstance(one, AssertionError | RuntimeError) and "install.py" in str(one):
            return f"data: {_line(one)}; pass --install to run install.py"
        if any(words in str(one) for words in _NO_GPU):
            return f"{folder.name} needs an NVIDIA GPU: {_line(one)}"
    return None


def _module(error: ImportError, folder: Path, packages: Path | None) -> str | None:
    name = str(error.name)
    package = name.partition(".")[0]
    if package == _BASE:
        return _of_base(name, folder)
    remedy = f"install it with `pip install {package}`"
    if package in _OF_PYTORCH:  # any other version would bring another PyTorch with it
        remedy = (
            f"install the version for PyTorch {torch.__version__} with "
            f"`pip install --no-deps {package}`"
        )
    elif (folder / "install.py").is_file() and packages is None:
        remedy = "pass --install to run the folder's install.py in a separate environment"
    who = _importer(error, folder)
    return f"needs package {package}, imported by {who} but not installed; {remedy}"


def _importer(error: ImportError, folder: Path) -> str:
    """Returns who imports what is not there: the folder, or a package that it has."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        name = str(frame.f_globals.get("__name__")).partition(".")[0]
        if name == _BASE:
            break
        if name != "importlib":
            return f"package {name}"
    return folder.name


def _version(error: ImportError, folder: Path) -> str | None:
    name = str(error.name)
    package = name.partition(".")[0]
    if package == _BASE:
        return _of_base(name, folder)
    return f"needs another version of package {package}: {_line(error)}"


def _of_base(name: str, folder: Path) -> str | None:
    """Returns what of TorchBench is not here; None if it is a part of the folder itself."""
    kind, _, inside = name.removeprefix(f"{_BASE}.").partition(".")
    if kind not in ("models", "canary_models"):
        return f"{folder.name} imports something from {name} that cbs does not provide"
    sibling = inside.partition(".")[0]
    if sibling == folder.name:
        return None
    return f"{folder.name} imports code from the folder {sibling}, which is not next to it"


def _file(error: FileNotFoundError, folder: Path) -> str | None:
    """Returns which data are not there, if they are not a part of the folder."""
    if not isinstance(error.filename, str | bytes) or not error.filename:
        return None
    path = Path(error.filename if isinstance(error.filename, str) else error.filename.decode())
    elsewhere = path.is_absolute() and not path.is_relative_to(folder)
    beside = elsewhere and path.is_relative_to(repository(folder))
    fetched = ".data" in path.parts
    if not (beside or fetched or (folder / "install.py").is_file()):
        return None
    return f"data: {path} does not exist; the folder's install.py may download it (--install)"


def _line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
