"""What `cbs run` runs that is not of the catalogue: folders of others."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.api import auto_batch
from comparative_benchmark.api.selection import Selection
from comparative_benchmark.runs import pulse
from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.runs.trial import ALL_BACKENDS, Trial
from comparative_benchmark.terminal.options import UsageError, find_device
from comparative_benchmark.torchbench import cases, folders, installing
from comparative_benchmark.torchbench.folders import Folder
from openxla.benchmark import devices

# What runs where a user does not say: a folder as its authors wrote it, a case wherever it can.
_FOLDERS = {"backend": ("pt_inductor:eager",), "device": devices.HOST_CPU.name}
_CASES = {"backend": (ALL_BACKENDS,), "device": devices.HOST_CPU.name}
# What chooses among all that could run.
_CHOOSING = ("name", "tag", "framework", "suite", "model", "torchbench")


def complete(options: argparse.Namespace, *, chosen: bool) -> None:
    """Fills in what runs, and where, if the user did not say.

    Args:
      options: of `cbs run`, `run_benchmarks.py` or a command that measures as they do.
      chosen: whether the cases are chosen by more than these options.

    Raises:
      UsageError: they choose nothing at all: everything takes days, and nobody means that.
    """
    if not chosen and not any(getattr(options, name, None) for name in (*_CHOOSING, "backend")):
        raise UsageError(
            "nothing is selected; give -name REGEX (`cbs list` shows the names), --tag TAG, "
            "or your own model"
        )
    usual = _FOLDERS if getattr(options, "torchbench", None) else _CASES
    for name, value in usual.items():
        if not getattr(options, name):
            setattr(options, name, value)


def selected(options: argparse.Namespace) -> Selection | None:
    """Returns the cases of the folders that options name, None if they name none.

    Raises:
      UsageError: there are no such folders, or other options do not go with them.
    """
    paths = getattr(options, "torchbench", None)
    if not paths:
        return None
    if options.batch_size and options.auto_batch:
        raise UsageError("--auto-batch chooses the batch size; omit --batch-size")
    if options.framework not in (None, "pytorch"):
        raise UsageError(f"--framework {options.framework}: TorchBench folders run in PyTorch")
    try:
        found = cases.named(folders.find(paths))
        on_cpu = find_device(options.device).accelerator_type == "cpu"
        arguments = {"name": options.name, "batch_size": options.batch_size, "on_cpu": on_cpu}
        chosen = cases.cases(found, options.test, **arguments)
        by_path = {str(folder.path): folder for folder in found.values()}
        wanted = [by_path[str(case.model.model_parameters["folder"])] for case in chosen]
        with pulse.during("install.py", "installing"):
            installed = installing.packages_of(wanted, install=options.install)
        sizes = _sizes(wanted, options, installed) if options.auto_batch else {}
        chosen = cases.cases(
            found, options.test, packages=installed.packages, sizes=sizes, **arguments
        )
    except folders.FolderError as error:
        raise UsageError(str(error)) from error
    problems = {str(folder.path): folder.problem for folder in wanted if folder.problem}
    problems |= {str(path): reason for path, reason in installed.failures.items()}

    def refuse(trial: Trial, _: RunSettings) -> str | None:
        return problems.get(str(trial.case.model.model_parameters["folder"]))

    said = [*installed.said, *_listed(wanted, options.test, on_cpu=on_cpu)]
    return Selection(cases=chosen, refuse=refuse, before=lambda *_: said)


def _sizes(
    wanted: Sequence[Folder], options: argparse.Namespace, installed: installing.Installed
) -> dict[Path, int]:
    """Returns the largest batch size of each folder that takes another than its own."""
    sizes = {}
    for folder in wanted:
        if folder.problem or folder.path in installed.failures:
            continue
        print(f"searching for the largest batch size of {folder.name}", file=sys.stderr)
        packages = installed.packages.get(folder.path)
        size, why = auto_batch.of_folder(folder, options.test, packages, options)
        installed.said.append(f"{folder.name}: batch size {why}")
        if size is not None:
            sizes[folder.path] = size
    return sizes


def _listed(wanted: Sequence[Folder], test: str, *, on_cpu: bool) -> list[str]:
    """Returns a line on folders that are tried although their metadata.yaml lists this test."""
    device = "cpu" if on_cpu else "cuda"
    names = [folder.name for folder in wanted if folder.lists_as_not_implemented(test, device)]
    if not names:
        return []
    shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
    return [f"running although metadata.yaml lists {test} on {device} as not implemented: {shown}"]
