"""How a brought model is named again, from what a results file says of it."""

import shlex
from pathlib import Path

from openxla.benchmark.brought import hub
from openxla.benchmark.brought.variants import framework_of
from openxla.benchmark.brought.wanted import Wanted
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import checkpoints


def named_again(
    parameters: Parameters, framework: str, inputs_dir: str | None = None
) -> tuple[str, Wanted] | None:
    """Returns what names a model, and how it was wanted; None if it was not brought.

    Args:
      parameters: of the model, as recorded.
      framework: of the case, as users spell it.
      inputs_dir: that the user gave, if any.
    """
    if "source_sha256" not in parameters:
        return None
    is_file = "callable" in parameters
    if "program" in parameters:
        return str(parameters["source"]), _program_wanted(parameters, inputs_dir)
    is_covered = parameters.get("checkpoint") == checkpoints.DIRECTORY
    batch, seq = (parameters.get(key) for key in ("batch_size", "seq_len"))
    wanted = Wanted(
        inputs=tuple(filter(None, str(parameters.get("inputs", "")).split("; "))),
        inputs_dir=Path(inputs_dir) if inputs_dir else None,
        data_types=(str(parameters["data_type"]),),
        # Of a file, they are in the inputs already.
        batch_sizes=() if is_file or batch is None else (int(batch),),
        seq_lens=() if is_file or seq is None else (int(seq),),
        framework=framework_of(framework, "the results").value,
        task=str(parameters["task"]) if "task" in parameters else None,
        allow_pickle=parameters.get("pickled") is True,
    )
    if is_file:
        source = parameters["module"] or parameters["source"]
        return f"{source}:{parameters['callable']}", wanted
    if "hub" in parameters:
        return f"{hub.PREFIX}{parameters['hub']}", wanted
    return str(parameters["model_name" if is_covered else "source"]), wanted


def command_words(
    parameters: Parameters, framework: str, inputs_dir: str | None = None
) -> str | None:
    """Returns the words after `cbs run` that name a model; None if it was not brought.

    Args:
      parameters: of the model, as recorded.
      framework: of the case, as users spell it.
      inputs_dir: that the user gave, if any; it is not among the words.
    """
    found = named_again(parameters, framework, inputs_dir)
    if found is None:
        return None
    model, wanted = found
    words = [model]
    if wanted.framework or wanted.data_types != ("fp32",):
        words += ["--dtype", wanted.data_types[0]]
    if wanted.framework:
        words += ["--framework", wanted.framework]
    words += [word for text in wanted.inputs for word in ("--input", text)]
    for option, values in (("--batch", wanted.batch_sizes), ("--seq-len", wanted.seq_lens)):
        words += [word for value in values for word in (option, str(value))]
    if wanted.task:
        words += ["--task", wanted.task]
    return shlex.join(words + ["--allow-pickle"] * wanted.allow_pickle)


def _program_wanted(parameters: Parameters, inputs_dir: str | None) -> Wanted:
    """Returns how a program was wanted, which has one type and one framework."""
    written = tuple(filter(None, str(parameters.get("inputs", "")).split("; ")))
    batch, seq = (parameters.get(key) for key in ("batch_size", "seq_len"))
    # Inputs that are written out hold batch and length already.
    return Wanted(
        inputs=written,
        inputs_dir=Path(inputs_dir) if inputs_dir else None,
        batch_sizes=(int(batch),) if batch is not None and not written else (),
        seq_lens=(int(seq),) if seq is not None and not written else (),
        # A program that says its type by itself has this one.
        data_types=(str(parameters["data_type"]),),
        allow_pickle=parameters.get("pickled") is True,
    )
