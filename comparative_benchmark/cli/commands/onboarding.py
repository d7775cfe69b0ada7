"""`cbs new-model`, `new-backend`, `new-recipe`, `new-operator`, `ci-template` and `check-model`."""

import argparse

from comparative_benchmark.errors import UsageError


def new_model(options: argparse.Namespace) -> int:
    """Writes the files of a new model; returns 0."""
    from comparative_benchmark.maintenance.onboarding.new_model import write_model

    return write_model(
        options.name,
        frameworks=options.framework,
        into=options.into,
        torchbench=options.torchbench,
    )


def new_package(options: argparse.Namespace) -> int:
    """Writes a package with a backend, a recipe or an operator; returns 0."""
    from comparative_benchmark.maintenance.onboarding.new_package import write_package

    return write_package(options.kind, options.name, into=options.into)


def ci_template(options: argparse.Namespace) -> int:
    """Writes a workflow that races a model on every pull request; returns 0."""
    from comparative_benchmark.maintenance.onboarding.ci_template import write_workflow

    return write_workflow(options.model, backends=options.backend, install=options.install)


def check_model(options: argparse.Namespace) -> int:
    """Checks a model of the suite, or TorchBench folders; returns 2 if a check fails.

    Raises:
      UsageError: the model, the framework or the folder does not exist.
    """
    if options.torchbench:
        from comparative_benchmark.maintenance.onboarding.folder_check import check_folders

        return check_folders(
            options.torchbench,
            name=options.name,
            install=options.install,
            timeout_s=options.timeout,
        )
    if options.name is None:
        raise UsageError("give a model name or --torchbench PATH")
    from comparative_benchmark.maintenance.onboarding import model_check

    return model_check.check_model(
        options.name,
        frameworks=options.framework,
        suites=options.suite,
        install=options.install,
        timeout_s=options.timeout,
    )
