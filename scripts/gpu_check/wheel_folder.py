"""The folder of wheels for a bare machine: its content, and the choice of packages from it.

`./scripts/gpu_wheels.sh` makes it:

    CONTENTS.json   {"python": "3.12", "groups": {"core": ["attrs-....whl", ...]}, "programs": true}
    *.whl           one version of each package, from the locks
    programs/       a store of tiny models that IREE compiled for CUDA

pip does not choose the packages. Some declare dependencies that the suite does not import and that
weigh more than all others together (`UNUSED`). The folder leaves these out, and pip would refuse
it. A bare machine may also lack pip. The locks agree with each other, so there is one version of
each package, and `choose` is sufficient.

Only the standard library is imported before `import_packaging`, because this module runs before any
dependency of the suite is installed.
"""

import importlib.metadata
import importlib.util
import json
import re
import stat
import sys
import zipfile
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.requirements import Requirement

CONTENTS = "CONTENTS.json"
PROGRAMS = "programs"
CORE = "core"

# In order of use. The core's requirements are the `dependencies` of pyproject.toml. They pin no
# versions, because the machine's versions are measured.
GROUPS: Mapping[str, tuple[str, ...]] = {
    CORE: (),
    "tests": ("pytest>=8.3",),
    "page": ("jinja2>=3.1",),
    "jax-models": ("jax", "flax"),
    "torch-models": ("torch", "transformers"),
    "iree": ("iree-base-runtime",),
}

# Declared dependencies that our imports do not reach: flax's checkpoints, downloads from the hub,
# the command line of transformers.
UNUSED: Mapping[str, frozenset[str]] = {
    "flax": frozenset({"orbax-checkpoint", "tensorstore"}),
    "huggingface-hub": frozenset({"hf-xet"}),
    "tokenizers": frozenset({"huggingface-hub"}),
    "transformers": frozenset({"typer"}),
}

_MACHINE_PACKAGES = frozenset({"numpy", "scipy", "torch", "triton", "jax", "jaxlib"})
_MACHINE_PREFIXES = ("nvidia-", "jax-cuda", "cuda-")


class FolderError(Exception):
    """The folder cannot be used; the message contains the remedy."""


class IncompleteError(Exception):
    """Packages are missing; the message names them."""


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel file.

    Attributes:
      name: of the package, normalized.
      version: of the package.
      requires: declared requirements as in PEP 508.
    """

    path: Path
    name: str
    version: str
    requires: tuple[str, ...]


def belongs_to_machine(name: str) -> bool:
    """Returns whether the machine's version of a package is used, because the check tests it."""
    return name in _MACHINE_PACKAGES or name.startswith(_MACHINE_PREFIXES)


def groups_of(folder: Path) -> Mapping[str, Sequence[str]]:
    """Returns the names of the wheels in a folder by group.

    Raises:
      FolderError: `./scripts/gpu_wheels.sh` did not make the folder.
    """
    try:
        groups: dict[str, list[str]] = json.loads((folder / CONTENTS).read_text())["groups"]
    except (OSError, ValueError, KeyError) as error:
        raise FolderError(
            f"{folder} was not created by ./scripts/gpu_wheels.sh ({error})"
        ) from error
    return groups


def import_packaging(folder: Path | None) -> bool:
    """Imports `packaging`, from its wheel if necessary; returns whether that worked."""
    wheels = sorted(map(str, folder.glob("packaging-*.whl"))) if folder else []
    path = list(sys.path)
    sys.path += wheels
    try:
        importlib.import_module("packaging")
    except ImportError:
        return False
    finally:
        # An imported package finds its modules without it, and must not count as installed.
        sys.path[:] = path
    return True


def read_wheel(path: Path) -> Wheel:
    """Reads the metadata of a wheel.

    Raises:
      FolderError: the file is damaged.
    """
    from packaging.utils import canonicalize_name

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            [name] = [name for name in names if re.fullmatch(r"[^/]+\.dist-info/METADATA", name)]
            fields = HeaderParser().parsestr(archive.read(name).decode("utf-8"))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise FolderError(f"{path} is damaged; create the folder again ({error})") from error
    return Wheel(
        path=path,
        name=canonicalize_name(fields["Name"]),
        version=fields["Version"],
        requires=tuple(fields.get_all("Requires-Dist", [])),
    )


