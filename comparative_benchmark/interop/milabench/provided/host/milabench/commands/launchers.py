"""Commands in front of others: several at once, one for each device, or on other machines.

There is one machine, so what would reach another one is the command itself.
"""

from typing import Any

from ..fs import XPath
from ..merge import merge
from ..pack import BasePackage
from ..utils import select_nodes
from .base import CmdCommand, Command, ListCommand, WrapperCommand


def activator_script() -> str:
    """Returns what runs a command in an environment: `env`, since all have theirs on the path."""
    return "env"


def clone_with(config: "dict[str, Any]", update: "dict[str, Any]") -> Any:
    """Returns a configuration with another over it."""
    return merge(config, update)


def node_address(node: "dict[str, Any]") -> Any:
    """Returns the address of a machine."""
    return node.get("ip") or node.get("hostname")


class TorchrunAllGPU(WrapperCommand):
    """A process for each device of the pack, by torchrun; with one device the command itself."""

    executable: Any = "torchrun"

    def __init__(
        self, executor: Command, *torchrun_argv: Any, module: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(executor, *torchrun_argv, **kwargs)
        self.binfolder = executor.pack.config["dirs"]["venv"]
        self.module = module

    def get_cmd(self) -> Any:
        """Returns the first word of the command."""
        assert self.exec is not None
        return next(iter(self.exec.argv()), None)

    def device_count(self) -> int:
        """Returns how many devices the pack has."""
        return len(self.pack.config.get("devices") or [])

    def should_wrap(self) -> bool:
        """Returns whether the launcher is needed."""
        return self.device_count() > 1

    def _argv(self, **_: Any) -> "list[Any]":
        first = self.get_cmd()
        if not self.should_wrap():
            return [] if first in ("voir", "python") else ["python"]
        argv = [self.executable, *self.wrapper_argv]
        if (self.pack.config.get("plan") or {}).get("method") != "per_gpu":
            argv.append(f"--nproc-per-node={max(1, self.device_count())}")
        if first in ("voir", "python"):
            argv.append("--no-python")
        elif self.module or (first and "/" not in str(first) and not XPath(first).exists()):
            argv.append("-m")
        return [*argv, "--"]


TorchRunCommand = TorchrunAllGPU


class ActivatorCommand(Command):
    """A command in the environment, by the pack's `activator`, if defined.

    Commands have the environment on their path in any case.
    """

    def _argv(self, **_: Any) -> "list[Any]":
        script = self.pack.dirs.code / "activator"
        return [str(script), str(self.pack.dirs.venv)] if script.exists() else []


class WorkingDir(WrapperCommand):
    """A command in the working directory of its pack."""

    def __init__(self, executor: Command, **kwargs: Any) -> None:
        super().__init__(executor, **{"cwd": executor.pack.working_directory, **kwargs})


class SSHCommand(WrapperCommand):
    """A command on another machine; here it is always this one."""

    def __init__(self, executor: Command, host: str = "", *_: Any, **kwargs: Any) -> None:
        for name in ("user", "key", "port"):
            kwargs.pop(name, None)
        super().__init__(executor, **kwargs)
        self.host = host


class SCPCommand(CmdCommand):
    """A copy of a folder on another machine; does nothing on a single machine."""

    def __init__(self, pack: BasePackage, *_: Any, **__: Any) -> None:
        super().__init__(pack, "true")


class DockerRunCommand(WrapperCommand):
    """A command in a container; without an image it is the command itself."""

    def __init__(self, executor: Command, image: Any = None, *_: Any, **kwargs: Any) -> None:
        image = getattr(image, "image", image)
        if image:
            raise NotImplementedError(f"containers are not supported: {image}")
        super().__init__(executor, **kwargs)
        self.image = image


class AccelerateLaunchCommand(Command):
    """The main script, or another command, by Hugging Face's accelerate."""

    def __init__(
        self, executor: "Command | BasePackage", rank: int = 0, *accelerate_argv: Any, **kwargs: Any
    ) -> None:
        super().__init__(executor, **kwargs)
        self.accelerate_argv = accelerate_argv
        self.rank = rank

    def _argv(self, **_: Any) -> "list[Any]":
        config = self.pack.config
        count = max(1, len(config.get("devices") or []))
        placement = (
            ["--use_deepspeed", "--deepspeed_multinode_launcher=standard", "--zero_stage=2"]
            if config.get("use_deepspeed")
            else (["--multi_gpu"] if count > 1 else [])
        )
        if not config.get("devices"):
            placement = ["--cpu"]
        argv = [
            *("accelerate", "launch", "--dynamo_backend=no"),
            f"--mixed_precision={'bf16' if config.get('devices') else 'no'}",
            *(f"--machine_rank={self.rank}", "--num_machines=1", *placement),
            f"--num_cpu_threads_per_process={self.pack.resolve_argument('--cpus_per_gpu', 8)}",
            *(f"--num_processes={count}", *self.accelerate_argv),
        ]
        if self.exec is not None:
            return [*argv, "--no_python"] if self.exec.argv()[:1] == ["voir"] else argv
        script = str(self.pack.dirs.code / "main.py")
        return [*argv, script, *self.pack.argv, "--cache", str(self.pack.dirs.cache)]


class ClientServer(ListCommand):
    """A client and its server, at the same time."""

    def __init__(self, _: BasePackage, client: Command, server: Command, **kwargs: Any) -> None:
        kwargs.pop("different_nodes", None)
        super().__init__(client, server, **kwargs)
        self.client, self.server = client, server

    @staticmethod
    def new_pack(pack: BasePackage, tag: str, has_logs: bool = True) -> BasePackage:
        """Returns the pack of one of the two; without logs it only helps."""
        tags = [*pack.config["tag"], tag, *([] if has_logs else ["nolog"])]
        return pack.copy({"tag": tags})

    @staticmethod
    def new_client_pack(pack: BasePackage, has_logs: bool = True) -> BasePackage:
        """Returns the pack of the client."""
        return ClientServer.new_pack(pack, "client", has_logs)

    @staticmethod
    def new_server_pack(pack: BasePackage, has_logs: bool = True) -> BasePackage:
        """Returns the pack of the server."""
        return ClientServer.new_pack(pack, "server", has_logs)


class ForeachNode(ListCommand):
    """A command on each machine: on this one."""

    def __init__(self, executor: Command, use_docker: bool = True, **kwargs: Any) -> None:
        super().__init__(executor, **kwargs)
        self.use_docker = use_docker
        self.base_tags = executor.pack.config["tag"]

    @property
    def executor(self) -> Command:
        """The command."""
        return self.executors[0]

    def members(self) -> "tuple[Command, ...]":
        """Returns the command of this machine."""
        return (self.single_node(),)

    def single_node(self) -> Command:
        """Returns the command as it runs on a single machine."""
        return self.executor

    def make_new_node_pack(self, rank: int, node: "dict[str, Any]", base: Command) -> Any:
        """Returns the pack of a machine."""
        tags = [*self.base_tags, node["name"], *(["nolog"] if rank else [])]
        return base.pack.copy(merge(base.pack.config, {"tag": tags}))

    def make_new_node_executor(self, rank: int, node: "dict[str, Any]", base: Command) -> Any:
        """Returns the command of a machine."""
        return base.copy(self.make_new_node_pack(rank, node, base))


class TorchrunAllNodes(ForeachNode):
    """A process for each device of each machine, by torchrun."""

    def __init__(self, executor: Command, *args: Any, **kwargs: Any) -> None:
        super().__init__(self.make_base_executor(TorchrunAllGPU, executor, *args, **kwargs))

    @staticmethod
    def make_base_executor(launcher: Any, executor: Command, *args: Any, **kwargs: Any) -> Any:
        """Returns the command for the devices of one machine."""
        return launcher(executor, *args, **kwargs)


class AccelerateAllNodes(ForeachNode):
    """A process for each device of each machine, by accelerate."""

    def single_node(self) -> Command:
        """Returns the plain command if there is at most one device."""
        if len(self.executor.pack.config.get("devices") or []) <= 1:
            return self.executor
        return AccelerateLaunchCommand(self.executor)


def get_system_nodes(config: "dict[str, Any]") -> "list[Any]":
    """Returns the machines: this one."""
    return list(select_nodes(config["system"]["nodes"], 1))


class NJobs(ListCommand):
    """Several concurrent copies of a command."""

    def __init__(
        self, executor: Command, n: int, gpus: "list[Any] | None" = None, **kwargs: Any
    ) -> None:
        self.n = n
        devices = [gpu["device"] for gpu in gpus or []]
        super().__init__(
            *(executor.cloned(str(i), devices, {"job-number": i}) for i in range(n)), **kwargs
        )


class PerGPU(ListCommand):
    """A command once for each GPU; once on the CPU without a GPU."""

    def __init__(self, executor: Command, gpus: "list[Any] | None" = None, **kwargs: Any) -> None:
        found = [
            executor.cloned(
                f"D{gpu['device']}",
                [gpu["device"]],
                {"device": gpu["device"], "env": {gpu["selection_variable"]: str(gpu["device"])}},
            )
            for gpu in gpus or []
        ]
        super().__init__(*(found or [executor.cloned("D0", [], {"device": 0})]), **kwargs)
