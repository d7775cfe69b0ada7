"""Commands that run one script or several."""

import copy
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from .. import CommandFailedError, channel
from ..fs import XPath
from ..pack import BasePackage, command_line

Line = tuple[BasePackage, list[Any], dict[str, Any]]


class Command:
    """A command line, or several, of a pack or of other commands."""

    def __init__(self, executor: "Command | BasePackage | None", **kwargs: Any) -> None:
        self.exec = executor if isinstance(executor, Command) else None
        self._pack = executor if isinstance(executor, BasePackage) else None
        self._kwargs = kwargs

    @property
    def pack(self) -> Any:
        """The pack of the innermost command."""
        return self._pack if self.exec is None else self.exec.pack

    def packs(self) -> "Iterator[Any]":
        """Yields the packs of all commands."""
        yield self.pack

    def _set_pack(self, pack: Any) -> None:
        if self.exec is None:
            self._pack = pack
        else:
            self.exec._set_pack(pack)

    def copy(self, pack: Any) -> Any:
        """Returns the same for another pack."""
        clone = copy.copy(self)
        clone.exec = None if self.exec is None else self.exec.copy(pack)
        clone._kwargs = dict(self._kwargs)
        clone._set_pack(pack)
        return clone

    def cloned(self, name: str, devices: "list[Any]", fields: "dict[str, Any]") -> Any:
        """Returns the same for one of several jobs, whose name comes behind the tag."""
        config = self.pack.config
        tag = [*(config.get("tag") or [config["name"]]), name]
        return self.copy(self.pack.copy({"tag": tag, "devices": devices, **fields}))

    def use_stdout(self) -> "Command":
        """Declares that events come in escape sequences on stdout; returns itself."""
        return self.set_run_options(use_stdout=True)

    def set_run_options(self, **kwargs: Any) -> "Command":
        """Adds keyword arguments for `execute`; returns itself."""
        self._kwargs.update(kwargs)
        return self

    @property
    def options(self) -> "dict[str, Any]":
        """Keyword arguments for `execute`."""
        return self.kwargs()

    def kwargs(self) -> "dict[str, Any]":
        """Returns the keyword arguments for `execute`."""
        return {**(self.exec.kwargs() if self.exec else {}), **self._kwargs}

    def commands(self) -> "Iterator[Line]":
        """Yields pack, arguments and keyword arguments for `execute`, of each command."""
        yield self.pack, self.argv(), self.kwargs()

    def argv(self, **kwargs: Any) -> "list[Any]":
        """Returns the command line."""
        inner = self.exec.argv(**kwargs) if self.exec is not None else []
        return self._argv(**kwargs) + inner

    def _argv(self, **kwargs: Any) -> "list[Any]":
        return []

    def steps(self) -> "list[list[Line]]":
        """Returns steps of commands; a step's commands run concurrently."""
        return [list(self.commands())]

    async def execute(self, *_: Any, **__: Any) -> "list[int]":
        """Runs all commands, a step's concurrently; returns their exit codes.

        Stops after a step with an exit code other than 0.

        Raises:
          CommandFailedError: while installing or preparing, if one is not 0.
        """
        codes: list[int] = []
        steps = self.steps()
        for number, lines in enumerate(steps, 1):
            codes += _run(lines, measured=number == len(steps))
            if any(codes):
                break
        return codes


def _run(lines: "list[Line]", *, measured: bool) -> "list[int]":
    wanted = [
        command_line(
            pack,
            args,
            cwd=kwargs.get("cwd"),
            env=kwargs.get("env"),
            use_stdout=kwargs.get("use_stdout", False),
            # milabench's word for a helper process.
            measured=measured and "nolog" not in (pack.config.get("tag") or ()),
        )
        for pack, args, kwargs in lines
    ]
    codes = channel().execute(wanted)
    for line, code in zip(lines, codes):
        if code and line[0].phase != "run":
            raise CommandFailedError(f"{' '.join(map(str, line[1]))}: exit code {code}", code)
    return codes


SingleCmdCommand = Command


