"""TorchBench folders as cases of `cbs run`, and the default backends of a request."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs

from comparative_benchmark.api import auto_batch
from comparative_benchmark.api.selection import Selection
from comparative_benchmark.engine import session
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import ALL_BACKENDS, Trial
from comparative_benchmark.errors import UsageError
from comparative_benchmark.request import RunRequest
from comparative_benchmark.sources.selection import find_device
from comparative_benchmark.sources.torchbench import cases, folders, installing
from comparative_benchmark.sources.torchbench.folders import Folder

# Default backends: eager for folders, which then run as their authors wrote them; all backends for
# other cases.
_OF_FOLDERS, _OF_CASES = ("pt_inductor:eager",), (ALL_BACKENDS,)


def complete(request: RunRequest, *, chosen: bool) -> RunRequest:
    """Returns the request with its backends filled in.

    Args:
      request: the user's request.
      chosen: whether the measuring command has selected the cases.

    Raises:
      UsageError: the request selects nothing; running all cases would take days.
    """
    selecting = (request.name, request.tag, request.framework, request.suites, request.model)
    if not chosen and not any((*selecting, request.torchbench, request.backends)):
        raise UsageError(
            "nothing is selected; give -name REGEX (`cbs list` shows the names), --tag TAG, "
            "or your own model"
        )
    if request.backends:
        return request
    return attrs.evolve(request, backends=_OF_FOLDERS if request.torchbench else _OF_CASES)


def selected(request: RunRequest) -> Selection | None:
    """Returns the cases of the TorchBench folders in a request; None if it names none.

    Raises:
      UsageError: a folder does not exist, or other options are incompatible.
    """
    if not request.torchbench:
        return None
    if request.batch_size and request.auto_batch:
        raise UsageError("--auto-batch chooses the batch size; omit --batch-size")
    if request.framework not in (None, "pytorch"):
        raise UsageError(f"--framework {request.framework}: TorchBench folders run in PyTorch")
    try:
        found = cases.named(folders.find(request.torchbench))
        on_cpu = find_device(request.device).accelerator_type == "cpu"
        cases_of = partial(
            cases.cases,
            found,
            request.test,
            name=request.name,
            batch_size=request.batch_size,
            on_cpu=on_cpu,
        )
        chosen = cases_of()
        by_path = {str(folder.path): folder for folder in found.values()}
        wanted = [by_path[str(case.model.model_parameters["folder"])] for case in chosen]
        with session.during("install.py", "installing"):
            installed = installing.packages_of(wanted, install=request.install)
        sizes = _sizes(wanted, request, installed) if request.auto_batch else {}
        chosen = cases_of(packages=installed.packages, sizes=sizes)
    except folders.FolderError as error:
        raise UsageError(str(error)) from error
    problems = {str(folder.path): folder.problem for folder in wanted if folder.problem}
    problems |= {str(path): reason for path, reason in installed.failures.items()}

    def refuse(trial: Trial, _: RunSettings) -> str | None:
        return problems.get(str(trial.case.model.model_parameters["folder"]))

    said = [*installed.said, *_listed(wanted, request.test, on_cpu=on_cpu)]
    return Selection(cases=chosen, refuse=refuse, before=lambda *_: said)


def _sizes(
    wanted: Sequence[Folder], request: RunRequest, installed: installing.Installed
) -> dict[Path, int]:
    """Returns the largest batch size of each folder for which it is not the default."""
    sizes = {}
    for folder in wanted:
        if folder.problem or folder.path in installed.failures:
            continue
        print(f"searching for the largest batch size of {folder.name}", file=sys.stderr)
        packages = installed.packages.get(folder.path)
        size, why = auto_batch.of_folder(folder, request.test, packages, request)
        installed.said.append(f"{folder.name}: batch size {why}")
        if size is not None:
            sizes[folder.path] = size
    return sizes


def _listed(wanted: Sequence[Folder], test: str, *, on_cpu: bool) -> list[str]:
    """Returns a message about folders whose metadata.yaml lists this test as not implemented."""
    device = "cpu" if on_cpu else "cuda"
    names = [folder.name for folder in wanted if folder.lists_as_not_implemented(test, device)]
    if not names:
        return []
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return [f"running although metadata.yaml lists {test} on {device} as not implemented: {shown}"]
