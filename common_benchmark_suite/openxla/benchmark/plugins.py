"""Objects that installed packages register as entry points.

A broken one only causes one line of output.

Entry points of other packages are first imported in a child process, because an import may end its
process. Successful imports are remembered until the package changes, so a run of an unchanged
environment starts no child.
"""

import contextlib
import functools
import hashlib
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

import attrs

from openxla.benchmark import bounded
from openxla.benchmark.files import write_atomically
from openxla.benchmark.installation import root_dir
from openxla.benchmark.text import one_line

# Top-level packages of this distribution, whose entry points need no check.
_OWN = ("comparative_benchmark", "openxla")
_DEADLINE_S = 30.0
_ENDED = "its import terminated the process"
_MOST_FILES = 5000
_PROBE = """\
import json, os, sys
answers = int(sys.argv[1])
imports, sys.path[:] = json.loads(sys.argv[2])
from importlib.metadata import EntryPoint
for index, what in enumerate(imports):
    try:
        if isinstance(what, str):
            from openxla.benchmark.comparative_suite.catalog import further_benchmarks
            further_benchmarks([what], probed=True)
        else:
            EntryPoint(*what).load()
        reason, ends = None, False
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"[:1000].removesuffix(": ")
        ends = isinstance(error, KeyboardInterrupt)
    os.write(answers, json.dumps([index, reason, ends]).encode() + b"\\n")
os._exit(0)
"""


@attrs.frozen
class Plugin:
    """An object that a distribution registers.

    Attributes:
      name: name of the entry point.
      value: the object.
      distribution: name of the distribution that registers it.
      built_in: whether it is this distribution.
    """

    name: str
    value: Any
    distribution: str
    built_in: bool


@attrs.frozen
class _Refusal:
    """Why an import fails, and whether it ends its process."""

    reason: str
    ends_process: bool


@attrs.frozen
class LeftOut:
    """A plug-in that cannot be used, and the reason."""

    group: str
    name: str
    distribution: str
    reason: str

    def __str__(self) -> str:
        return one_line(f"left out: {self.distribution}: {self.name}: {self.reason}", 500)


# By group and name.
_left_out: dict[tuple[str, str], LeftOut] = {}


@functools.cache
def plugins(group: str, kind: type | None = None, *, built_in: bool = True) -> tuple[Plugin, ...]:
    """Returns the objects of a group, built-in ones first.

    Args:
      group: group of the entry points.
      kind: required class of the objects; others are left out.
      built_in: whether to include entry points of this distribution.
    """
    points = entry_points(group=group)
    ours = filter(is_built_in, points) if built_in else ()
    loaded = [_plugin(point, point.load()) for point in ours]
    others = [point for point in points if not is_built_in(point)]
    for point, reason in zip(others, reasons_against(others), strict=True):
        if reason is not None:
            leave_out(point, reason)
            continue
        before = dict(os.environ)
        try:
            value = point.load()
        except (Exception, SystemExit) as error:
            leave_out(point, f"{type(error).__name__}: {error}")
            continue
        finally:
            # Workers of all backends inherit these variables, and so would its rivals.
            os.environ.clear()
            os.environ.update(before)
        if kind is None or isinstance(value, kind):
            loaded.append(_plugin(point, value))
        else:
            leave_out(point, f"{point.value} is a {type(value).__name__}, not a {kind.__name__}")
    return tuple(loaded)


def leave_out(point: EntryPoint, reason: str) -> None:
    """Excludes a plug-in from now on, and prints one line about it."""
    left_out = LeftOut(point.group, point.name, _distribution(point), reason)
    if _left_out.setdefault((point.group, point.name), left_out) is left_out:
        with contextlib.suppress(OSError, ValueError):  # the reader may have left
            print(left_out, file=sys.stderr)


def why_left_out(group: str, name: str) -> str | None:
    """Returns why a plug-in was excluded; None if it was not."""
    reason = _left_out.get((group, name))
    return None if reason is None else str(reason)


def is_built_in(point: EntryPoint) -> bool:
    """Returns whether an entry point belongs to this distribution."""
    return _module_of(point).partition(".")[0] in _OWN


def reasons_against(points: Sequence[EntryPoint]) -> list[str | None]:
    """Returns for each entry point why it cannot be imported; None if it can."""
    if not points:
        return []
    names = [f"{point.group} {point.name} {_distribution(point)}" for point in points]
    plain = [(point.name, point.value, point.group) for point in points]
    digests = [_digest(_code_of(_module_of(point)), point) for point in points]
    reasons = [refusal.reason if refusal else None for refusal in _refusals(names, digests, plain)]
    malformed = "{!r} is not a valid entry point; correct it in the package"
    return [
        reason if point.pattern.match(point.value) else malformed.format(point.value)
        for point, reason in zip(points, reasons, strict=True)
    ]


