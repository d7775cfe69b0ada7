"""Commands by the names that they had in milabench of 2023."""

from .commands import AccelerateLaunchCommand as AccelerateLaunchExecutor
from .commands import CmdCommand as CmdExecutor
from .commands import Command as Executor
from .commands import DockerRunCommand as DockerRunExecutor
from .commands import ListCommand as ListExecutor
from .commands import NJobs, PerGPU
from .commands import PackCommand as PackExecutor
from .commands import SCPCommand as SCPExecutor
from .commands import SequenceCommand as SequenceExecutor
from .commands import SingleCmdCommand as SingleCmdExecutor
from .commands import SSHCommand as SSHExecutor
from .commands import TorchRunCommand as TorchRunExecutor
from .commands import VoidCommand as VoidExecutor
from .commands import VoirCommand as VoirExecutor
from .commands import WrapperCommand as WrapperExecutor

__all__ = [
    "AccelerateLaunchExecutor",
    "CmdExecutor",
    "DockerRunExecutor",
    "Executor",
    "ListExecutor",
    "NJobs",
    "PackExecutor",
    "PerGPU",
    "SCPExecutor",
    "SSHExecutor",
    "SequenceExecutor",
    "SingleCmdExecutor",
    "TorchRunExecutor",
    "VoidExecutor",
    "VoirExecutor",
    "WrapperExecutor",
]
