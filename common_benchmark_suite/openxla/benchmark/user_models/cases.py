"""Makes cases of users' models, saves them as definitions, and rebuilds their commands.

Other packages enter here. Definitions in a folder are for `--suite-dir`; the command that names a
user's model is rebuilt from its record in a results file.
"""

import contextlib
import filecmp
import itertools
import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from openxla.benchmark import bounded, testdata
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.def_types import (
    BenchmarkCase,
    DefinitionError,
    ModelFrameworkType,
    Parameters,
)
from openxla.benchmark.files import new_file
from openxla.benchmark.models import checkpoints
from openxla.benchmark.user_models.hugging_face import hub, hugging_face
from openxla.benchmark.user_models.hugging_face.companion_formats import read_adapter
from openxla.benchmark.user_models.model_options import (
    ModelCases,
    ModelOptions,
    UserModelError,
    framework_of,
)
from openxla.benchmark.user_models.places import (
    OwnModule,
    ProgramFolder,
    folder_of_programs,
    path_of,
    place_of,
)
from openxla.benchmark.user_models.programs import programs
from openxla.benchmark.user_models.programs.programs import ProgramFile
from openxla.benchmark.user_models.python_files import own_modules
from openxla.benchmark.user_models.python_files.outline import INSTALLED

_INPUTS = "inputs"
_TEXT = '''\
"""Cases saved by `cbs run MODEL --save-as`; run them with `cbs run --suite-dir FOLDER`."""

from pathlib import Path

from openxla.benchmark.user_models import ModelOptions, find_cases

HERE = Path(__file__).resolve().parent

ALL_BENCHMARKS = find_cases(
    {text},
    ModelOptions(
{fields}
    ),
).cases
'''

# Slower disks do not get more time.
_SLOWEST_BYTES_PER_S = 50e6
_MOST_FILES = 10_000


@attrs.frozen(kw_only=True)
class Definitions:
    """Definitions that can be written, because their names are free.

    Attributes:
      file: path of the definitions.
      content: content of that file.
      remark: why the folder cannot be used elsewhere; None if it can.
    """

    file: Path
    content: str
    remark: str | None
    _copies: Sequence[tuple[Path, Path]]

    def write(self) -> None:
        """Writes the missing files, the definitions last.

        Raises:
          UserModelError: a file with other content has appeared meanwhile.
          OSError: the folder cannot be written.
        """
        self.check()
        for source, target in self._copies:
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                with new_file(target, overwrite=False) as temporary:
                    shutil.copyfile(source, temporary)
        if not self.file.exists():
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with new_file(self.file, overwrite=False) as temporary:
                temporary.write_text(self.content, encoding="ascii")

    def check(self) -> None:
        """Raises UserModelError if another file has the name of a file to write."""
        folder = self.file.parent
        if folder.exists() and not folder.is_dir():
            raise UserModelError(f"--save-as {folder} is a file, not a folder")
        others = [t for s, t in self._copies if t.exists() and not filecmp.cmp(s, t, shallow=False)]
        if self.file.exists() and self.file.read_bytes() != self.content.encode("ascii"):
            others.append(self.file)
        if others:
            raise UserModelError(
                f"--save-as: {others[0]} already exists with other content; remove it, or choose "
                "another folder"
            )


def definitions(
    text: str, wanted: ModelOptions, cases: Sequence[BenchmarkCase], folder: Path
) -> Definitions:
    """Returns the definitions of a model's cases.

    The model is named by a path relative to the folder if both are in one checkout, in the current
    directory or in the folder above; else by its absolute path. Input arrays are copied into the
    folder.

    Args:
      text: text that names the model, see `find_cases`.
      wanted: options of the run.
      cases: cases that `find_cases` returned.
      folder: where to put the definitions.

    Raises:
      UserModelError: another file has the name of one to write.
    """
    folder = folder.absolute()
    path, name, start, outside = _named(text, wanted, cases, folder)
    fields = {
        key: ascii(value)
        for key, value in attrs.asdict(wanted).items()
        if key not in ("inputs_dir", "text", "image", "folder", "base")
        and value
        and value != "eval"
    }
    fields["folder"] = start
    if wanted.base is not None:
        start, written, base_outside = _written((wanted.folder / wanted.base).absolute(), folder)
        fields["base"] = f"{start} / {written!a}"
        outside = outside or base_outside
    copies: list[tuple[Path, Path]] = []
    if wanted.inputs_dir is not None:
        given = array_files.read_user_inputs(wanted.folder / wanted.inputs_dir)
        target = folder / _INPUTS / given.data.name
        copies = [
            (file, target / file.name) for file in array_files.user_input_files(given.directory)
        ]
        fields["inputs_dir"] = f"HERE / {_INPUTS!r} / {target.name!r}"
    for key, file in (("text", wanted.text), ("image", wanted.image)):
        if file is not None:
            target = folder / _INPUTS / file.name
            copies = [(wanted.folder / file, target)]
            fields[key] = f"HERE / {_INPUTS!r} / {target.name!a}"
    lines = [f"        {key}={value}," for key, value in fields.items()]
    result = Definitions(
        file=folder / f"{name}_definitions.py",
        content=_TEXT.format(text=path, fields="\n".join(lines)),
        remark=f"{outside} is outside {folder.name}'s project, so its absolute path was "
        "saved, which works only on this machine"
        if outside
        else None,
        copies=copies,
    )
    result.check()
    return result