def why_it_ends_processes(suite: str, sources: Iterable[Path] | None) -> str | None:
    """Returns how importing a user's suite ends the process; None if it does not.

    Args:
      suite: a folder or the dotted path of a module.
      sources: its files; None for a module. If they have not changed since the last time, nothing
        is imported.
    """
    stamps = _code_of(suite) if sources is None else map(_stamp, sources)
    [refusal] = _refusals([f"suite {suite}"], [_digest(stamps, suite)], [suite])
    return refusal.reason if refusal and refusal.ends_process else None


def _refusals(
    names: Sequence[str], digests: Sequence[str | None], imports: Sequence[Any]
) -> list[_Refusal | None]:
    """Returns why each import fails; None for imports that succeed, or succeeded before."""
    known = _known()
    pairs = enumerate(zip(names, digests, strict=True))
    waiting = [i for i, (name, digest) in pairs if digest is None or known.get(name) != digest]
    unknown, refusals = list(waiting), dict[int, _Refusal | None]()
    while waiting:
        answers = _probe([imports[index] for index in waiting])
        refusals |= zip(waiting, answers, strict=False)
        # The first one without an answer ended the child.
        waiting = waiting[len(answers) :]
    good = {names[i]: digest for i in unknown if refusals[i] is None and (digest := digests[i])}
    if good:
        with contextlib.suppress(OSError):
            write_atomically(_file(), json.dumps(known | good))
    return [refusals.get(index) for index in range(len(names))]


def _probe(imports: Sequence[Any]) -> list[_Refusal | None]:
    """Imports in a child process; returns an answer per import, up to the one that ended it.

    An import that does not finish in time has no answer unless it is the first one, because it may
    have started late.
    """
    read, write = os.pipe()
    path = [entry for entry in sys.path if isinstance(entry, str)]
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _PROBE, str(write), json.dumps([imports, path])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(write,),
        start_new_session=True,  # Ctrl-C should only reach the parent
    ) as child:
        os.close(write)
        try:
            child.wait(_DEADLINE_S)
            ended = f"{_ENDED} ({bounded.exit_description(child.returncode)})"
        except subprocess.TimeoutExpired:
            ended = ""
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
    answers = list(_answers(read))[: len(imports)]
    if len(answers) < len(imports) and (ended or not answers):
        ended = ended or f"its import did not finish within {_DEADLINE_S:g} s"
        answers.append(_Refusal(ended, ends_process=True))
    return answers


def _answers(descriptor: int) -> Iterator[_Refusal | None]:
    # Do not wait for the end of the pipe: processes started by an import may keep it open.
    os.set_blocking(descriptor, False)
    with os.fdopen(descriptor, "rb") as pipe:
        content = pipe.read() or b""
    for position, line in enumerate(content.splitlines()):
        try:
            index, reason, ends = json.loads(line)
        except (ValueError, TypeError):
            return
        if index != position:
            return
        yield None if reason is None else _Refusal(str(reason), bool(ends))


def _plugin(point: EntryPoint, value: Any) -> Plugin:
    distribution = point.dist.name if point.dist else _module_of(point)
    return Plugin(point.name, value, distribution, is_built_in(point))


def _distribution(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else _module_of(point)


def _module_of(point: EntryPoint) -> str:
    return point.value.partition(":")[0].strip()  # `point.module` raises for a malformed value


def _code_of(module: str) -> Iterator[tuple[str, int, int]]:
    """Yields the state of the files of a module's top-level package; empty if unknown."""
    try:
        # Finding a submodule would import its package.
        spec = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        return
    if spec is None:
        return
    if folders := list(spec.submodule_search_locations or ()):
        paths = [path for folder in folders for path in sorted(Path(folder).rglob("*.py"))]
    else:
        paths = [Path(spec.origin)] if spec.origin else []
    yield from map(_stamp, paths)


def _digest(stamps: Iterable[tuple[str, int, int]], plugin: object) -> str | None:
    """Returns a digest of the code to be imported; None if it is unknown."""
    code = list(itertools.islice(stamps, _MOST_FILES + 1))
    if not code or len(code) > _MOST_FILES:
        return None
    made_of = json.dumps([sys.version, sys.executable, str(plugin), code])
    return hashlib.sha256(made_of.encode()).hexdigest()


def _stamp(path: Path) -> tuple[str, int, int]:
    try:
        status = path.stat()
    except OSError:
        return str(path), 0, 0
    return str(path), status.st_mtime_ns, status.st_size


def _file() -> Path:
    return root_dir() / "plugins.json"


def _known() -> dict[str, str]:
    """Returns the digests of successful imports, by name."""
    try:
        content = json.loads(_file().read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
