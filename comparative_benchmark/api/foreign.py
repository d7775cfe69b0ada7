"""What `cbs run` runs that is not of the catalogue: folders of others."""

import argparse

from comparative_benchmark.api.selection import Selection
from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.runs.trial import ALL_BACKENDS, Trial
from comparative_benchmark.terminal.options import UsageError, find_device
from comparative_benchmark.torchbench import cases, folders, installing
from openxla.benchmark import devices

# What runs where a user does not say: a folder as its authors wrote it, a case wherever it can.
_FOLDERS = {"backend": "pt_inductor:eager", "device": devices.HOST_CPU.name}
_CASES = {"backend": ALL_BACKENDS, "device": devices.HOST_CPU.name}
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
            "what is to be run? Give -name REGEX (`cbs list` shows the names), --tag TAG, "
            "or a model of your own"
        )
    usual = _FOLDERS if getattr(options, "torchbench", None) else _CASES
    for name, value in usual.items():
        if getattr(options, name) is None:
            setattr(options, name, value)


def selected(options: argparse.Namespace) -> Selection | None:
    """Returns the cases of the folders that options name, None if they name none.

    Raises:
      UsageError: there are no such folders, or other options do not go with them.
    """
    paths = getattr(options, "torchbench", None)
    if not paths:
        if getattr(options, "install", False) or getattr(options, "batch_size", None):
            raise UsageError("--install and --batch-size are for folders: give --torchbench PATH")
        return None
    if options.inputs is not None:
        raise UsageError("--inputs does not go with --torchbench: a folder has its own inputs")
    try:
        found = cases.named(folders.find(paths))
        on_cpu = find_device(options.device).accelerator_type == "cpu"
        arguments = {"name": options.name, "batch_size": options.batch_size, "on_cpu": on_cpu}
        chosen = cases.cases(found, options.test, **arguments)
        by_path = {str(folder.path): folder for folder in found.values()}
        wanted = [by_path[str(case.model.model_parameters["folder"])] for case in chosen]
        installed = installing.packages_of(wanted, install=options.install)
        chosen = cases.cases(found, options.test, packages=installed.packages, **arguments)
    except folders.FolderError as error:
        raise UsageError(str(error)) from error
    problems = {str(folder.path): folder.problem for folder in wanted if folder.problem}
    problems |= {str(path): reason for path, reason in installed.failures.items()}

    def refuse(trial: Trial, _: RunSettings) -> str | None:
        return problems.get(str(trial.case.model.model_parameters["folder"]))

    return Selection(cases=chosen, refuse=refuse, before=lambda *_: installed.said)
