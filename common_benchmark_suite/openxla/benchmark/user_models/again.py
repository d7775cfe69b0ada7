"""How a brought model is named again, from what a results file says of it."""

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
    """What a results file says of a case.

    Attributes:
      model: its name.
      parameters: of it.
      framework: as users spell it.
      input_data: the name of its input.
      inputs_dir: that the user gave, if any.
    """

    model: str
    parameters: Parameters
    framework: str
    input_data: str
    inputs_dir: str | None = None

    def texts(self, *names: str) -> tuple[str, ...]:
        """Returns the texts of inputs, by the first of these parameters that there is."""
        found = next((self.parameters[name] for name in names if name in self.parameters), "")
        return tuple(filter(None, str(found).split("; ")))

    def sizes(self, name: str, word: str) -> tuple[int, ...]:
        """Returns the size that the user gave; none if it is the model's own, or was left out."""
        value = self.parameters.get(name)
        return (int(str(value)),) if f"{word}{value}" in self.model.split("_") else ()


def named_again(recorded: Recorded) -> tuple[str, Wanted] | None:
    """Returns what names a model, and how it was wanted; None if it was not brought."""
    parameters = recorded.parameters
    if "source_sha256" not in parameters:
        return None
    is_program, is_file = "program" in parameters, "callable" in parameters
    is_usual = recorded.input_data == testdata.INPUT_DATA_MODEL_DEFAULT.name
    # What a program says of its inputs is recorded as what a user wrote is.
    inputs = () if is_program and is_usual else recorded.texts("written", "inputs")
    # Where a user wrote numbers alone, no size is left to be given.
    has_sizes = "written" in parameters or not inputs
    wanted = Wanted(
        inputs=inputs,
        inputs_dir=Path(recorded.inputs_dir) if recorded.inputs_dir else None,
        # A program that says its type by itself has this one.
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
    """Returns the words after `cbs run` that name a model; None if it was not brought.

    A user's own arrays are not among them.
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
