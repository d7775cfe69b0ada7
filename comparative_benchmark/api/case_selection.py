"""The cases of a run, from a command, a user's model, or TorchBench folders."""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from comparative_benchmark.engine import preparation, session
from comparative_benchmark.engine.session import SessionEnded
from comparative_benchmark.engine.settings import RunSettings, call_once, settings_of
from comparative_benchmark.engine.trial import ALL_BACKENDS, Trial
from comparative_benchmark.errors import UsageError
from comparative_benchmark.request import RunRequest
from comparative_benchmark.results.record import Result, Status
from comparative_benchmark.sources.selection import find_device
from comparative_benchmark.sources.torchbench import folders, installing
from comparative_benchmark.sources.torchbench.folders import Folder
from openxla.benchmark.def_types import BenchmarkCase

if TYPE_CHECKING:  # catalogue runs need no readers of foreign formats
    from openxla.benchmark.user_models import Definitions, ModelCases, ModelOptions


@attrs.frozen(kw_only=True)
class Selection:
    """The cases of a command, with its hooks.

    Attributes:
      cases: cases to run.
      share_workers: see `RunSettings`.
      refuse: returns why a trial must not be run (status `unsupported`), None if it may be.
      before: returns lines to print before the first trial.
      after: called with all results; returns lines to print below them.
    """

    cases: Sequence[BenchmarkCase]
    share_workers: bool = False
    refuse: Callable[[Trial, RunSettings], str | None] = lambda *_: None
    before: Callable[[Sequence[Trial], RunSettings], Iterable[str]] = lambda *_: ()
    after: Callable[[Sequence[Result]], Iterable[str]] = lambda _: ()

    def admitted(self, trials: Iterable[Trial], settings: RunSettings) -> list[Trial]:
        """Returns the trials; `refused` gives the reason for those that must not be run."""
        return [
            attrs.evolve(
                trial,
                refused=trial.refused
                or self.refuse(trial, settings)
                or preparation.why_too_large(trial, settings),
            )
            for trial in trials
        ]


def user_model_cases(request: RunRequest) -> "ModelCases | None":
    """Returns the cases of the user's model; None if the request names none.

    Raises:
      UsageError: the model cannot be measured.
    """
    from openxla.benchmark.user_models import UserModelError, find_cases_bounded

    if request.model is None:
        return None
    try:
        return find_cases_bounded(request.model, _wanted(request))
    except UserModelError as error:
        raise UsageError(str(error)) from error


def definitions_to_save(request: RunRequest, cases: "ModelCases") -> "Definitions | None":
    """Returns the definitions that `--save-as` writes; None without that option.

    Raises:
      UsageError: other files have its names.
    """
    from openxla.benchmark.user_models import UserModelError, definitions

    if request.save_as is None:
        return None
    try:
        return definitions(str(request.model), _wanted(request), cases.cases, request.save_as)
    except UserModelError as error:
        raise UsageError(str(error)) from error


def _wanted(request: RunRequest) -> "ModelOptions":
    from openxla.benchmark.user_models import ModelOptions

    return ModelOptions(
        inputs=request.input,
        inputs_dir=request.inputs,
        text=request.text,
        image=request.image,
        data_types=request.dtype,
        batch_sizes=request.batch,
        seq_lens=request.seq_len,
        framework=request.framework,
        task=request.task,
        base=request.base,
        allow_code=request.allow_code,
        test=request.test,
    )


_PROBE = "comparative_benchmark.sources.torchbench.checks:probe"
_MOST = 1 << 16
# Statuses that end the search with the previous size.
_TOO_MUCH = (Status.OUT_OF_MEMORY, Status.TIMEOUT)


def largest_batch(try_out: Callable[[int], int]) -> tuple[int | None, str]:
    """Returns the largest power of two that a folder runs with, or None, and the reason.

    None means the folder's default batch size.

    Args:
      try_out: runs the folder with a batch size in a fresh process and returns the number of
        elements in its inputs. Raises `SessionEnded` if it does not run.
    """
    size, largest, held = 1, None, 0
    while size <= _MOST:
        try:
            elements = try_out(size)
        except SessionEnded as ended:
            if largest is None:
                return None, f"unchanged: {ended.reason}"
            if ended.status not in _TOO_MUCH:
                return largest, f"{largest}; {size} ended with {ended.status.value}: {ended.reason}"
            return largest, f"{largest}; {size} ended with {ended.status.value}"
        if largest is not None and elements == held:
            return None, "unchanged: the inputs do not grow with the batch size"
        largest, held, size = size, elements, size * 2
    return largest, f"{largest}, the largest size tested"


