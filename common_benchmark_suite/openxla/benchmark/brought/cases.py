"""From what was brought to benchmark cases: the one door."""

from openxla.benchmark.artifacts import user_inputs
from openxla.benchmark.brought import hugging_face, own_modules
from openxla.benchmark.brought.places import OwnModule, place_of
from openxla.benchmark.brought.variants import framework_of
from openxla.benchmark.brought.wanted import BroughtError, Wanted
from openxla.benchmark.def_types import BenchmarkCase


def cases_of(text: str, wanted: Wanted) -> list[BenchmarkCase]:
    """Returns the cases of a model: one for each framework that it is in, type, batch and length.

    Nothing of what was brought is executed.

    Args:
      text: `path/to/file.py`, `path/to/file.py:callable`, `package.module:callable`, or a directory
        in Hugging Face's format.
      wanted: how it is to be run.

    Raises:
      BroughtError: it cannot be measured; the message says what, where and what to do.
    """
    place = place_of(text, wanted.folder)
    given = _given_inputs(wanted)
    if isinstance(place, OwnModule):
        found = own_modules.cases(place, wanted, given)
    else:
        found = hugging_face.cases(place, wanted, given)
    if wanted.framework is None:
        return found
    framework = framework_of(wanted.framework, "--framework")
    chosen = [case for case in found if case.model.model_impl.framework_type is framework]
    if not chosen:
        there = ", ".join(sorted({c.model.model_impl.framework_type.value for c in found}))
        raise BroughtError(f"{text} is in {there}, not in {wanted.framework}")
    return chosen


def _given_inputs(wanted: Wanted) -> user_inputs.UserInputs | None:
    if wanted.inputs_dir is None:
        return None
    if wanted.inputs:
        raise BroughtError("--input and --inputs exclude each other")
    try:
        return user_inputs.read(wanted.folder / wanted.inputs_dir)
    except user_inputs.UserInputError as error:
        raise BroughtError(f"--inputs: {error}") from error
