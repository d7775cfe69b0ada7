"""FLEET.toml: the runs of a fleet, and the classes of machines that execute them."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, cast, get_args

import attrs

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.features import Requirement, parse_requirement
from comparative_benchmark.request import RunRequest, options
from openxla.benchmark.text import did_you_mean, one_line

Share = Literal["node", "gpu"]
HostKind = Literal["whole", "shared", "unknown"]

# The fleet chooses these options of each run.
_NOT_FOR_RUNS = frozenset({"output", "resume", "dry_run", "json", "busy", "run_in_process"})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,40}")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LARGEST_FILE = 2**20


@attrs.frozen(kw_only=True)
class MachineClass:
    """Machines that are alike: a statement on the class holds for each of them.

    Attributes:
      requires: alternatives; a node belongs to the class if it meets one of them.
      access: options that the scheduler needs to reach these machines, passed on unchanged.
      hosts: names of the machines, for engines that have no list of their own.
      environment: virtual environment, or interpreter, on the machines; None for the submitter's.
      repeats: number of measurements of each workload, on different nodes if there are enough.
      time_limit_s: limit of one batch of jobs.
      share: the part of a machine that a job has for itself.
      host: whether a machine is a whole host; a virtual machine cannot know.
      device: device of the runs on these machines; None for the runs' own.
    """

    name: str
    requires: tuple[Requirement, ...] = ()
    access: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    environment: str | None = None
    repeats: int = 1
    time_limit_s: int = 3600
    share: Share = "node"
    host: HostKind = "unknown"
    device: str | None = None


@attrs.frozen(kw_only=True)
class Fleet:
    """The content of a FLEET.toml.

    Attributes:
      path: the file.
      spool: folder of claims, batches and results; on a shared file system if there is one.
      engine: name of the engine.
      engine_options: options of the engine.
      runs: what to measure, once on each class.
      attempts: how often a job is started until it is given up.
      batch_minutes: expected duration of a batch of jobs.
      canaries: whether each batch first measures two fixed programs, which show slow nodes.
    """

    path: Path
    name: str
    spool: Path
    engine: str = "local"
    engine_options: Mapping[str, Any] = attrs.field(factory=dict)
    runs: tuple[RunRequest, ...]
    classes: tuple[MachineClass, ...]
    attempts: int = 3
    batch_minutes: int = 30
    canaries: bool = True

    @property
    def folder(self) -> Path:
        """Folder of this fleet in the spool."""
        return self.spool / self.name

    def machine_class(self, name: str) -> MachineClass:
        """Returns the class with this name."""
        return next(item for item in self.classes if item.name == name)


def read_fleet(path: Path) -> Fleet:
    """Reads a FLEET.toml.

    Raises:
      UsageError: the file cannot be read, is not TOML, or has an invalid value; the message has the
        line, and a suggestion for a misspelt name.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise UsageError(f"{path} is larger than {_LARGEST_FILE} bytes")
        text = content.decode()
        document = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {one_line(str(error))}") from error
    return _fleet(path, _Table(path, text, document))