def batch_of_folder(
    folder: Folder, test: str, packages: Path | None, request: RunRequest
) -> tuple[int | None, str]:
    """Returns the largest batch size of a folder's test within `--memory-limit` and `--timeout`.

    The float64 run that provides the truth must fit, too.
    """
    arguments: dict[str, Any] = {
        "folder": str(folder.path),
        "test": test,
        "packages": str(packages) if packages else None,
    }

    settings = settings_of(
        find_device(request.device),
        timeout_s=request.timeout,
        memory_bytes=request.memory_limit,
        threads=request.threads,
        phase_deadlines_s=request.deadline,
    )

    def try_out(size: int) -> int:
        arguments["batch_size"] = size
        return call_once(settings, _PROBE, arguments, dict[str, int])["elements"]

    return largest_batch(try_out)


# Default backends: eager for folders, which then run as their authors wrote them; all backends for
# other cases.
_OF_FOLDERS, _OF_CASES = ("pt_inductor:eager",), (ALL_BACKENDS,)


def with_backends(request: RunRequest, *, chosen: bool) -> RunRequest:
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
            "no case is selected; pass -name REGEX (see `cbs list`), --tag TAG, or your own model"
        )
    if request.backends:
        return request
    return attrs.evolve(request, backends=_OF_FOLDERS if request.torchbench else _OF_CASES)


def folder_cases(request: RunRequest) -> Selection | None:
    """Returns the cases of the TorchBench folders in a request; None if it names none.

    Raises:
      UsageError: a folder does not exist, or other options are incompatible.
    """
    if not request.torchbench:
        return None
    if request.batch_size and request.auto_batch:
        raise UsageError("--auto-batch chooses the batch size; omit --batch-size")
    if request.framework not in (None, "pytorch"):
        only = "TorchBench folders run only in PyTorch; omit --framework"
        raise UsageError(f"--framework {request.framework}: {only}")
    selected = folders.named(folders.find(request.torchbench))
    on_cpu = find_device(request.device).accelerator_type == "cpu"
    cases_of = partial(
        folders.cases,
        selected,
        request.test,
        name=request.name,
        batch_size=request.batch_size,
        on_cpu=on_cpu,
    )
    chosen = cases_of()
    by_path = {str(folder.path): folder for folder in selected.values()}
    wanted = [by_path[str(case.model.model_parameters["folder"])] for case in chosen]
    runs = not request.dry_run
    with session.during("install.py", "installing"):
        installed = installing.packages_of(wanted, install=request.install and runs)
    if request.install and runs:  # install.py may have added data
        selected |= {name: folders.read(f.path) for name, f in selected.items() if f in wanted}
        wanted = [folders.read(folder.path) for folder in wanted]
    sizes = _sizes(wanted, request, installed) if request.auto_batch and runs else {}
    chosen = cases_of(packages=installed.packages, sizes=sizes)
    problems = {str(folder.path): folder.problem for folder in wanted if folder.problem}
    problems |= {str(path): reason for path, reason in installed.failures.items()}

    def refuse(trial: Trial, _: RunSettings) -> str | None:
        return problems.get(str(trial.case.model.model_parameters["folder"]))

    lines = [*installed.said, *_listed(wanted, request.test, on_cpu=on_cpu)]
    return Selection(cases=chosen, refuse=refuse, before=lambda *_: lines)


def _sizes(
    wanted: Sequence[Folder], request: RunRequest, installed: installing.Installed
) -> dict[Path, int]:
    """Returns the largest batch size of each folder for which it is not the default."""
    sizes = {}
    for folder in wanted:
        if folder.problem or folder.path in installed.failures:
            continue
        print(f"searching for the largest batch size for {folder.name}", file=sys.stderr)
        packages = installed.packages.get(folder.path)
        size, why = batch_of_folder(folder, request.test, packages, request)
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
    return [f"metadata.yaml lists {test} on {device} as not implemented; running anyway: {shown}"]
