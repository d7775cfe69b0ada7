"""Makes benchmark cases of users' models; other packages enter here."""

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import attrs

from openxla.benchmark import bounded
from openxla.benchmark.artifacts import user_inputs
from openxla.benchmark.def_types import BenchmarkCase, DefinitionError, ModelFrameworkType
from openxla.benchmark.user_models.hugging_face import hub, hugging_face
from openxla.benchmark.user_models.places import (
    OwnModule,
    ProgramFolder,
    folder_of_programs,
    place_of,
)
from openxla.benchmark.user_models.programs import programs
from openxla.benchmark.user_models.programs.programs import ProgramFile
from openxla.benchmark.user_models.python_files import own_modules
from openxla.benchmark.user_models.wanted import BroughtError, Found, Wanted, framework_of

# Slower disks do not get more time.
_SLOWEST_BYTES_PER_S = 50e6
_MOST_FILES = 10_000


def found_bounded(text: str, wanted: Wanted) -> Found:
    """Returns the same as `found`, but reads the files in a process with limits.

    Raises:
      BroughtError: see `found`; or reading takes too much time or memory.
    """
    if text.startswith(hub.PREFIX):
        _given_inputs(wanted)
        got = hub.fetched(text, allow_code=wanted.allow_code)
        return _bounded(text, got.directory, found_on_hub, text, wanted, got)
    if programs_there := folder_of_programs(wanted.folder / text):
        return _of_each(programs_there, wanted, found_bounded)
    return _bounded(text, wanted.folder / text, found, text, wanted)


def _bounded(text: str, path: Path, function: Callable[..., Found], *arguments: object) -> Found:
    deadline_s = bounded.DEADLINE_S + _stored_bytes(path) / _SLOWEST_BYTES_PER_S
    try:
        return bounded.call(function, *arguments, deadline_s=deadline_s)
    except BroughtError:
        raise
    except (bounded.TooCostlyError, DefinitionError) as error:
        raise BroughtError(f"{text} cannot be read: {error}") from error


def _stored_bytes(path: Path) -> int:
    """Returns the size on disk of the data to hash: a folder, or a file and its neighbours."""
    total = 0
    with contextlib.suppress(OSError):  # e.g. a name that is too long
        folder, files = (
            (path, path.rglob("*")) if path.is_dir() else (path.parent, path.parent.glob("*"))
        )
        for file in itertools.islice(files, _MOST_FILES) if folder.is_dir() else ():
            with contextlib.suppress(OSError):
                total += file.lstat().st_blocks * 512
    return total


def found_on_hub(text: str, wanted: Wanted, got: hub.Fetched) -> Found:
    """Returns the cases of a fetched directory; see `found`."""
    given = _given_inputs(wanted)
    every = hugging_face.found(got.directory, wanted, given, hub_name=got.name)
    return _in_framework(text, every, wanted)


def found(text: str, wanted: Wanted) -> Found:
    """Returns the cases of a model, one for each framework, data type, batch size and length.

    The model is not executed. Models on the hub are downloaded.

    Args:
      text: `path/to/file.py`, `path/to/file.py:callable`, `package.module:callable`, a directory in
        Hugging Face's format, one on the hub (`hub:owner/name@revision`), an exported program, or a
        folder of programs.
      wanted: options of the run.

    Raises:
      BroughtError: the model cannot be measured; the message gives the reason and the remedy.
    """
    if text.startswith(hub.PREFIX):
        return found_on_hub(text, wanted, hub.fetched(text, allow_code=wanted.allow_code))
    given = _given_inputs(wanted)
    place = place_of(text, wanted.folder)
    if isinstance(place, ProgramFolder):
        return _of_each(place, wanted, found)
    if (named := _real_input(wanted)) and not isinstance(place, Path):
        raise BroughtError(f"{named} requires a Hugging Face directory, and {text} is not one")
    if isinstance(place, OwnModule):
        every = own_modules.found(place, wanted, given)
    elif isinstance(place, ProgramFile):
        every = Found(cases=programs.cases(place, wanted, given))
    else:
        every = hugging_face.found(place, wanted, given)
    return _in_framework(text, every, wanted)


def _of_each(folder: ProgramFolder, wanted: Wanted, find: Callable[[str, Wanted], Found]) -> Found:
    """Returns the cases of all programs in a folder; a remark names programs that cannot run."""
    _given_inputs(wanted)
    cases: dict[str, BenchmarkCase] = {}
    remarks = []
    for file in folder.files:
        try:
            one = find(str(file), wanted)
            if same := [case.name for case in one.cases if case.name in cases]:
                raise BroughtError(f"another file is called {same[0]}, too; pass it by itself")
        except BroughtError as error:
            remarks.append(f"{file.name} is left out: {error}")
            continue
        cases |= {case.name: case for case in one.cases}
        remarks += one.remarks
    if not cases:
        raise BroughtError(
            f"{folder.path}: none of its {len(folder.files)} programs can be run: {remarks[0]}"
        )
    return Found(cases=list(cases.values()), remarks=remarks)


def _in_framework(text: str, every: Found, wanted: Wanted) -> Found:
    """Returns the cases in the requested framework, or all cases if none is requested."""
    if wanted.framework is None:
        return every
    framework = framework_of(wanted.framework, "--framework")
    chosen = [case for case in every.cases if _framework(case) is framework]
    if not chosen:
        there = ", ".join(sorted({_framework(case).value for case in every.cases}))
        why = "".join(f": {remark}" for remark in every.remarks)
        raise BroughtError(f"{text} runs in {there}, not in {framework.value}{why}")
    return attrs.evolve(every, cases=chosen)


def _framework(case: BenchmarkCase) -> ModelFrameworkType:
    return case.model.model_impl.framework_type


def _given_inputs(wanted: Wanted) -> user_inputs.UserInputs | None:
    if wanted.text is not None and wanted.image is not None:
        raise BroughtError("--text and --image exclude each other")
    if wanted.inputs_dir is None:
        return None
    if named := _real_input(wanted):
        raise BroughtError(f"{named} and --inputs exclude each other")
    if wanted.inputs:
        raise BroughtError("--input and --inputs exclude each other")
    try:
        return user_inputs.read(wanted.folder / wanted.inputs_dir)
    except user_inputs.UserInputError as error:
        raise BroughtError(f"--inputs: {error}") from error


def _real_input(wanted: Wanted) -> str | None:
    """Returns the option that supplies a text or a picture; None without one."""
    given = {"--text": wanted.text, "--image": wanted.image}
    return next((option for option, file in given.items() if file is not None), None)