def usable_wheels(folder: Path, names: Iterable[str]) -> dict[str, Wheel]:
    """Returns the wheels that this interpreter can use, by the names of their packages.

    Raises:
      FolderError: a file is missing or damaged.
    """
    from packaging.tags import sys_tags
    from packaging.utils import parse_wheel_filename

    tags = frozenset(sys_tags())
    fitting = (name for name in names if parse_wheel_filename(name)[3] & tags)
    wheels = (read_wheel(folder / name) for name in fitting)
    return {wheel.name: wheel for wheel in wheels if not belongs_to_machine(wheel.name)}


def installed_versions() -> dict[str, str]:
    """Returns the versions of the packages that this interpreter finds, by normalized name."""
    from packaging.utils import canonicalize_name

    versions: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        # Python imports the first one on the path.
        if name := distribution.metadata["Name"]:
            versions.setdefault(canonicalize_name(name), distribution.version)
    return versions


def choose(
    requirements: Iterable[str], wheels: Mapping[str, Wheel], installed: Mapping[str, str]
) -> list[Wheel]:
    """Returns the wheels that complete the installed packages.

    An installed version is preferred if it satisfies all requirements.

    Args:
      requirements: as in PEP 508.
      wheels: to choose from.
      installed: versions by normalized name.

    Raises:
      IncompleteError: packages are neither installed nor in a wheel; the message names all of them.
    """
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet
    from packaging.utils import canonicalize_name

    specifiers: dict[str, SpecifierSet] = defaultdict(SpecifierSet)
    chosen: dict[str, Wheel] = {}
    missing: dict[str, str] = {}
    waiting = deque((Requirement(text), "") for text in requirements)
    while waiting:
        requirement, by = waiting.popleft()
        name = canonicalize_name(requirement.name)
        specifiers[name] &= requirement.specifier
        present, wheel = installed.get(name), wheels.get(name)
        if name not in chosen and present and specifiers[name].contains(present, prereleases=True):
            continue
        if wheel is None or not specifiers[name].contains(wheel.version, prereleases=True):
            purpose = f" for {by}" if by else ""
            state = f"{present} is" if present else "not"
            missing[name] = f"{requirement}{purpose} ({state} installed)"
        elif name not in chosen:
            chosen[name] = wheel
            waiting += ((needed, wheel.name) for needed in requirements_of(wheel))
    if missing:
        raise IncompleteError(", ".join(missing[name] for name in sorted(missing)))
    return list(chosen.values())


def requirements_of(
    wheel: Wheel, environment: Mapping[str, str] | None = None
) -> list["Requirement"]:
    """Returns the requirements of a wheel that apply, without `UNUSED` ones.

    Args:
      wheel: the wheel.
      environment: variables of markers that differ from this interpreter's.
    """
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    unused = UNUSED.get(wheel.name, frozenset())
    around = {**(environment or {}), "extra": ""}
    declared = map(Requirement, wheel.requires)
    return [
        requirement
        for requirement in declared
        if canonicalize_name(requirement.name) not in unused
        and (requirement.marker is None or requirement.marker.evaluate(around))
    ]


def unpack(wheel: Wheel, site: Path) -> None:
    """Unpacks a wheel into a folder of packages.

    Raises:
      FolderError: the file is damaged, or contains files for other folders.
    """
    try:
        with zipfile.ZipFile(wheel.path) as archive:
            if any(name.split("/")[0].endswith(".data") for name in archive.namelist()):
                raise FolderError(f"{wheel.path} can only be installed with pip")
            for member in archive.infolist():
                path = Path(archive.extract(member, site))
                if member.external_attr >> 16 & stat.S_IXUSR and not member.is_dir():
                    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    except (OSError, zipfile.BadZipFile) as error:
        raise FolderError(f"{wheel.path} cannot be unpacked: {error}") from error