class ListCommand(Command):
    """Commands that run at the same time."""

    def __init__(self, *executors: Command, **kwargs: Any) -> None:
        super().__init__(None, **kwargs)
        self.executors = executors

    @property
    def pack(self) -> Any:
        """Pack of the first command."""
        return self.executors[0].pack

    def members(self) -> "tuple[Command, ...]":
        """Returns the commands to run; called once their devices are known."""
        return self.executors

    def packs(self) -> "Iterator[Any]":
        """Yields the packs of all commands."""
        for executor in self.executors:
            yield from executor.packs()

    def cloned(self, name: str, devices: "list[Any]", fields: "dict[str, Any]") -> Any:
        """Returns the same for one of several jobs; each command keeps its own pack's tag."""
        clone = copy.copy(self)
        clone.executors = tuple(e.cloned(name, devices, fields) for e in self.executors)
        return clone

    def copy(self, pack: Any) -> Any:
        """Returns the same for another pack."""
        clone = copy.copy(self)
        clone.executors = tuple(executor.copy(pack) for executor in self.executors)
        return clone

    def commands(self) -> "Iterator[Line]":
        """Yields the command lines of all executors."""
        for executor in self.members():
            for pack, args, kwargs in executor.commands():
                yield pack, args, {**kwargs, **self._kwargs}

    def steps(self) -> "list[list[Line]]":
        """Returns the first steps of all together, then the second ones."""
        steps: list[list[Line]] = []
        for executor in self.members():
            for number, step in enumerate(executor.steps()):
                if number == len(steps):
                    steps.append([])
                steps[number] += [(p, args, {**k, **self._kwargs}) for p, args, k in step]
        return steps


class SequenceCommand(ListCommand):
    """Commands one after the other; the first that fails is the last."""

    def steps(self) -> "list[list[Line]]":
        """Returns the steps of all, one after the other."""
        return [step for executor in self.members() for step in executor.steps()]


class CmdCommand(Command):
    """Any command of a pack."""

    def __init__(self, pack: Any, *cmd_argv: Any, **kwargs: Any) -> None:
        if isinstance(pack, Command):
            raise TypeError(f"{type(self).__name__} takes a pack, not a command")
        super().__init__(pack, **kwargs)
        self.cmd_argv = cmd_argv

    def _argv(self, **_: Any) -> "list[Any]":
        return [*self.cmd_argv]


class SimpleCommand(Command):
    """The pack's arguments at the time of the run, followed by further ones."""

    def __init__(self, executor: "Command | BasePackage", *args: Any, **kwargs: Any) -> None:
        super().__init__(executor, **kwargs)
        self.args = args

    def argv(self, **_: Any) -> "list[Any]":
        """Returns the arguments."""
        return [*self.pack.argv, *self.args]


class VoidCommand(CmdCommand):
    """A command that does nothing."""

    def __init__(self, pack: BasePackage, *argv: Any, **kwargs: Any) -> None:
        super().__init__(pack, "true", *argv, **kwargs)


class PackCommand(CmdCommand):
    """The main script of a pack, or the script that comes first among the arguments."""

    def __init__(
        self, pack: BasePackage, *script_argv: Any, lazy: bool = False, **kwargs: Any
    ) -> None:
        first = script_argv[:1]
        self.script: Any = first[0] if first and XPath(first[0]).exists() else None
        super().__init__(pack, *(script_argv[1:] if self.script else script_argv), **kwargs)
        self.lazy = lazy

    def command_arguments(self, **kwargs: Any) -> "list[Any]":
        """Returns the arguments; if lazy, the pack's current ones."""
        return list(self.pack.argv) if self.lazy else super()._argv(**kwargs)

    def _argv(self, **_: Any) -> "list[Any]":
        script = XPath(self.script or self.pack.main_script)
        path = script if script.is_absolute() else self.pack.dirs.code / script
        if not path.exists():
            raise FileNotFoundError(f"no script {script} in {self.pack.dirs.code}")
        argv = ["-m", str(script)] if path.is_dir() else [str(path)]
        return argv + self.command_arguments()


class WrapperCommand(Command):
    """A command in front of another."""

    def __init__(self, executor: Command, *wrapper_argv: Any, **kwargs: Any) -> None:
        super().__init__(executor, **kwargs)
        self.wrapper_argv = wrapper_argv

    def _argv(self, **_: Any) -> "list[Any]":
        return [*self.wrapper_argv]


def voir_options(pack: Any) -> "list[str]":
    """Returns the options of voir that a pack's configuration asks for, in a file."""
    if not (options := pack.config.get("voir")):
        return []
    text = json.dumps(options, indent=4)
    file = pack.dirs.extra / f"voirconf-{pack.tag}-{sha256(text.encode()).hexdigest()[:16]}.json"
    file.write_text(text)
    return ["--config", str(file)]


class VoirCommand(WrapperCommand):
    """A script by voir."""

    def __init__(self, executor: Command, *voir_argv: Any, **kwargs: Any) -> None:
        super().__init__(executor, **kwargs)
        self.voir_argv = voir_argv

    def _argv(self, **_: Any) -> "list[Any]":
        return ["voir", *voir_options(self.pack), *self.voir_argv]
