"""The cases of all frameworks, those from plug-ins and from folders included, and their selection.

A folder in the layout of the OpenXLA suite has a `FRAMEWORK/benchmark_definitions.py` for each
framework. Such a file imports its neighbour as `openxla.benchmark.comparative_suite.FRAMEWORK`,
which is also one of our packages. So each file is imported instead of ours, which is then
restored. Models come from the neighbouring folder `models/` if it has their modules; otherwise from
the suite's module of the same path. Regular expressions from users have a time limit per search.
"""

import hashlib
import importlib
import os
import pkgutil
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs

from openxla.benchmark import comparative_suite
from openxla.benchmark.def_types import BenchmarkCase, DefinitionError, ModelFrameworkType
from openxla.benchmark.files import import_file
from openxla.benchmark.models.in_tree import IN_TREE, MODELS, Tree
from openxla.benchmark.text import did_you_mean

DEFINITIONS = "benchmark_definitions"

PATIENCE_S = 5.0

SUITES_GROUP = "openxla.benchmark.suites"


def frameworks_in(folder: Path) -> list[Path]:
    """Returns the subfolders that define benchmarks; empty for another layout."""
    return sorted(path.parent for path in folder.glob(f"*/{DEFINITIONS}.py"))


def load_definitions(framework: Path) -> ModuleType:
    """Imports the definitions of a subfolder instead of our package of that name."""
    name = f"{comparative_suite.__name__}.{framework.name}"
    with _in_place_of_ours(name, framework):
        return importlib.import_module(f"{name}.{DEFINITIONS}")


def with_models_beside(case: BenchmarkCase, suite: Path) -> BenchmarkCase:
    """Returns a case with its model from the tree that contains the suite, if it is there.

    A TFLite model is a file named by its address; the neighbouring module cannot be run.
    """
    if case.model.model_impl.framework_type is ModelFrameworkType.TFLITE:
        return case
    path = case.model.model_impl.module_path or ""
    tree = Tree(folder=suite.parent / "models", module=path.removeprefix(f"{MODELS}."))
    if not path.startswith(f"{MODELS}.") or not tree.file.is_file():
        return case
    model = attrs.evolve(
        case.model,
        model_impl=attrs.evolve(
            case.model.model_impl, module_path=IN_TREE, architecture=None, own_process=True
        ),
        model_parameters={**case.model.model_parameters, **tree.parameters()},
    )
    return attrs.evolve(case, model=model)


def in_own_process(case: BenchmarkCase) -> BenchmarkCase:
    """Returns a case whose model, unless it is ours, runs in a process without other models.

    Models of two folders may import modules of the same name.
    """
    implementation = case.model.model_impl
    if implementation.own_process or (implementation.module_path or "").startswith(f"{MODELS}."):
        return case
    own = attrs.evolve(implementation, own_process=True)
    return attrs.evolve(case, model=attrs.evolve(case.model, model_impl=own))


@contextmanager
def _in_place_of_ours(name: str, folder: Path) -> Iterator[None]:
    last = name.rpartition(".")[2]
    hidden = {key: sys.modules.pop(key) for key in list(sys.modules) if _is_in(key, name)}
    had = getattr(comparative_suite, last, None)
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package
    setattr(comparative_suite, last, package)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for key in [key for key in sys.modules if _is_in(key, name)]:
            del sys.modules[key]
        sys.modules.update(hidden)
        if had is None:
            delattr(comparative_suite, last)
        else:
            setattr(comparative_suite, last, had)


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


