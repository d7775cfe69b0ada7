"""Benchmark cases of model folders."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from comparative_benchmark.sources.torchbench.folders import Folder, FolderError
from openxla.benchmark import testdata
from openxla.benchmark.def_types import (
    BenchmarkCase,
    Model,
    ModelFrameworkType,
    ModelImplementation,
    ParameterValue,
)

TAG = "torchbench"
_MODULE = f"{__package__}.model"


def named(folders: Sequence[Folder]) -> dict[str, Folder]:
    """Returns folders by unique names: folders of the same name get a prefix from their parents."""
    counts = Counter(folder.name for folder in folders)
    found: dict[str, Folder] = {}
    for folder in folders:
        name = folder.name
        if counts[name] > 1:
            name = f"{folder.path.parent.name}.{name}"
        if name in found:
            name = f"{name}.{folder.sha256[:8]}"
        found[re.sub(r"[^A-Za-z0-9_.+-]", "_", name).lstrip("_.+-") or "folder"] = folder
    return found


def cases(
    folders: Mapping[str, Folder],
    test: str,
    *,
    name: str | None = None,
    batch_size: int | None = None,
    sizes: Mapping[Path, int] | None = None,
    packages: Mapping[Path, Path] | None = None,
    on_cpu: bool = True,
) -> list[BenchmarkCase]:
    """Returns the cases of folders whose name matches.

    Args:
      folders: by name, see `named`.
      test: `train` or `eval`.
      name: regular expression that must match the folder's name, or that of the whole case.
      batch_size: batch size from the user.
      sizes: batch sizes of single folders, by path; these take precedence.
      packages: by a folder's path, the directory of packages that were installed for it.
      on_cpu: whether the cases run on the CPU; on other devices the folder chooses its batch size.

    Raises:
      FolderError: the expression is malformed, or matches nothing.
    """
    try:
        wanted = re.compile(name) if name is not None else None
    except re.error as error:
        raise FolderError(f"-name {name!r} is not a regular expression: {error}") from error
    every = {
        short: _case(
            short,
            folder,
            test,
            (sizes or {}).get(folder.path, batch_size),
            (packages or {}).get(folder.path),
            on_cpu,
        )
        for short, folder in folders.items()
    }
    found = [
        case
        for short, case in every.items()
        if wanted is None or wanted.fullmatch(short) or wanted.fullmatch(case.name)
    ]
    if not found:
        shown = ", ".join(list(every)[:8]) + (", ..." if len(every) > 8 else "")
        raise FolderError(f"no folder matches -name {name!r}; choices are {shown}")
    return found


def _case(
    short: str,
    folder: Folder,
    test: str,
    batch_size: int | None,
    packages: Path | None,
    on_cpu: bool,
) -> BenchmarkCase:
    size = batch_size or (folder.batch_sizes.get(test) if on_cpu else None)
    parameters: dict[str, ParameterValue] = {
        "folder": str(folder.path),
        "folder_sha256": folder.sha256,
        "test": test,
        "packages": None if packages is None else str(packages),
    }
    if size is not None and (folder.protocol != "2021" or batch_size is not None):
        parameters["batch_size"] = size
    suffix = f"_BATCH{size}" if "batch_size" in parameters else ""
    return BenchmarkCase.build(
        model=Model(
            name=f"{short}_{test.upper()}_PT{suffix}",
            tags=[TAG, test],
            model_impl=ModelImplementation(
                name=f"torchbench.{short}",
                tags=[TAG],
                framework_type=ModelFrameworkType.PYTORCH,
                source_info=str(folder.path),
                module_path=_MODULE,
                own_process=True,
            ),
            model_parameters=parameters,
        ),
        input_data=testdata.INPUT_DATA_MODEL_DEFAULT,
    )
