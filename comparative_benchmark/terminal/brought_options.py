"""Models of the user: from a request to its cases."""

from typing import TYPE_CHECKING

from comparative_benchmark.request import RunRequest
from comparative_benchmark.terminal.options import UsageError

if TYPE_CHECKING:  # help is printed without the vocabulary of cases
    from openxla.benchmark.brought import Definitions, Found, Wanted


def brought_model(request: RunRequest) -> "Found | None":
    """Returns the cases of the user's model; None if the request names none.

    Raises:
      UsageError: it cannot be measured.
    """
    from openxla.benchmark.brought import BroughtError, found_bounded

    if request.model is None:
        return None
    try:
        return found_bounded(request.model, _wanted(request))
    except BroughtError as error:
        raise UsageError(str(error)) from error


def definitions_to_save(request: RunRequest, found: "Found") -> "Definitions | None":
    """Returns the definitions that `--save-as` writes; None without that option.

    Raises:
      UsageError: other files have its names.
    """
    from openxla.benchmark.brought import BroughtError, definitions

    if request.save_as is None:
        return None
    try:
        model = str(request.model)
        return definitions(model, _wanted(request), found.cases, request.save_as)
    except BroughtError as error:
        raise UsageError(str(error)) from error


def _wanted(request: RunRequest) -> "Wanted":
    from openxla.benchmark.brought import Wanted

    return Wanted(
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
