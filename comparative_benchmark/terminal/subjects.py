"""Options that each kind of subject accepts; all others are refused with one line."""

import enum
from collections.abc import Mapping
from pathlib import Path

from comparative_benchmark.errors import UsageError
from comparative_benchmark.request import EVAL, RunRequest

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
    "{option} requires a Hugging Face directory, and {model} is not one",
)
_NO_FOLDERS = dict.fromkeys(
    (*_CASES, *_MODELS), "{option}: only for TorchBench folders; add --torchbench PATH"
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
        "file that loads it and defines loss(model, *inputs)",
        Subject.PROGRAM: "-t train: an exported program cannot be trained; pass the Python file "
        "that makes the model",
    },
    "framework": {},
    "inputs": {
        Subject.TORCHBENCH: "--torchbench folders define their own inputs; omit --inputs",
    },
    "input": _NO_MODEL,
    "dtype": _NO_MODEL,
    "batch": {
        **_NO_MODEL,
        Subject.TORCHBENCH: "--batch requires a MODEL; TorchBench folders take --batch-size",
    },
    "seq_len": _NO_MODEL,
    "task": {**_NO_MODEL, **_NO_DIRECTORY},
    "base": {**_NO_MODEL, **_NO_DIRECTORY},
    "text": {**_NO_MODEL, **_NO_DIRECTORY},
    "image": {**_NO_MODEL, **_NO_DIRECTORY},
    "allow_code": {
        **_NO_MODEL,
        Subject.MODULE: "--allow-code: a Python file is code anyway, and runs in a worker; omit it",
    },
    "save_as": _NO_MODEL,
    "torchbench": {},
    "batch_size": _NO_FOLDERS,
    "auto_batch": _NO_FOLDERS,
    "install": _NO_FOLDERS,
}


def check(request: RunRequest) -> Subject:
    """Returns the subject that a request selects.

    Raises:
      UsageError: the subject does not take one of the options.
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