def _named(
    text: str, wanted: ModelOptions, cases: Sequence[BenchmarkCase], folder: Path
) -> tuple[str, str, str, Path | None]:
    """Returns the model's name in code, the file name, the base of paths, and outside files."""
    if text.startswith(hub.PREFIX):
        name = str(cases[0].model.model_parameters["hub"])
        return ascii(f"{hub.PREFIX}{name}"), _file_stem(name.partition("@")[0]), "HERE", None
    place = place_of(text, wanted.folder)
    if not isinstance(place, OwnModule):
        path = place if isinstance(place, Path) else place.path
        start, written, outside = _written(path, folder)
        stem = path.name.replace(".", "_") if isinstance(place, ProgramFile) else path.name
        return ascii(written), _file_stem(stem), start, outside
    made_by = cases[0].model.model_parameters["callable"]
    if not place.module:
        start, written, outside = _written(place.file, folder)
        stem = f"{place.file.stem}_{place.callable}"
        return ascii(f"{written}:{made_by}"), _file_stem(stem), start, outside
    # A module outside the checkout is installed, here and elsewhere.
    start, _, outside = _written(place.root / "_", folder)
    start = "HERE" if outside or not INSTALLED.isdisjoint(place.root.parts) else start
    stem = _file_stem(f"{place.module}_{place.callable}")
    return ascii(f"{place.module}:{made_by}"), stem, start, None


def _written(path: Path, folder: Path) -> tuple[str, str, Path | None]:
    """Returns a path's base, as code; the rest of it; and the path again if it is outside."""
    # Keep the name of a symbolic link, because a program is called by it.
    path, here = path.parent.resolve() / path.name, folder.resolve()
    checkouts = [above for above in (here, *here.parents) if (above / ".git").exists()]
    around = [here.parent, *checkouts[:1]]
    if Path.cwd() in here.parents:
        around.append(Path.cwd())
    if not any(path.is_relative_to(above) for above in around):
        return "HERE", str(path), path
    if path.is_relative_to(here):
        return "HERE", str(path.relative_to(here)), None
    up = os.path.relpath(path.parent, here)
    return f"(HERE / {up!a}).resolve()", path.name, None


