"""The cases of a run: those of a command, with its hooks, or those of a user's model."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import attrs

from comparative_benchmark.engine import preparation
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial
from comparative_benchmark.errors import UsageError
from comparative_benchmark.request import RunRequest
from comparative_benchmark.results.record import Result
from openxla.benchmark.def_types import BenchmarkCase

if TYPE_CHECKING:  # catalogue runs need no readers of foreign formats
    from openxla.benchmark.user_models import Definitions, Found, Wanted


@attrs.frozen(kw_only=True)
class Selection:
    """The cases of a command, with its hooks.

    Attributes:
      cases: cases to run.
      share_workers: see `RunSettings`.
      refuse: returns why a trial must not be run (status `unsupported`), None if it may be.
      before: returns lines to print before the first trial.
      after: called with all results; returns lines to print below them.
    """

    cases: Sequence[BenchmarkCase]
    share_workers: bool = False
    refuse: Callable[[Trial, RunSettings], str | None] = lambda *_: None
    before: Callable[[Sequence[Trial], RunSettings], Iterable[str]] = lambda *_: ()
    after: Callable[[Sequence[Result]], Iterable[str]] = lambda _: ()

    def admitted(self, trials: Iterable[Trial], settings: RunSettings) -> list[Trial]:
        """Returns the trials; `refused` gives the reason for those that must not be run."""
        return [
            attrs.evolve(
                trial,
                refused=trial.refused
                or self.refuse(trial, settings)
                or preparation.why_too_large(trial, settings),
            )
            for trial in trials
        ]


def brought_model(request: RunRequest) -> "Found | None":
    """Returns the cases of the user's model; None if the request names none.

    Raises:
      UsageError: the model cannot be measured.
    """
    from openxla.benchmark.user_models import BroughtError, found_bounded

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
    from openxla.benchmark.user_models import BroughtError, definitions

    if request.save_as is None:
        return None
    try:
        model = str(request.model)
        return definitions(model, _wanted(request), found.cases, request.save_as)
    except BroughtError as error:
        raise UsageError(str(error)) from error


def _wanted(request: RunRequest) -> "Wanted":
    from openxla.benchmark.user_models import Wanted

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