class Expression:
    """A compiled expression with a time limit for each search.

    Python's matcher backtracks: `(.*)*(.*)*z` takes practically forever on a long name. It checks
    for signals meanwhile, so a timer can end it, but only in the main thread.

    Raises:
      re.error: the expression is malformed, or a search takes too long.
    """

    def __init__(self, text: str) -> None:
        self._pattern = re.compile(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Returns the match of the whole text."""
        with _limited():
            return self._pattern.fullmatch(text)

    def search(self, text: str) -> re.Match[str] | None:
        """Returns the first match within a text."""
        with _limited():
            return self._pattern.search(text)


@contextmanager
def _limited() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _end)
    rest_s, interval_s = signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, rest_s, interval_s)
        signal.signal(signal.SIGALRM, before)


def _end(*_: Any) -> None:
    raise re.error(f"matching a name took more than {PATIENCE_S:g} s; use fewer nested repetitions")


if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


class NoMatchError(LookupError):
    """No case has this name; the message lists similar ones."""


def all_benchmarks(extra_suites: Iterable[str] = ()) -> list[BenchmarkCase]:
    """Returns every known case, the suite's first.

    Sources are each framework's `benchmark_definitions` in this package, and neighbouring modules
    whose names end in `_definitions`, for users' own models; modules that installed packages
    register in the entry point group `openxla.benchmark.suites`; and `extra_suites`, dotted paths
    of modules. Each defines `ALL_BENCHMARKS`. If a suite is a folder (a text with a separator), its
    files named `*_definitions.py` are read, or its folder for each framework (see the module).
    The suite's own cases are then omitted, because the folder's definitions may have the same
    names.

    Raises:
      DefinitionError: a module cannot be imported, or two cases share a name.
    """
    extra_suites = list(extra_suites)
    own = [
        f"{comparative_suite.__name__}.{module.name}" + ".benchmark_definitions" * module.ispkg
        for module in pkgutil.iter_modules(comparative_suite.__path__)
        if module.ispkg or module.name.endswith("_definitions")
    ]
    cases: dict[str, BenchmarkCase] = {}
    with_folders = any(map(is_folder, extra_suites))
    for path in [] if with_folders else own:
        _add(cases, path, _benchmarks_of(path))
    for point in [] if with_folders else _plugged_in():
        _add_plugged_in(cases, point)
    for path in dict.fromkeys(extra_suites):
        _add(cases, path, further_benchmarks([path]))
    return list(cases.values())


def further_benchmarks(suites: Iterable[str], *, probed: bool = False) -> list[BenchmarkCase]:
    """Returns only the cases of further suites: modules, dotted paths, and folders.

    Args:
      suites: modules and folders.
      probed: whether importing them is known not to end the process.

    Raises:
      DefinitionError: a module cannot be imported.
    """
    cases = []
    for path in dict.fromkeys(suites):
        if not probed:
            _refuse_fatal(path)
        cases += _benchmarks_of(path)
    return cases


def _refuse_fatal(path: str) -> None:
    """Raises `DefinitionError` if importing a suite ends the process."""
    from openxla.benchmark import plugins

    sources = sorted(Path(path).rglob("*.py")) if is_folder(path) else None
    if (reason := plugins.why_it_ends_processes(path, sources)) is not None:
        raise DefinitionError(f"suite {path!r}: {reason}")


def _add(cases: dict[str, BenchmarkCase], path: str, added: Iterable[BenchmarkCase]) -> None:
    for case in added:
        if cases.setdefault(case.name, case) is not case:
            raise DefinitionError(f"{path}: a case named {case.name!r} already exists")


def _add_plugged_in(cases: dict[str, BenchmarkCase], point: "EntryPoint") -> None:
    """Adds the cases of a plug-in: all of them, or none if it is broken."""
    from openxla.benchmark import plugins

    [reason] = plugins.reasons_against([point])
    if reason is None:
        added = dict(cases)
        try:
            _add(added, point.value, _benchmarks_of(point.value))
        except DefinitionError as error:
            reason = str(error)
        else:
            cases |= added
            return
    plugins.leave_out(point, reason)


def select(
    cases: Sequence[BenchmarkCase],
    *,
    name: str | None = None,
    tags: Sequence[str] = (),
    framework: str | None = None,
) -> list[BenchmarkCase]:
    """Returns the cases that match all conditions, in their order.

    Args:
      cases: cases to search.
      name: regular expression that must match the whole name. If it matches none and is plain
        text, cases whose names contain it, ignoring case.
      tags: tags that a case must have, all of them.
      framework: framework of the model, e.g. `jax`, or several separated by commas.

    Raises:
      NoMatchError: no case matches.
      re.error: the expression is malformed, or takes too long.
    """
    named = _named(cases, name)
    selected = [
        case
        for case in named
        if set(tags) <= set(case.tags)
        and (not framework or case.model.model_impl.framework_type.value in framework.split(","))
    ]
    if not selected:
        known = sorted({tag for case in cases for tag in case.tags})
        if unknown := [tag for tag in tags if tag not in known]:
            hint = did_you_mean(unknown[0], known)
            raise NoMatchError(f"no case has the tag {unknown[0]!r}{hint}; see `cbs list`")
        if name is not None and named:
            raise NoMatchError(
                f"{name!r} exists, but not with these tags and this framework; see `cbs list`"
            )
        raise NoMatchError(_no_match_message(cases, name))
    return selected


def _named(cases: Sequence[BenchmarkCase], name: str | None) -> list[BenchmarkCase]:
    if name is None:
        return list(cases)
    pattern = Expression(name)
    if whole := [case for case in cases if pattern.fullmatch(case.name)]:
        return whole
    # Model names may contain dots, too.
    if not re.fullmatch(r"[\w/.-]+", name):
        return []
    return [case for case in cases if name.lower() in case.name.lower()]


def _plugged_in() -> "list[EntryPoint]":
    """Returns the suites that installed packages register.

    Importing the metadata library takes half as long as importing all definitions, so it is only
    imported if some package may have registered a suite.
    """
    if not any(map(_may_register, sys.path)):
        return []
    from importlib.metadata import entry_points

    return list(entry_points(group=SUITES_GROUP))


def _may_register(folder: str) -> bool:
    """Returns whether any metadata in a folder of the search path mentions the group."""
    group, files = SUITES_GROUP.encode(), "*-[iI][nN][fF][oO]/entry_points.txt"
    with suppress(OSError):
        # A file is an archive, which may contain metadata, too.
        registered = Path(folder or ".").glob(files)
        return Path(folder).is_file() or any(group in path.read_bytes() for path in registered)
    return True  # the library reads whatever can be read


def is_folder(suite: str) -> bool:
    """Returns whether a suite is a folder, not the dotted path of a module."""
    return os.sep in suite


def _benchmarks_of(path: str) -> list[BenchmarkCase]:
    if is_folder(path):
        return [in_own_process(case) for case in _benchmarks_in(path)]
    return _cases_in(path, importlib.import_module)


def _benchmarks_in(path: str) -> list[BenchmarkCase]:
    folder = Path(path)
    if not folder.is_dir():
        raise DefinitionError(f"suite {path!r} is not a folder")
    if files := sorted(folder.glob("*_definitions.py")):
        return [case for file in files for case in _benchmarks_of_file(file)]
    frameworks = frameworks_in(folder)
    if not frameworks:
        raise DefinitionError(
            f"suite {path!r} has no *_definitions.py and no folder with {DEFINITIONS}.py"
        )
    offered = [
        case
        for framework in frameworks
        for case in _cases_in(str(framework), lambda path: load_definitions(Path(path)))
    ]
    # The OpenXLA suite lists one of its cases twice.
    once = {id(case): case for case in offered}
    return [with_models_beside(case, folder) for case in once.values()]


def _benchmarks_of_file(file: Path) -> list[BenchmarkCase]:
    def load(path: str) -> ModuleType:
        # The path is part of the name, because folders may have files of the same name.
        return import_file(f"{file.stem}_{hashlib.sha256(path.encode()).hexdigest()[:8]}", file)

    return _cases_in(str(file), load)


def _cases_in(path: str, load: Callable[[str], ModuleType]) -> list[BenchmarkCase]:
    try:
        module = load(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's module may raise anything, including SystemExit
        raise DefinitionError(f"suite {path!r}: {type(error).__name__}: {error}") from error
    cases = getattr(module, "ALL_BENCHMARKS", None)
    if not isinstance(cases, list | tuple) or not all(isinstance(c, BenchmarkCase) for c in cases):
        raise DefinitionError(f"suite {path!r} has no ALL_BENCHMARKS list of BenchmarkCase")
    return list(cases)


def _no_match_message(cases: Sequence[BenchmarkCase], name: str | None) -> str:
    if name is None:
        return "no case matches; to see all cases, run `cbs list`"
    import difflib

    # A name typed with regular expression syntax is compared by its letters only.
    letters = re.sub(r"[^A-Za-z0-9_/-]", "", name)
    nearest = difflib.get_close_matches(letters, [case.name for case in cases], n=3, cutoff=0.3)
    lines = [f"no case is named {name!r} (the expression must match the whole name)"]
    if nearest:
        lines += ["nearest names:", *(f"  {item}" for item in nearest)]
    return "\n".join([*lines, "to see all cases, run `cbs list`"])
