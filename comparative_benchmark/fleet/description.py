"""FLEET.toml: the runs of a fleet, and the classes of machines that execute them."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, cast, get_args

import attrs

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.features import Node, Requirement, parse_requirement
from comparative_benchmark.request import RunRequest, options
from openxla.benchmark.text import did_you_mean, one_line

Share = Literal["node", "gpu"]
HostKind = Literal["whole", "shared", "unknown"]

# The fleet chooses these options of each run.
_NOT_FOR_RUNS = frozenset({"output", "resume", "dry_run", "json", "busy", "run_in_process"})
_LONGEST_NAME = 40
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{_LONGEST_NAME - 1}}}")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):(\d\d):(\d\d)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LARGEST_FILE = 2**20
# `sbatch` accepts -p NAME, -pNAME, --partition NAME and --partition=NAME.
_PARTITION = re.compile(r"(?<!\S)(?:--partition[= ]|-p ?)(\S+)")
# Days may have many digits.
_LONGEST_DURATION = 20


@attrs.frozen(kw_only=True)
class MachineClass:
    """Machines that are alike: a statement on the class holds for each of them.

    Attributes:
      requires: alternatives; a node belongs to the class if it meets one of them.
      access: options that the scheduler needs to reach these machines, passed on unchanged.
      hosts: names of the machines, for engines without a list of machines.
      environment: virtual environment, or interpreter, on the machines; None for the submitter's.
      setup: shell command that makes the environment, once on each file system; None if it exists.
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
    setup: str | None = None
    repeats: int = 1
    time_limit_s: int = 3600
    share: Share = "node"
    host: HostKind = "unknown"
    device: str | None = None

    def allows(self, node: Node) -> bool:
        """Returns whether `hosts`, and a partition in `access`, allow a node."""
        listed = ",".join(_PARTITION.findall(" ".join(self.access)))
        is_there = not listed or node.partitions is None or node.partitions & {*listed.split(",")}
        return bool(is_there and (not self.hosts or node.name in self.hosts))


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
        text = content.decode("utf-8-sig")
        document = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
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
        if not isinstance(value, str) or not value or not value.isprintable():
            self.fail(key, f"{key} must be a string of printable characters, got {_shown(value)}")
        if choices and value not in choices:
            near = did_you_mean(value, choices) or f"; choices are {', '.join(choices)}"
            self.fail(key, f"unknown {key} {_shown(value)}{near}")
        return value

    def name(self, default: str | None = None) -> str:
        """Returns the name of the fleet or of a class; names of files contain it."""
        name = self.text("name", default)
        if not _NAME.fullmatch(name):
            self.fail(
                "name",
                f"name {_shown(name)} must have at most {_LONGEST_NAME} letters, digits and . _ -, "
                "and start with a letter or digit",
            )
        return name

    def texts(self, key: str) -> tuple[str, ...]:
        """Returns a list of strings; a single string is a list of one."""
        value = self._values.get(key, [])
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not all(
            isinstance(item, str) and item.isprintable() for item in items
        ):
            self.fail(key, f"{key} must be a list of strings, got {_shown(value)}")
        if not all(items):
            self.fail(key, f"{key} contains an empty string")
        return tuple(items)

    def count(self, key: str, default: int, largest: int = 10**6) -> int:
        """Returns a whole number of at least 1."""
        value = self._values.get(key, default)
        if type(value) is not int or not 1 <= value <= largest:
            self.fail(key, f"{key} must be a whole number from 1 to {largest}, got {_shown(value)}")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Returns true or false."""
        value = self._values.get(key, default)
        if not isinstance(value, bool):
            self.fail(key, f"{key} must be true or false, got {_shown(value)}")
        return value

    def duration_s(self, key: str, default: int) -> int:
        """Returns a duration in seconds: a number of seconds, `45m`, or Slurm's `1-12:00:00`."""
        given = value = self._values.get(key, default)
        if isinstance(value, str) and len(value) <= _LONGEST_DURATION:
            if clock := _CLOCK.fullmatch(value):
                days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
                value = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
            elif value[:-1].isdecimal() and value[-1] in _UNITS:
                value = int(value[:-1]) * _UNITS[value[-1]]
        if type(value) is not int:
            self.fail(key, f'{key} must be a duration such as "45m" or "2h", got {_shown(given)}')
        if not 60 <= value <= 30 * 86400:
            self.fail(key, f"{key} must be from 1 minute to 30 days, got {_shown(given)}")
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
        if not all(isinstance(item, Mapping) for item in items):
            self.fail(key, f"[[{key}]] must be a table")
        heading = re.compile(rf"\s*\[\[?\s*[\"']?{key}[\"']?\s*\]?\]")
        headings = [n for n, line in enumerate(self._lines) if heading.match(line)]
        # Inline tables have no headings: their mistakes are on the line of the whole list.
        headings += [self._line(key) - 1] * (len(items) - len(headings))
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
        first = self._heading + 1
        inline = self._heading >= 0 and not self._lines[self._heading].lstrip().startswith("[")
        for number in range(first, first if inline else len(self._lines)):
            if setting.match(self._lines[number]):
                return number + 1
            if self._heading >= 0 and self._lines[number].lstrip().startswith("["):
                break
        return max(first, 1)


