"""Commands that list models and backends, add new ones, and check them."""

import argparse
import json

from comparative_benchmark.errors import EXIT_OK, UsageError
from comparative_benchmark.sources.selection import select
from comparative_benchmark.terminal.listing import as_row, list_backends, list_recipes, matching


def selected_cases(options: argparse.Namespace) -> int:
    """Prints the selected cases, each with its workload; returns 0.

    Raises:
      UsageError: an expression is malformed.
    """
    cases = select(
        options.name,
        test=options.test,
        tags=options.tag,
        framework=options.framework,
        suites=options.suite,
    )
    rows = matching(cases, options.workload)
    if options.json:
        print(json.dumps([as_row(*row) for row in rows], indent=2))
        return EXIT_OK
    width = max((len(case.name) for case, _ in rows), default=0)
    for case, workload in rows:
        print(f"{case.name:<{width}}  {workload.id}")
    return EXIT_OK


def installed_backends(options: argparse.Namespace) -> int:
    """Prints backends, compilers and their options, and the recipes; returns 0."""
    # `cbs list` needs neither these nor numpy.
    from comparative_benchmark.backends.api import backends
    from comparative_benchmark.backends.recipes import recipes

    if options.json:
        print(json.dumps({"backends": list_backends(), "recipes": list_recipes()}, indent=2))
        return EXIT_OK
    for backend in backends().values():
        missing = sorted({m for f in backend.modules for m in backend.missing_modules(f)})
        run = backend.absence(missing).commands
        state = f"needs {', '.join(missing)}: run {run}" if missing else "installed"
        print(f"{backend.name} ({', '.join(f.value for f in backend.modules)} models; {state})")
        for compiler in backend.compilers:
            names = [*compiler.options, *(["RECIPE"] if compiler.takes_recipes else [])]
            choices = "".join(f" [+{name}]" for name in names)
            print(f"  {backend.name}:{compiler.name}{choices}  {compiler.description}")
    print("RECIPE is one of:")
    for recipe in recipes().values():
        where = ", ".join(recipe.by_backend) or "no backend"
        print(f"  {recipe.usage}  {recipe.description} ({where})")
    return EXIT_OK


def new_model(options: argparse.Namespace) -> int:
    """Writes the files of a new model; returns 0."""
    from comparative_benchmark.maintenance.onboarding.creating import write_model

    return write_model(
        options.name, frameworks=options.framework, into=options.into, torchbench=options.torchbench
    )


def new_package(options: argparse.Namespace) -> int:
    """Writes a package with a backend, a recipe or an operator; returns 0."""
    from comparative_benchmark.maintenance.onboarding.creating import write_package

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
    from comparative_benchmark.maintenance.onboarding import model_check

    if options.torchbench:
        return model_check.check_folders(
            options.torchbench,
            name=options.name,
            install=options.install,
            timeout_s=options.timeout,
            device=options.device,
        )
    if options.name is None:
        raise UsageError("specify a model name or --torchbench PATH")
    return model_check.check_model(
        options.name,
        frameworks=options.framework,
        suites=options.suite,
        install=options.install,
        timeout_s=options.timeout,
    )
