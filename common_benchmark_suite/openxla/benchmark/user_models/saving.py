"""Saves a user's model as definitions in a folder, for use with `--suite-dir`."""

import filecmp
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import attrs

from openxla.benchmark.artifacts import user_inputs
from openxla.benchmark.def_types import BenchmarkCase
from openxla.benchmark.files import new_file
from openxla.benchmark.user_models.hugging_face import hub
from openxla.benchmark.user_models.places import OwnModule, place_of
from openxla.benchmark.user_models.programs.programs import ProgramFile
from openxla.benchmark.user_models.wanted import BroughtError, Wanted

_INPUTS = "inputs"
_TEXT = '''\
"""Cases that `cbs run MODEL --save-as` wrote; `cbs run --suite-dir` with this folder runs them."""

from pathlib import Path

from openxla.benchmark.user_models import Wanted, found

HERE = Path(__file__).resolve().parent

ALL_BENCHMARKS = found(
    {text},
    Wanted(
{fields}
    ),
).cases
'''


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
          BroughtError: a file with other content has appeared meanwhile.
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
        """Raises BroughtError if another file has the name of a file to write."""
        folder = self.file.parent
        if folder.exists() and not folder.is_dir():
            raise BroughtError(f"--save-as {folder} is a file, not a folder")
        others = [t for s, t in self._copies if t.exists() and not filecmp.cmp(s, t, shallow=False)]
        if self.file.exists() and self.file.read_bytes() != self.content.encode("ascii"):
            others.append(self.file)
        if others:
            raise BroughtError(
                f"--save-as: {others[0]} already exists with other content; remove it, or choose "
                "another folder"
            )


def definitions(
    text: str, wanted: Wanted, cases: Sequence[BenchmarkCase], folder: Path
) -> Definitions:
    """Returns the definitions of a model's cases.

    The model is named by a path relative to the folder if both are in one checkout, in the current
    directory or in the folder above; else by its absolute path. Input arrays are copied into the
    folder.

    Args:
      text: text that names the model, see `found`.
      wanted: options of the run.
      cases: cases that `found` returned.
      folder: where to put the definitions.

    Raises:
      BroughtError: another file has the name of one to write.
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
        given = user_inputs.read(wanted.folder / wanted.inputs_dir)
        target = folder / _INPUTS / given.data.name
        copies = [(file, target / file.name) for file in user_inputs.files_of(given.directory)]
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
        remark=f"{outside} is outside the project of {folder.name}, so its absolute path was "
        "saved, which works only on this machine"
        if outside
        else None,
        copies=copies,
    )
    result.check()
    return result


def _named(
    text: str, wanted: Wanted, cases: Sequence[BenchmarkCase], folder: Path
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
    start = "HERE" if outside or "site-packages" in place.root.parts else start
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
