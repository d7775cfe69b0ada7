"""Rebuilds the command that names a user's model, from its record in a results file."""

import shlex
from pathlib import Path

import attrs

from openxla.benchmark import testdata
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import checkpoints
from openxla.benchmark.user_models.hugging_face import hub
from openxla.benchmark.user_models.wanted import Wanted, framework_of


@attrs.frozen(kw_only=True)
class Recorded:
    """The record of a case in a results file.

    Attributes:
      model: name of the model.
      parameters: the model's parameters.
      framework: as users spell it.
      input_data: name of the input.
      inputs_dir: directory of the user's inputs, if any.
    """

    model: str
    parameters: Parameters
    framework: str
    input_data: str
    inputs_dir: str | None = None

    def texts(self, *names: str) -> tuple[str, ...]:
        """Returns the input texts stored under the first of these parameters that exists."""
        found = next((self.parameters[name] for name in names if name in self.parameters), "")
        return tuple(filter(None, str(found).split("; ")))

    def sizes(self, name: str, word: str) -> tuple[int, ...]:
        """Returns the size that the user gave; empty if omitted or the model's default."""
        value = self.parameters.get(name)
        return (int(str(value)),) if f"{word}{value}" in self.model.split("_") else ()


def named_again(recorded: Recorded) -> tuple[str, Wanted] | None:
    """Returns the text that names a model, and its options; None if it is not a user's model."""
    parameters = recorded.parameters
    if "source_sha256" not in parameters:
        return None
    is_program, is_file = "program" in parameters, "callable" in parameters
    is_usual = recorded.input_data == testdata.INPUT_DATA_MODEL_DEFAULT.name
    # Inputs read from a program are recorded in the same way as inputs that a user wrote.
    inputs = () if is_program and is_usual else recorded.texts("written", "inputs")
    # If the user wrote all sizes as numbers, none is left to choose.
    has_sizes = "written" in parameters or not inputs
    wanted = Wanted(
        inputs=inputs,
        inputs_dir=Path(recorded.inputs_dir) if recorded.inputs_dir else None,
        # The program itself determines this type.
        data_types=(str(parameters["data_type"]),),
        batch_sizes=recorded.sizes("batch_size", "BATCH") if has_sizes else (),
        seq_lens=recorded.sizes("seq_len", "SEQLEN") if has_sizes else (),
        task=str(parameters["task"]) if "task" in parameters else None,
        base=Path(str(parameters["base"])) if "base" in parameters else None,
        allow_code=parameters.get("pickled") is True,
        test="train" if "train" in parameters and is_file else "eval",
    )
    if is_program:
        return str(parameters["source"]), wanted
    wanted = attrs.evolve(wanted, framework=framework_of(recorded.framework, "the results").value)
    if is_file:
        return f"{parameters['module'] or parameters['source']}:{parameters['callable']}", wanted
    if "hub" in parameters:
        return f"{hub.PREFIX}{parameters['hub']}", wanted
    is_covered = parameters.get("checkpoint") == checkpoints.DIRECTORY
    return str(parameters["model_name" if is_covered else "source"]), wanted


def command_words(recorded: Recorded) -> str | None:
    """Returns the words after `cbs run` that name a model; None if it is not a user's model.

    A user's own arrays are not included.
    """
    found = named_again(recorded)
    if found is None:
        return None
    model, wanted = found
    words = [model, *(["-t", "train"] if wanted.test == "train" else [])]
    if wanted.framework or wanted.data_types != ("fp32",):
        words += ["--dtype", wanted.data_types[0]]
    if wanted.framework:
        words += ["--framework", wanted.framework]
    words += [word for text in wanted.inputs for word in ("--input", text)]
    for option, values in (("--batch", wanted.batch_sizes), ("--seq-len", wanted.seq_lens)):
        words += [word for value in values for word in (option, str(value))]
    if wanted.task:
        words += ["--task", wanted.task]
    if wanted.base:
        words += ["--base", str(wanted.base)]
    return shlex.join(words + ["--allow-code"] * wanted.allow_code)
