"""Commands that a benchfile makes its plans of."""

import copy
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from ..channel import CommandFailedError, channel
from ..fs import XPath
from ..pack import BasePackage, command_line
from ..utils import select_nodes

Line = tuple[BasePackage, list[Any], dict[str, Any]]


class Command:
    """A command line, or several, of a pack or of other commands."""

    def __init__(self, executor: "Command | BasePackage | None", **kwargs: Any) -> None:
        self.exec = executor if isinstance(executor, Command) else None
        self._pack = executor if isinstance(executor, BasePackage) else None
        self._kwargs = kwargs

    @property
    def pack(self) -> Any:
        """The pack whose command this is in the end."""
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
        found = copy.copy(self)
        found.exec = None if self.exec is None else self.exec.copy(pack)
        found._kwargs = dict(self._kwargs)
        found._set_pack(pack)
        return found

    def cloned(self, name: str, devices: "list[Any]", fields: "dict[str, Any]") -> Any:
        """Returns the same for one of several jobs, whose name comes behind the tag."""
        config = self.pack.config
        tag = [*(config.get("tag") or [config["name"]]), name]
        return self.copy(self.pack.copy({"tag": tag, "devices": devices, **fields}))

    def use_stdout(self) -> "Command":
        """Says that events come in escape sequences on stdout; returns itself."""
        self._kwargs["use_stdout"] = True
        return self

    def kwargs(self) -> "dict[str, Any]":
        """Returns what goes to `execute` besides the command line."""
        return {**(self.exec.kwargs() if self.exec else {}), **self._kwargs}

    def commands(self) -> "Iterator[Line]":
        """Yields pack, arguments and what else goes to `execute`, of each command."""
        yield self.pack, self.argv(), self.kwargs()

    def argv(self, **kwargs: Any) -> "list[Any]":
        """Returns the command line."""
        inner = self.exec.argv(**kwargs) if self.exec is not None else []
        return self._argv(**kwargs) + inner

    def _argv(self, **kwargs: Any) -> "list[Any]":
        return []

    def steps(self) -> "list[list[Line]]":
        """Returns what is to run at once, and what after that."""
        return [list(self.commands())]

    async def execute(self, *_: Any, **__: Any) -> "list[int]":
        """Runs all commands, those of a step at once; returns their exit codes.

        A step in which one is not 0 is the last.

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
            # milabench's word for a process that only helps.
            measured=measured and "nolog" not in (pack.config.get("tag") or ()),
        )
        for pack, args, kwargs in lines
    ]
    codes = channel().execute(wanted)
    for line, code in zip(lines, codes):
        if code and line[0].phase != "run":
            raise CommandFailedError(f"{' '.join(map(str, line[1]))}: exit code {code}")
    return codes


SingleCmdCommand = Command


class ListCommand(Command):
    """Commands that run at the same time."""

    def __init__(self, *executors: Command, **kwargs: Any) -> None:
        super().__init__(None, **kwargs)
        self.executors = executors

    @property
    def pack(self) -> Any:
        """That of the first."""
        return self.executors[0].pack

    def packs(self) -> "Iterator[Any]":
        """Yields the packs of all commands."""
        for executor in self.executors:
            yield from executor.packs()

    def cloned(self, name: str, devices: "list[Any]", fields: "dict[str, Any]") -> Any:
        """Returns the same for one of several jobs; each command keeps its own pack's tag."""
        found = copy.copy(self)
        found.executors = tuple(e.cloned(name, devices, fields) for e in self.executors)
        return found

    def copy(self, pack: Any) -> Any:
        """Returns the same for another pack."""
        found = copy.copy(self)
        found.executors = tuple(executor.copy(pack) for executor in self.executors)
        return found

    def commands(self) -> "Iterator[Line]":
        """Yields those of all executors."""
        for executor in self.executors:
            for pack, args, kwargs in executor.commands():
                yield pack, args, {**kwargs, **self._kwargs}

    def steps(self) -> "list[list[Line]]":
        """Returns the first steps of all together, then the second ones."""
        found: list[list[Line]] = []
        for executor in self.executors:
            for number, step in enumerate(executor.steps()):
                if number == len(found):
                    found.append([])
                found[number] += [(p, args, {**k, **self._kwargs}) for p, args, k in step]
        return found


class SequenceCommand(ListCommand):
    """Commands one after the other; the first that fails is the last."""

    def steps(self) -> "list[list[Line]]":
        """Returns the steps of all, one after the other."""
        return [step for executor in self.executors for step in executor.steps()]


class CmdCommand(Command):
    """Any command of a pack."""

    def __init__(self, pack: Any, *cmd_argv: Any, **kwargs: Any) -> None:
        if isinstance(pack, Command):
            raise TypeError(f"{type(self).__name__} takes a pack, not a command")
        super().__init__(pack, **kwargs)
        self.cmd_argv = cmd_argv

    def _argv(self, **_: Any) -> "list[Any]":
        return [*self.cmd_argv]


