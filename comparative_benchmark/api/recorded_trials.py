"""Converts recorded results back to trials, for reproducers and profiles."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

import attrs

from comparative_benchmark.backends.api import backends, get_backend
from comparative_benchmark.engine.settings import UnusableEnvironmentError, parse_environments
from comparative_benchmark.engine.trial import Competitor, Trial, competitors_of
from comparative_benchmark.errors import UsageError
from comparative_benchmark.results.case import Case, cases_of
from comparative_benchmark.results.record import Definition, Document, Package
from comparative_benchmark.sources.selection import find_device
from openxla.benchmark import user_models
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.comparative_suite import catalog, operator_cases, training_cases
from openxla.benchmark.comparative_suite.catalog import Expression
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.workloads import workload_of

_MOST_SHOWN = 12


def versions_of(case: Case) -> dict[str, str]:
    """Returns the package versions of a result; those reported by its worker take precedence."""
    installed: Sequence[Package] = ()
    if case.run:
        around, environment = case.run.execution_environment, case.result.definition.environment
        installed = around.python_environment
        if environment:
            other = around.environments.get(environment.name)
            installed = other.python_environment if other else ()
    return {package.name: package.version for package in installed} | case.result.versions


def find(
    document: Document, case: str, *, competitor: str | None = None, device: str | None = None
) -> Case:
    """Finds a single result: the latest of its case, competitor and device.

    Args:
      document: content of a results file.
      case: name of a case or model, or a regular expression that matches in one case's name.
      competitor: `backend:compiler`, or a backend with only one competitor.
      device: name of a device.

    Raises:
      UsageError: no or several results match; the message gives the choices.
    """
    latest = {other.result.key: other for other in cases_of(document)}
    if not latest:
        raise UsageError("the results file contains no results")
    name = _case_name([other.result.definition for other in latest.values()], case)
    keys = [key for key in latest if key[0] == name]
    for what, position, wanted, option in (
        ("competitor", 1, competitor, "--backend"),
        ("device", 2, device, "-device"),
    ):
        choices = list(dict.fromkeys(key[position] for key in keys))
        chosen = _chosen(choices, wanted)
        if len(chosen) != 1:
            listed = [f"{key[position]} ({latest[key].status.value})" for key in keys]
            problem = f"{option} {wanted!r} matches" if wanted else "there is"
            many = "more than one" if chosen else "no"
            raise UsageError(
                f"{name}: {problem} {many} {what}; choose one with {option}: {', '.join(listed)}"
            )
        keys = [key for key in keys if key[position] == chosen[0]]
    return latest[keys[0]]


def trial_of(
    recorded: Case,
    suites: Sequence[str] = (),
    *,
    run_recorded_python: bool = False,
    exports: bool = True,
) -> Trial:
    """Returns the trial that repeats a result.

    Args:
      recorded: the result.
      suites: further modules with cases.
      run_recorded_python: whether the interpreter named in the file may be run.
      exports: whether the program will be exported, as for a reproducer.

    Raises:
      UsageError: the file names an interpreter and `run_recorded_python` is false; the case,
        backend or environment has changed; or the backend or device does not support exports.
      DefinitionError: see `catalog`.
    """
    definition = recorded.result.definition
    device = find_device(definition.device)
    if exports and device.accelerator_type != "cpu":
        raise UsageError(f"reproducers support only CPUs; this result is from {device.name}")
    competitor = _competitor(
        definition,
        device.accelerator_type,
        run_recorded_python=run_recorded_python,
        exports=exports,
    )
    case = _case(definition, suites, exports=exports)
    workload = workload_of(case)
    if workload.digest != definition.workload.digest:
        revision = f" (revision {recorded.revision})" if recorded.revision else ""
        raise UsageError(
            f"{case.name} has changed since it was measured: its workload was "
            f"{definition.workload.id} and is now {workload.id}; check out the suite version that "
            f"measured it{revision}"
        )
    framework = case.model.model_impl.framework_type
    if missing := competitor.missing_modules(framework):
        raise UsageError(
            f"the model requires {', '.join(missing)} (not installed); run "
            f"{competitor.backend.absence(missing).commands}"
        )
    return Trial(case=case, workload=workload, competitor=competitor, device=device)


def _case_name(definitions: Sequence[Definition], wanted: str) -> str:
    names = list(dict.fromkeys(definition.benchmark_name for definition in definitions))
    matches = [d.benchmark_name for d in definitions if wanted in (d.benchmark_name, d.model)]
    if not matches:
        try:
            pattern = Expression(wanted)
            matches = [name for name in names if pattern.search(name)]
        except re.error as error:
            raise UsageError(f"{wanted!r} is not a valid regular expression: {error}") from error
    matches = list(dict.fromkeys(matches))
    if len(matches) == 1:
        return matches[0]
    if matches:
        lines = "\n".join(f"  {name}" for name in matches[:_MOST_SHOWN])
        more = f"\n  and {len(matches) - _MOST_SHOWN} more" if len(matches) > _MOST_SHOWN else ""
        raise UsageError(f"{wanted!r} matches {len(matches)} cases; choose one:\n{lines}{more}")
    nearest = difflib.get_close_matches(wanted, names, n=3, cutoff=0.3) or names[:3]
    lines = "\n".join(f"  {name}" for name in nearest)
    raise UsageError(f"the results file has no case {wanted!r}; the closest names are:\n{lines}")


def _chosen(choices: Sequence[str], wanted: str | None) -> list[str]:
    if wanted is None:
        return list(choices)
    exact = [choice for choice in choices if choice == wanted]
    return exact or [choice for choice in choices if choice.partition(":")[0] == wanted]


def _competitor(
    definition: Definition, accelerator: str, *, run_recorded_python: bool, exports: bool
) -> Competitor:
    environment = definition.environment
    try:
        backend = get_backend(definition.backend)
        if exports and backend.reproducer is None:
            known = ", ".join(name for name, info in backends().items() if info.reproducer)
            raise UsageError(
                f"{backend.name} cannot export programs; choose a result from one of these "
                f"backends: {known}"
            )
        [competitor] = competitors_of(backend, [definition.compiler], accelerator)
        if environment is None:
            return competitor
        if not run_recorded_python:
            raise UsageError(
                f"the result was measured in environment {environment.name!r} with interpreter "
                f"{environment.python!r}; if you trust the file, add --recorded-python to run that "
                "interpreter"
            )
        [where] = parse_environments(f"{environment.name}={environment.python}")
    except UnusableEnvironmentError as error:
        raise UsageError(f"cannot use the recorded environment: {error}") from error
    return attrs.evolve(competitor, environment=where)


def _case(definition: Definition, suites: Sequence[str], *, exports: bool) -> BenchmarkCase:
    """Returns the catalogue's case, or a case of its model on the user's inputs."""
    name, model = definition.benchmark_name, definition.model
    training = training_cases.named(model)
    if training and exports:
        raise UsageError(f"{model} runs training steps; exported programs support only inference")
    single = training or operator_cases.named(model)
    known = [single] if single else _brought(definition) or catalog.all_benchmarks(suites)
    for case in known:
        if case.name == name:
            return case
    of_model = [case for case in known if case.model.name == model]
    if not of_model:
        raise UsageError(
            f"the suite has no model {model}; pass the model's module with --suite or its folder "
            "with --suite-dir"
        )
    source = definition.input_source
    if source is None or not definition.input_data.startswith(array_files.USER_INPUTS_PREFIX):
        raise UsageError(f"the suite has no input {definition.input_data} for {model}")
    try:
        inputs = array_files.read_user_inputs(Path(source))
        [case] = array_files.cases_with(of_model[:1], inputs)
    except array_files.UserInputError as error:
        raise UsageError(f"cannot read the recorded inputs: {error}") from error
    return case


def _brought(definition: Definition) -> list[BenchmarkCase]:
    """Returns the cases of a measured user model; empty for a model of the suite."""
    is_given = definition.input_data.startswith(array_files.USER_INPUTS_PREFIX)
    again = user_models.recorded_model(
        user_models.Recorded(
            model=definition.model,
            parameters=definition.model_parameters,
            framework=definition.framework_name,
            input_data=definition.input_data,
            inputs_dir=definition.input_source if is_given else None,
        )
    )
    try:
        return list(user_models.find_cases_bounded(*again).cases) if again else []
    except user_models.UserModelError as error:
        raise UsageError(f"cannot load the recorded model: {error}") from error
