"""The command that runs one result again."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from comparative_benchmark.results.comparing.plot_data import selection_of
from comparative_benchmark.results.record import Result
from openxla.benchmark.artifacts.array_files import USER_INPUTS_PREFIX
from openxla.benchmark.comparative_suite.catalog import is_folder
from openxla.benchmark.testdata import INPUT_DATA_MODEL_DEFAULT
from openxla.benchmark.user_models import Recorded, command_words


def command(result: Result, *more: str, suites: Sequence[str] = ()) -> str:
    """Returns a line for a shell.

    Args:
      result: a result with any status.
      more: further options of `cbs run`.
      suites: further suites that the user named.
    """
    definition = result.definition
    if result.measured.throughput:
        config = definition.model_parameters.get("config")
        where = f"--config {shlex.quote(str(config))} " if config else ""
        environment = definition.environment
        raced = f" --env {environment.name}={environment.python}" if environment else ""
        return f"cbs bench run --fulltrace {where}--select {definition.model}{raced}"
    operator = selection_of(result)
    given = (
        definition.input_source if definition.input_data.startswith(USER_INPUTS_PREFIX) else None
    )
    if given and any(Path(given).is_relative_to(suite) for suite in suites):
        given = None  # a folder's own inputs belong to its cases
    environment = definition.environment
    return " ".join(
        [
            f"cbs {'micro run' if operator else 'run'}",
            f"--backend {definition.backend}:{definition.compiler}",
            operator or _which(result, given, in_suite=bool(suites)),
            f"-device {definition.device} -o again.json",
            *more,
            *([f"--inputs {given}"] if given else []),
            *suite_options(suites),
            *([f"--env {environment.name}={environment.python}"] if environment else []),
        ]
    )


def suite_options(suites: Sequence[str]) -> list[str]:
    """Returns the options that name modules and folders with cases."""
    return [f"--suite{'-dir' * is_folder(suite)} {shlex.quote(suite)}" for suite in suites]


def _which(result: Result, given: str | None, *, in_suite: bool) -> str:
    """Returns the options that name the case.

    Args:
      result: a result of the case.
      given: a user's own inputs, if any.
      in_suite: whether the user's suites define the case, which may then be a user's model.
    """
    definition = result.definition
    parameters = definition.model_parameters
    if folder := parameters.get("folder"):
        return f"--torchbench {folder} -t {parameters['test']}"
    recorded = Recorded(
        model=definition.model,
        parameters=parameters,
        framework=definition.framework_name,
        input_data=definition.input_data,
        inputs_dir=given,
    )
    if not in_suite and (words := command_words(recorded)):
        return words
    name = definition.benchmark_name
    if given:
        # The catalogue has no cases on a user's own inputs, so name the default input, which they
        # replace.
        name = f"models/{definition.model}/inputs/{INPUT_DATA_MODEL_DEFAULT}"
    return f"{'-t train ' if result.measured.training else ''}-name '{name}'"
