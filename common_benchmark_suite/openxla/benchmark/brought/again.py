"""How a brought model is named again, from what a results file says of it."""

import shlex

from openxla.benchmark.brought.hugging_face import TASKS
from openxla.benchmark.def_types import Parameters
from openxla.benchmark.models import checkpoints


def command_words(parameters: Parameters) -> str | None:
    """Returns the words after `cbs run` that name a model; None if it was not brought.

    Args:
      parameters: of the model, as recorded.
    """
    if "source_sha256" not in parameters:
        return None
    words = ["--dtype", str(parameters["data_type"])]
    if "callable" in parameters:
        source = parameters["module"] or parameters["source"]
        model = f"{source}:{parameters['callable']}"
        written = str(parameters.get("inputs", ""))
        words += [word for text in filter(None, written.split("; ")) for word in ("--input", text)]
        return shlex.join([model, *words])
    is_covered = parameters.get("checkpoint") == checkpoints.DIRECTORY
    model = str(parameters["model_name" if is_covered else "source"])
    for option, key in (("--batch", "batch_size"), ("--seq-len", "seq_len")):
        if key in parameters:
            words += [option, str(parameters[key])]
    by_class = {auto_class: task for task, (auto_class, _) in TASKS.items()}
    if task := by_class.get(str(parameters.get("model_class"))):
        words += ["--task", task]
    return shlex.join([model, *words])
