"""Subjects of a run: the options that each kind accepts, and the command to run one again."""

import enum
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from comparative_benchmark.errors import UsageError
from comparative_benchmark.request import EVAL, RunRequest
from comparative_benchmark.results.comparing.plot_data import selection_of
from comparative_benchmark.results.record import Result
from openxla.benchmark.artifacts.array_files import USER_INPUTS_PREFIX
from openxla.benchmark.comparative_suite.catalog import is_folder
from openxla.benchmark.testdata import INPUT_DATA_MODEL_DEFAULT
from openxla.benchmark.user_models import Recorded, command_words

_BOTH = "MODEL ({model}) and {option} cannot be combined; use one of them"

_SPELT = {"name": "-name", "test": "-t", "model": "--torchbench"}


class Subject(enum.Enum):
    """The kinds of subject that a run can have."""

    CATALOGUE = "cases of the suite"
    SUITE_FOLDER = "cases of --suite or --suite-dir"
    MODULE = "a Python file"
    DIRECTORY = "a Hugging Face directory"
    PROGRAM = "an exported program"
    TORCHBENCH = "TorchBench folders"


_CASES = (Subject.CATALOGUE, Subject.SUITE_FOLDER)
_MODELS = (Subject.MODULE, Subject.DIRECTORY, Subject.PROGRAM)
_NO_MODEL = dict.fromkeys(
    (*_CASES, Subject.TORCHBENCH), "{option} requires a MODEL: cbs run MODEL {option} ..."
)
_ONE_OF = dict.fromkeys(_MODELS, _BOTH)
_NO_DIRECTORY = dict.fromkeys(
    (Subject.MODULE, Subject.PROGRAM),
    "{option} requires a Hugging Face directory, but {model} is not one",
)
_NO_FOLDERS = dict.fromkeys(
    (*_CASES, *_MODELS), "{option} applies only to TorchBench folders; add --torchbench PATH"
)

# Options that select or shape the subject, by field in a request, with the reasons why some
# subjects refuse them. All other options define the measurement, and apply to every subject.
REFUSALS: Mapping[str, Mapping[Subject, str]] = {
    "model": {Subject.TORCHBENCH: _BOTH},
    "name": _ONE_OF,
    "tag": {**_ONE_OF, Subject.TORCHBENCH: "TorchBench folders have no tags; omit --tag"},
    "suite": {
        **_ONE_OF,
        Subject.TORCHBENCH: "--torchbench and {option} cannot be combined; use one of them",
    },
    "test": {
        Subject.DIRECTORY: "-t train: a Hugging Face directory defines no loss; write a Python "
        "file that loads the model and defines loss(model, *inputs)",
        Subject.PROGRAM: "-t train: an exported program cannot be trained; pass the Python file "
        "that creates the model",
    },
    "framework": {},
    "inputs": {Subject.TORCHBENCH: "--torchbench folders define their own inputs; omit --inputs"},
    "input": _NO_MODEL,
    "dtype": _NO_MODEL,
    "batch": {
        **_NO_MODEL,
        Subject.TORCHBENCH: "--batch requires a MODEL; for TorchBench folders, use --batch-size",
    },
    "seq_len": _NO_MODEL,
    **{key: {**_NO_MODEL, **_NO_DIRECTORY} for key in ("task", "base", "text", "image")},
    "allow_code": {
        **_NO_MODEL,
        Subject.MODULE: "--allow-code is not needed for a Python file, which always runs; omit it",
    },
    "save_as": _NO_MODEL,
    "torchbench": {},
    **dict.fromkeys(("batch_size", "auto_batch", "install"), _NO_FOLDERS),
}


def check(request: RunRequest) -> Subject:
    """Returns the subject that a request selects.

    Raises:
      UsageError: the subject does not accept one of the options.
    """
    subject = _subject(request)
    for name, refused in REFUSALS.items():
        value = request.suites if name == "suite" else getattr(request, name)
        if subject in refused and value not in (None, EVAL) and value:
            spelt = _SPELT.get(name, f"--{name.replace('_', '-')}")
            if name == "suite" and Path(value[0]).is_absolute():
                spelt = "--suite-dir"
            raise UsageError(refused[subject].format(option=spelt, model=request.model))
    return subject


def _subject(request: RunRequest) -> Subject:
    if request.torchbench:
        return Subject.TORCHBENCH
    model = request.model
    if model is None:
        return Subject.SUITE_FOLDER if request.suites else Subject.CATALOGUE
    from openxla.benchmark.user_models import OwnModule, UserModelError, place_of
    from openxla.benchmark.user_models.hugging_face import hub

    if model.startswith(hub.PREFIX):
        return Subject.DIRECTORY
    try:
        place = place_of(model, Path.cwd())
    except UserModelError as error:
        raise UsageError(str(error)) from error
    if isinstance(place, OwnModule):
        return Subject.MODULE
    return Subject.DIRECTORY if isinstance(place, Path) else Subject.PROGRAM


def rerun_command(result: Result, *more: str, suites: Sequence[str] = ()) -> str:
    """Returns a shell command that runs the case of a result again.

    Args:
      result: a result with any status.
      more: additional options for `cbs run`.
      suites: additional suites that the user specified.
    """
    definition = result.definition
    where = definition.environment
    # All texts are quoted, because results files are untrusted, and paths may contain spaces.
    raced = [shlex.join(["--env", f"{where.name}={where.python}"])] if where else []
    if result.measured.throughput:
        config = definition.model_parameters.get("config")
        words = [*(["--config", str(config)] if config else []), "--select", definition.model]
        return " ".join(["cbs bench run --fulltrace", shlex.join(words), *raced])
    operator = selection_of(result)
    given = (
        definition.input_source if definition.input_data.startswith(USER_INPUTS_PREFIX) else None
    )
    if given and any(Path(given).is_relative_to(suite) for suite in suites):
        given = None  # a folder's own inputs belong to its cases
    return " ".join(
        [
            f"cbs {'micro run' if operator else 'run'}",
            shlex.join(["--backend", f"{definition.backend}:{definition.compiler}"]),
            operator or _case_options(result, given, in_suite=bool(suites)),
            f"-device {shlex.quote(definition.device)} -o again.json",
            *more,
            *([f"--inputs {shlex.quote(given)}"] if given else []),
            *suite_options(suites),
            *raced,
        ]
    )


def suite_options(suites: Sequence[str]) -> list[str]:
    """Returns the options that select modules and folders with cases."""
    return [f"--suite{'-dir' * is_folder(suite)} {shlex.quote(suite)}" for suite in suites]


def _case_options(result: Result, given: str | None, *, in_suite: bool) -> str:
    """Returns the options that select the case.

    Args:
      result: a result of the case.
      given: a user's own inputs, if any.
      in_suite: whether the user's suites define the case, which may then be a user's model.
    """
    definition = result.definition
    parameters = definition.model_parameters
    if folder := parameters.get("folder"):
        return shlex.join(["--torchbench", str(folder), "-t", str(parameters.get("test", EVAL))])
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
        # The catalogue has no cases with a user's own inputs, so select the default inputs, which
        # they replace.
        name = f"models/{definition.model}/inputs/{INPUT_DATA_MODEL_DEFAULT}"
    return f"{'-t train ' if result.measured.training else ''}-name {shlex.quote(name)}"
