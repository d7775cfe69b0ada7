"""Reasons why a folder cannot run here, through no fault of the folder or the suite.

A missing package, data file or device ends a trial as `unsupported`; any other error of a folder is
its failure.
"""

from pathlib import Path

from comparative_benchmark.backends.missing_packages import (
    Lack,
    chain,
    importer_of,
    lack_of,
    requirements_beside,
)
from comparative_benchmark.sources.torchbench.folders import repository

_BASE = "torchbenchmark"
# PyTorch's messages if it was built without CUDA, or there is no GPU.
_NO_GPU = (
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "deserialize object on a CUDA device but torch.cuda.is_available() is False",
)


def reason(error: BaseException, folder: Path, packages: Path | None) -> str | None:
    """Returns why an error excuses a folder; None if it does not.

    Args:
      error: the error that the folder raised.
      folder: the folder's path.
      packages: directory of packages that its install.py installed; None if it has not run.
    """
    for one in chain(error, implicit=False):
        if (lack := lack_of(one)) is not None:
            return _lacking(lack, one, folder, packages)
        if isinstance(one, FileNotFoundError) and (found := _file(one, folder)):
            return found
        if isinstance(one, AssertionError | RuntimeError) and "install.py" in str(one):
            return f"data: {_line(one)}; pass --install to run install.py"
        if any(words in str(one) for words in _NO_GPU):
            return f"{folder.name} needs an NVIDIA GPU: {_line(one)}"
    return None


def _lacking(lack: Lack, error: BaseException, folder: Path, packages: Path | None) -> str | None:
    if lack.package == _BASE:
        return _of_base(lack.module, folder) if isinstance(error, ImportError) else None
    remedy = lack.remedy
    listed = requirements_beside(folder, folder, lack)
    if (folder / "install.py").is_file() and packages is None and not lack.belongs_to_pytorch:
        remedy = "pass --install to run the folder's install.py in a separate environment"
    return lack.sentence(
        requirements=f"{folder.name}/{listed.name}" if listed else None,
        importer=importer_of(error, _BASE) or folder.name,
        remedy=remedy,
    )


def _of_base(name: str, folder: Path) -> str | None:
    """Returns the missing part of TorchBench; None if it belongs to the folder itself."""
    kind, _, inside = name.removeprefix(f"{_BASE}.").partition(".")
    if kind not in ("models", "canary_models"):
        return f"{folder.name} imports something from {name} that cbs does not provide"
    sibling = inside.partition(".")[0]
    if sibling == folder.name:
        return None
    return f"{folder.name} imports code from the folder {sibling}, which is not next to it"


def _file(error: FileNotFoundError, folder: Path) -> str | None:
    """Returns which data are missing, if they are not part of the folder."""
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