class VoidCommand(CmdCommand):
    """Nothing."""

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
        """Returns the arguments: those of the pack as they are by then, if lazy."""
        return list(self.pack.argv) if self.lazy else super()._argv(**kwargs)

    def _argv(self, **_: Any) -> "list[Any]":
        script = XPath(self.script or self.pack.main_script)
        path = script if script.is_absolute() else self.pack.dirs.code / script
        if not path.exists():
            raise FileNotFoundError(f"there is no script {script} in {self.pack.dirs.code}")
        found = ["-m", str(script)] if path.is_dir() else [str(path)]
        return found + self.command_arguments()


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


class TorchRunCommand(WrapperCommand):
    """A process for each device of the pack, by torchrun; with one device the command itself."""

    def __init__(self, executor: Command, *torchrun_argv: Any, **kwargs: Any) -> None:
        super().__init__(executor, *torchrun_argv, **kwargs)

    def _argv(self, **_: Any) -> "list[Any]":
        count = len(self.pack.config.get("devices") or [])
        assert self.exec is not None
        first = next(iter(self.exec.argv()), None)
        if count <= 1:
            return [] if first in ("voir", "python") else ["python"]
        found = ["torchrun", *self.wrapper_argv, f"--nproc_per_node={count}"]
        if first in ("voir", "python"):
            found.append("--no-python")
        elif first is not None and not XPath(first).exists():
            found.append("-m")
        return [*found, "--"]


TorchrunAllGPU = TorchrunAllNodes = TorchRunCommand


class ActivatorCommand(Command):
    """A pack's own `activator`, which gets the path of the environment."""

    def _argv(self, **_: Any) -> "list[Any]":
        return [str(self.pack.dirs.code / "activator"), str(self.pack.dirs.venv)]


class SSHCommand(WrapperCommand):
    """A command on another machine; here it is always this one."""

    def __init__(self, executor: Command, host: str = "", *_: Any, **kwargs: Any) -> None:
        for name in ("user", "key", "port"):
            kwargs.pop(name, None)
        super().__init__(executor, **kwargs)
        self.host = host


class DockerRunCommand(WrapperCommand):
    """A command in a container; without an image it is the command itself."""

    def __init__(self, executor: Command, image: "str | None", *_: Any, **kwargs: Any) -> None:
        if image:
            raise NotImplementedError(f"containers are not offered: {image}")
        super().__init__(executor, **kwargs)
        self.image = image


class NJobs(ListCommand):
    """A command several times at once."""

    def __init__(
        self, executor: Command, n: int, gpus: "list[Any] | None" = None, **kwargs: Any
    ) -> None:
        self.n = n
        devices = [gpu["device"] for gpu in gpus or []]
        super().__init__(
            *(executor.cloned(str(i), devices, {"job-number": i}) for i in range(n)), **kwargs
        )


class PerGPU(ListCommand):
    """A command once for each GPU; once on the CPU if there is none."""

    def __init__(self, executor: Command, gpus: "list[Any] | None" = None, **kwargs: Any) -> None:
        found = [
            executor.cloned(
                f"D{gpu['device']}",
                [gpu["device"]],
                {
                    "device": gpu["device"],
                    "env": {gpu["selection_variable"]: str(gpu["device"])},
                },
            )
            for gpu in gpus or []
        ]
        super().__init__(*(found or [executor.cloned("D0", [], {"device": 0})]), **kwargs)


class AccelerateLaunchCommand(Command):
    """The main script by Hugging Face's accelerate."""

    def __init__(
        self, pack: BasePackage, rank: int = 0, *accelerate_argv: Any, **kwargs: Any
    ) -> None:
        super().__init__(pack, **kwargs)
        self.accelerate_argv = accelerate_argv
        self.rank = rank

    def _argv(self, **_: Any) -> "list[Any]":
        config = self.pack.config
        count = max(1, len(config.get("devices") or []))
        argv = config.get("argv") or {}
        threads = argv.get("--cpus_per_gpu", 8) if isinstance(argv, dict) else 8
        many = (
            ["--use_deepspeed", "--deepspeed_multinode_launcher=standard", "--zero_stage=2"]
            if config.get("use_deepspeed")
            else (["--multi_gpu"] if count > 1 else [])
        )
        if not config.get("devices"):
            many = ["--cpu"]
        return [
            *("accelerate", "launch", "--dynamo_backend=no"),
            f"--mixed_precision={'no' if not config.get('devices') else 'fp16'}",
            *(f"--machine_rank={self.rank}", "--num_machines=1", *many),
            f"--num_cpu_threads_per_process={threads}",
            *(f"--num_processes={count}", *self.accelerate_argv),
            *(str(self.pack.dirs.code / "main.py"), *self.pack.argv),
            *("--cache", str(self.pack.dirs.cache)),
        ]


class ForeachNode(ListCommand):
    """A command on each machine: on this one."""

    base_tags = ()

    def __init__(self, executor: Any, **kwargs: Any) -> None:
        options = kwargs.pop("use_stdout", None)
        super().__init__(executor, **({"use_stdout": options} if options else {}))


AccelerateAllNodes = ForeachNode


def get_system_nodes(config: "dict[str, Any]") -> "list[Any]":
    """Returns the machines: this one."""
    return list(select_nodes(config["system"]["nodes"], 1))
