"""Models of the user: from the options of `cbs run MODEL` to its cases."""

import argparse
from typing import TYPE_CHECKING

from comparative_benchmark.request import EVAL
from comparative_benchmark.terminal.options import UsageError

if TYPE_CHECKING:  # help is printed without the vocabulary of cases
    from openxla.benchmark.brought import Definitions, Found, Wanted


def brought_model(options: argparse.Namespace) -> "Found | None":
    """Returns the cases of the model that options name; None if they name none.

    Raises:
      UsageError: it cannot be measured.
    """
    from openxla.benchmark.brought import BroughtError, found_bounded

    model = getattr(options, "model", None)
    if model is None:
        return None
    try:
        return found_bounded(model, _wanted(options))
    except BroughtError as error:
        raise UsageError(str(error)) from error


def definitions_to_save(options: argparse.Namespace, found: "Found") -> "Definitions | None":
    """Returns what `--save-as` asks for; None where nobody does.

    Raises:
      UsageError: other files have its names.
    """
    from openxla.benchmark.brought import BroughtError, definitions

    if getattr(options, "save_as", None) is None:
        return None
    try:
        return definitions(options.model, _wanted(options), found.cases, options.save_as)
    except BroughtError as error:
        raise UsageError(str(error)) from error


def _wanted(options: argparse.Namespace) -> "Wanted":
    from openxla.benchmark.brought import Wanted

    return Wanted(
        inputs=tuple(options.input),
        inputs_dir=options.inputs,
        text=options.text,
        image=options.image,
        data_types=options.dtype,
        batch_sizes=options.batch,
        seq_lens=options.seq_len,
        framework=options.framework,
        task=options.task,
        base=options.base,
        allow_code=options.allow_code,
        test=getattr(options, "test", EVAL),
    )