def _shown(value: object) -> str:
    """Returns a value for a message, shortened."""
    try:
        return one_line(repr(value), 80)
    except ValueError:
        # Python refuses to print whole numbers of thousands of digits.
        return "a very large number"


def _fleet(path: Path, table: _Table) -> Fleet:
    table.allow(
        *("name", "spool", "engine", "attempts", "batch_minutes", "run", "class"),
        *("options", "canaries"),
    )
    classes: dict[str, MachineClass] = {}
    for item in table.tables("class"):
        machine_class = _machine_class(item)
        if machine_class.name in classes:
            item.fail("name", f"two classes have the name {machine_class.name!r}")
        classes[machine_class.name] = machine_class
    try:
        spool = Path(table.text("spool", "fleet-spool")).expanduser()
    except RuntimeError as error:
        table.fail("spool", f"spool: {error}")
    return Fleet(
        path=path.absolute(),
        name=table.name(path.stem.lower()),
        spool=path.absolute().parent / spool,
        engine=table.text("engine", "local"),
        engine_options=table.table("options"),
        runs=tuple(map(_run, table.tables("run"))),
        classes=tuple(classes.values()),
        attempts=table.count("attempts", 3, 100),
        batch_minutes=table.count("batch_minutes", 30, 24 * 60),
        canaries=table.flag("canaries", default=True),
    )


def _machine_class(table: _Table) -> MachineClass:
    known = [field.name for field in attrs.fields(MachineClass)]
    table.allow(*(name.removesuffix("_s") if name == "time_limit_s" else name for name in known))
    texts = table.texts("requires")
    try:
        requires = tuple(map(parse_requirement, texts))
    except UsageError as error:
        table.fail("requires", f"requires: {error}")
    if table.has("setup") and not table.has("environment"):
        table.fail("setup", "setup requires the environment's path: environment = ...")
    return MachineClass(
        name=table.name(),
        requires=requires,
        access=table.texts("access"),
        hosts=table.texts("hosts"),
        environment=table.text("environment") if table.has("environment") else None,
        setup=table.text("setup") if table.has("setup") else None,
        repeats=table.count("repeats", 1, 1000),
        time_limit_s=table.duration_s("time_limit", 3600),
        share=cast(Share, table.text("share", "node", get_args(Share))),
        host=cast(HostKind, table.text("host", "unknown", get_args(HostKind))),
        device=table.text("device") if table.has("device") else None,
    )


def _run(table: _Table) -> RunRequest:
    known = {name: item for name, item in options().items() if name not in _NOT_FOR_RUNS}
    table.allow(*known)
    for key, value in table.values.items():
        field, option = known[key]
        several = isinstance(value, list) and (option.repeated or option.joined)
        if isinstance(field.default, bool):
            table.flag(key, default=False)
        elif not several and not isinstance(value, str | int | float):
            table.fail(key, f"{key} must be a single value, got {_shown(value)}")
        elif option.parse is str and not isinstance(value, list | str):
            table.fail(key, f"{key} must be a string, got {_shown(value)}")
        try:
            RunRequest(**{key: value})
        except UsageError as error:
            table.fail(key, str(error))
    return RunRequest(**table.values)