class _Table:
    """A table of the file, which knows the lines of its keys."""

    def __init__(self, path: Path, text: str, values: Mapping[str, Any], heading: int = -1) -> None:
        self._path = path
        self._lines = text.splitlines()
        self._text = text
        self._values = values
        self._heading = heading

    def fail(self, key: str, problem: str) -> NoReturn:
        """Raises `UsageError` with the line of a key."""
        raise UsageError(f"{self._path}:{self._line(key)}: {problem}")

    def allow(self, *keys: str) -> None:
        """Raises `UsageError` for a key that is not allowed."""
        for key in self._values:
            if key not in keys:
                near = did_you_mean(key, keys) or f"; expected {', '.join(keys)}"
                self.fail(key, f"unknown key {key!r}{near}")

    def has(self, key: str) -> bool:
        """Returns whether the table has a key."""
        return key in self._values

    def text(self, key: str, default: str | None = None, choices: tuple[str, ...] = ()) -> str:
        """Returns a string."""
        value = self._values.get(key, default)
        if value is None:
            self.fail(key, f"{key} is missing")
        if not isinstance(value, str) or not value:
            self.fail(key, f"{key} must be a string, got {value!r}")
        if choices and value not in choices:
            near = did_you_mean(value, choices) or f"; choices are {', '.join(choices)}"
            self.fail(key, f"unknown {key} {value!r}{near}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns a list of strings; a single string is a list of one."""
        value = self._values.get(key, [])
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            self.fail(key, f"{key} must be a list of strings, got {value!r}")
        return tuple(items)

    def count(self, key: str, default: int, largest: int = 10**6) -> int:
        """Returns a whole number of at least 1."""
        value = self._values.get(key, default)
        if type(value) is not int or not 1 <= value <= largest:
            self.fail(key, f"{key} must be a whole number from 1 to {largest}, got {value!r}")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Returns true or false."""
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            self.fail(key, f"{key} must be true or false, got {value!r}")
        return value

    def duration_s(self, key: str, default: int) -> int:
        """Returns a duration in seconds: a number of seconds, `45m`, or Slurm's `1-12:00:00`."""
        value = self._values.get(key, default)
        if isinstance(value, str):
            if clock := _CLOCK.fullmatch(value):
                days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
                value = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
            elif value[:-1].isdecimal() and len(value) < 9 and value[-1] in _UNITS:
                value = int(value[:-1]) * _UNITS[value[-1]]
        if type(value) is not int or not 60 <= value <= 30 * 86400:
            self.fail(key, f"{key} must be a duration such as 45m or 2h, got {value!r}")
        return value

    def table(self, key: str) -> Mapping[str, Any]:
        """Returns a table as plain values; empty without it."""
        value = self._values.get(key, {})
        if not isinstance(value, Mapping):
            self.fail(key, f"[{key}] must be a table")
        return value

    def tables(self, key: str) -> "list[_Table]":
        """Returns the tables `[[key]]`, at least one."""
        value = self._values.get(key)
        items = [value] if isinstance(value, Mapping) else value
        if not isinstance(items, list) or not items:
            self.fail(key, f"expected at least one [[{key}]] table")
        heading = re.compile(rf"\s*\[\[?\s*{key}\s*\]?\]")
        headings = [n for n, line in enumerate(self._lines) if heading.match(line)]
        headings += [0] * (len(items) - len(headings))
        if not all(isinstance(item, Mapping) for item in items):
            self.fail(key, f"[[{key}]] must be a table")
        return [
            _Table(self._path, self._text, item, line)
            for item, line in zip(items, headings, strict=False)
        ]

    @property
    def values(self) -> Mapping[str, Any]:
        """The plain values."""
        return self._values

    def _line(self, key: str) -> int:
        """Returns the number of the line that sets a key; of its heading if no line does."""
        setting = re.compile(rf"\s*(\[\[?\s*)?[\"']?{re.escape(key)}[\"']?\s*[=\].]")
        for number in range(self._heading + 1, len(self._lines)):
            if setting.match(self._lines[number]):
                return number + 1
            if self._heading >= 0 and self._lines[number].lstrip().startswith("["):
                break
        return max(self._heading + 1, 1)


def _fleet(path: Path, table: _Table) -> Fleet:
    table.allow(
        *("name", "spool", "engine", "attempts", "batch_minutes", "run", "class"),
        *("options", "canaries"),
    )
    name = table.text("name", path.stem.lower())
    if not _NAME.fullmatch(name):
        table.fail("name", f"name {name!r} may contain only letters, digits and . _ -")
    classes = tuple(map(_machine_class, table.tables("class")))
    names = [item.name for item in classes]
    if twice := [name for name in names if names.count(name) > 1]:
        table.fail("class", f"two classes have the name {twice[0]!r}")
    return Fleet(
        path=path.absolute(),
        name=name,
        spool=(path.absolute().parent / Path(table.text("spool", "fleet-spool")).expanduser()),
        engine=table.text("engine", "local"),
        engine_options=table.table("options"),
        runs=tuple(map(_run, table.tables("run"))),
        classes=classes,
        attempts=table.count("attempts", 3, 100),
        batch_minutes=table.count("batch_minutes", 30, 24 * 60),
        canaries=table.flag("canaries", default=True),
    )


def _machine_class(table: _Table) -> MachineClass:
    known = [field.name for field in attrs.fields(MachineClass)]
    table.allow(*(name.removesuffix("_s") if name == "time_limit_s" else name for name in known))
    name = table.text("name")
    if not _NAME.fullmatch(name):
        table.fail("name", f"name {name!r} may contain only letters, digits and . _ -")
    try:
        requires = tuple(map(parse_requirement, table.texts("requires")))
    except UsageError as error:
        table.fail("requires", f"requires: {error}")
    return MachineClass(
        name=name,
        requires=requires,
        access=table.texts("access"),
        hosts=table.texts("hosts"),
        environment=table.text("environment") if table.has("environment") else None,
        repeats=table.count("repeats", 1, 1000),
        time_limit_s=table.duration_s("time_limit", 3600),
        share=cast(Share, table.text("share", "node", get_args(Share))),
        host=cast(HostKind, table.text("host", "unknown", get_args(HostKind))),
        device=table.text("device") if table.has("device") else None,
    )


def _run(table: _Table) -> RunRequest:
    table.allow(*(name for name in options() if name not in _NOT_FOR_RUNS))
    for key, value in table.values.items():
        try:
            RunRequest(**{key: value})
        except UsageError as error:
            table.fail(key, str(error))
    return RunRequest(**table.values)