def _file_stem(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "model"


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
        value = next((self.parameters[name] for name in names if name in self.parameters), "")
        return tuple(filter(None, str(value).split("; ")))

    def sizes(self, name: str, word: str) -> tuple[int, ...]:
        """Returns the size that the user gave; empty if omitted or the model's default."""
        value = self.parameters.get(name)
        return (int(str(value)),) if f"{word}{value}" in self.model.split("_") else ()


def recorded_model(recorded: Recorded) -> tuple[str, ModelOptions] | None:
    """Returns the text that names a model, and its options; None if it is not a user's model."""
    parameters = recorded.parameters
    if "source_sha256" not in parameters:
        return None
    is_program, is_file = "program" in parameters, "callable" in parameters
    is_usual = recorded.input_data == testdata.INPUT_DATA_MODEL_DEFAULT.name
    # Inputs read from a program are recorded in the same way as inputs that a user wrote.
    inputs = () if is_program and is_usual else recorded.texts("written", "inputs")
    # If the user wrote all sizes as numbers, none is left to choose, except of the default inputs
    # of a directory's model.
    has_sizes = not inputs or not parameters.keys().isdisjoint(("written", "model_class"))
    wanted = ModelOptions(
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
        recorded=True,
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
    pair = recorded_model(recorded)
    if pair is None:
        return None
    model, wanted = pair
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


def find_cases_bounded(text: str, wanted: ModelOptions) -> ModelCases:
    """Returns the same as `find_cases`, but reads the files in a process with limits.

    Raises:
      UserModelError: see `find_cases`; or reading takes too much time or memory.
    """
    if text.startswith(hub.PREFIX):
        _given_inputs(wanted)
        got = hub.fetched(text, allow_code=wanted.allow_code)
        return _bounded(got.directory, find_cases_on_hub, text, wanted, got)
    path = path_of(text, wanted.folder)
    if programs_there := folder_of_programs(path):
        return _of_each(programs_there, wanted, find_cases_bounded)
    return _bounded(path, find_cases, text, wanted)


def _bounded(
    path: Path, function: Callable[..., ModelCases], text: str, wanted: ModelOptions, *more: object
) -> ModelCases:
    folders = [path]
    # The function itself reports an adapter that is malformed or lacks its base.
    with contextlib.suppress(OSError, RuntimeError, UserModelError):
        if adapter := read_adapter(path):
            folders.append(adapter.base(wanted.base and wanted.folder / wanted.base))
    deadline_s = bounded.DEADLINE_S + sum(map(_stored_bytes, folders)) / _SLOWEST_BYTES_PER_S
    try:
        return bounded.call(function, text, wanted, *more, deadline_s=deadline_s)
    except UserModelError:
        raise
    except (bounded.TooCostlyError, DefinitionError) as error:
        raise UserModelError(f"{text} cannot be read: {error}") from error


def _stored_bytes(path: Path) -> int:
    """Returns the size on disk of the data to hash: a folder, or a file and its neighbours.

    Links count with the size of their files, because the hub's cache consists of links.
    """
    total = 0
    with contextlib.suppress(OSError):  # e.g. a name that is too long
        files = path.rglob("*") if path.is_dir() else path.parent.glob("*")
        for file in itertools.islice(files, _MOST_FILES):
            with contextlib.suppress(OSError):
                total += file.stat().st_blocks * 512
    return total


def find_cases_on_hub(text: str, wanted: ModelOptions, got: hub.Fetched) -> ModelCases:
    """Returns the cases of a fetched directory; see `find_cases`."""
    given = _given_inputs(wanted)
    every = hugging_face.cases_of(got.directory, wanted, given, hub_name=got.name)
    return _in_framework(text, every, wanted)


def find_cases(text: str, wanted: ModelOptions) -> ModelCases:
    """Returns the cases of a model, one for each framework, data type, batch size and length.

    The model is not executed. Models on the hub are downloaded.

    Args:
      text: `path/to/file.py`, `path/to/file.py:callable`, `package.module:callable`, a directory in
        Hugging Face's format, one on the hub (`hub:owner/name@revision`), an exported program, or a
        folder of programs.
      wanted: options of the run.

    Raises:
      UserModelError: the model cannot be measured; the message gives the reason and the remedy.
    """
    if text.startswith(hub.PREFIX):
        return find_cases_on_hub(text, wanted, hub.fetched(text, allow_code=wanted.allow_code))
    given = _given_inputs(wanted)
    place = place_of(text, wanted.folder)
    if isinstance(place, ProgramFolder):
        return _of_each(place, wanted, find_cases)
    if (named := _real_input(wanted)) and not isinstance(place, Path):
        raise UserModelError(f"{named} requires a Hugging Face directory, but {text} is not one")
    if isinstance(place, OwnModule):
        every = own_modules.cases_of(place, wanted, given)
    elif isinstance(place, ProgramFile):
        every = ModelCases(cases=programs.cases(place, wanted, given))
    else:
        every = hugging_face.cases_of(place, wanted, given)
    return _in_framework(text, every, wanted)


def _of_each(
    folder: ProgramFolder, wanted: ModelOptions, find: Callable[[str, ModelOptions], ModelCases]
) -> ModelCases:
    """Returns the cases of all programs in a folder; a remark names programs that cannot run."""
    _given_inputs(wanted)
    cases: dict[str, BenchmarkCase] = {}
    remarks = []
    for file in folder.files:
        try:
            one = find(str(file), wanted)
            if same := [case.name for case in one.cases if case.name in cases]:
                raise UserModelError(f"the case {same[0]} already exists; pass this file by itself")
        except UserModelError as error:
            remarks.append(f"{file.name} is left out: {error}")
            continue
        cases |= {case.name: case for case in one.cases}
        remarks += one.remarks
    if not cases:
        raise UserModelError(f"{folder.path}: none of its programs can be run: {remarks[0]}")
    return ModelCases(cases=list(cases.values()), remarks=remarks)


def _in_framework(text: str, every: ModelCases, wanted: ModelOptions) -> ModelCases:
    """Returns the cases in the requested framework, or all cases if none is requested."""
    if wanted.framework is None:
        return every
    kinds = [framework_of(name, "--framework") for name in wanted.framework.split(",")]
    chosen = [case for case in every.cases if _framework(case) in kinds]
    if not chosen:
        there = ", ".join(sorted({_framework(case).value for case in every.cases}))
        why = "".join(f": {remark}" for remark in every.remarks)
        raise UserModelError(f"{text} runs only in {there}, not in {wanted.framework}{why}")
    return attrs.evolve(every, cases=chosen)


def _framework(case: BenchmarkCase) -> ModelFrameworkType:
    return case.model.model_impl.framework_type


def _given_inputs(wanted: ModelOptions) -> array_files.UserInputs | None:
    if wanted.text is not None and wanted.image is not None:
        raise UserModelError("--text and --image cannot be combined")
    if wanted.inputs_dir is None:
        return None
    if named := _real_input(wanted):
        raise UserModelError(f"{named} and --inputs cannot be combined")
    if wanted.inputs:
        raise UserModelError("--input and --inputs cannot be combined")
    try:
        return array_files.read_user_inputs(wanted.folder / wanted.inputs_dir)
    except array_files.UserInputError as error:
        raise UserModelError(f"--inputs: {error}") from error


def _real_input(wanted: ModelOptions) -> str | None:
    """Returns the option that supplies a text or a picture; None without one."""
    given = {"--text": wanted.text, "--image": wanted.image}
    return next((option for option, file in given.items() if file is not None), None)
