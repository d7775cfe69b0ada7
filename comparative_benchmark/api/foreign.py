"""What `cbs run` runs that is not of the catalogue: folders of others."""

import argparse

from comparative_benchmark.api.selection import Selection
from comparative_benchmark.runs.settings import RunSettings
from comparative_benchmark.runs.trial import Trial
from comparative_benchmark.terminal.options import UsageError, find_device
from comparative_benchmark.torchbench import cases, folders, installing

# What runs a folder as its authors wrote it.
_USUAL = {"backend": "pt_inductor:eager", "device": "host-cpu"}


def complete(options: argparse.Namespace) -> None:
    """Fills in how folders are usually run.

    Raises:
      UsageError: cases of the catalogue are to be run, and it was left out how.
    """
    lacking = [name for name in _USUAL if getattr(options, name) is None]
    if lacking and not getattr(options, "torchbench", None):
        spelt = ", ".join({"backend": "--backend", "device": "-device"}[name] for name in lacking)
        raise UsageError(f"the following arguments are required: {spelt}")
    for name in lacking:
        setattr(options, name, _USUAL[name])


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
