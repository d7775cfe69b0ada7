"""Base class of a benchfile's `__pack__`."""

import json
import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from . import CommandFailedError, channel
from .fs import XPath
from .merge import merge
from .utils import assemble_options

_CACHED_PHASES = ("prepare", "run")


class BasePackage:
    """A benchmark: its configuration, its folders, and commands in its environment.

    Attributes:
      config: its entry in the YAML.
      dirs: `base`, `code`, `venv`, `data`, `runs`, `extra`, `cache`, as paths.
      phase: `install`, `pin`, `prepare` or `run`.
    """

    def __init__(self, config: "dict[str, Any]", core: Any = None) -> None:
        self.config = config
        self.core = core
        self.pack_path = XPath(config["definition"])
        self.dirs = SimpleNamespace(**{n: XPath(path) for n, path in config["dirs"].items()})
        self.dirs.code = self.pack_path
        self.phase: str | None = config.get("phase")
        self.processes: list[Any] = []
        self.dirs.extra.mkdir(parents=True, exist_ok=True)

    def copy(self, config: "dict[str, Any]") -> "BasePackage":
        """Returns another of the same kind, with this over its configuration."""
        return type(self)(merge(self.config, config))

    @property
    def argv(self) -> "list[str]":
        """Arguments of the main script."""
        return assemble_options(self.config.get("argv", []))

    @property
    def tag(self) -> str:
        """Name, followed by the job or the device."""
        return ".".join(self.config.get("tag") or [self.config["name"]])

    @property
    def logdir(self) -> XPath:
        """Folder of this run."""
        return XPath(self.dirs.runs / self.config["run_name"])

    @property
    def working_directory(self) -> XPath:
        """Directory of the scripts."""
        return XPath(self.dirs.code)

    def logfile(self, extension: str) -> XPath:
        """Returns a file of this run."""
        return XPath(self.logdir / f"{self.tag}.{extension}")

    def resolve_argument(self, name: str, default: Any = None) -> Any:
        """Returns one value of a mapping's `argv`."""
        argv = self.config.get("argv")
        return argv.get(name, default) if isinstance(argv, dict) else default

    def make_env(self) -> "dict[str, str]":
        """Returns additional environment variables for prepare and run."""
        return {}

    def full_env(self, env: "dict[str, str] | None" = None) -> "dict[str, str]":
        """Returns all variables that commands get from here."""
        return {**self.make_env(), **self.config.get("env", {}), **(env or {})}

    async def message(self, *parts: Any) -> None:
        """Shows a message to the user."""
        channel().say("message", text=" ".join(map(str, parts)))

    async def message_error(self, error: Any) -> None:
        """Shows an error to the user."""
        await self.message(f"{type(error).__name__}: {error}")

    async def send(self, **fields: Any) -> None:
        """Sends an event."""
        channel().say("event", fields=fields)

    async def execute(
        self,
        *args: Any,
        cwd: Any = None,
        env: "dict[str, str] | None" = None,
        use_stdout: bool = False,
        **_: Any,
    ) -> int:
        """Runs a command in the benchmark's environment, by default in its folder.

        Raises:
          CommandFailedError: while installing or preparing, if its exit code is not 0.
        """
        command = command_line(self, [*args], cwd=cwd, env=env, use_stdout=use_stdout)
        [code] = channel().execute([command])
        if code and self.phase != "run":
            raise CommandFailedError(f"{' '.join(map(str, args))}: exit code {code}", code)
        return code

    async def python(self, *args: Any, **kwargs: Any) -> int:
        """Runs a Python script."""
        return await self.execute("python", *args, **kwargs)

    async def voir(self, script: Any, args: Sequence[Any] = (), **kwargs: Any) -> int:
        """Runs a script by voir."""
        from .commands import voir_options

        wrapper = kwargs.pop("wrapper", [])
        given = script if isinstance(script, list) else [self.dirs.code / script]
        return await self.execute(*wrapper, "voir", *voir_options(self), *given, *args, **kwargs)

    async def pip_install(self, *args: Any) -> int:
        """Installs into the benchmark's environment, as `pip install` does."""
        pip = self.config.get("pip") or {}
        given = [str(item) for item in args]
        if pip.get("constraints"):
            constraints = self.dirs.extra / "pip-constraints.txt"
            constraints.write_text("\n".join(pip["constraints"]) + "\n")
            given += ["-c", str(constraints)]
        for line in pip.get("args", []):
            given += line.split()
        return await self.execute("pip", "install", *given)

    def conda_install(self, *_: Any, **__: Any) -> None:
        """Conda is not offered."""
        raise NotImplementedError("conda is not supported; list packages in requirements.in")


class Package(BasePackage):
    """A pack that installs `requirements.in`, runs `prepare.py`, and `main.py` by voir."""

    main_script = "main.py"
    prepare_script = "prepare.py"
    base_requirements: "str | list[str]" = "requirements.in"

    @staticmethod
    def planned(command: Any) -> Any:
        """Returns the command once for each device or job; the suite decides how often."""
        return command

    def make_env(self) -> "dict[str, str]":
        """Returns the folders of milabench, under the names of its guide and of its code."""
        env = {f"MILABENCH_DIR_{n.upper()}": str(p) for n, p in self.config["dirs"].items()}
        env["MILABENCH_DATA_DIR"] = str(self.dirs.data)
        env["MILABENCH_BASE"] = str(self.dirs.base)
        env["MILABENCH_CONFIG"] = json.dumps(self.config, default=str)
        env["MILABENCH_MANAGED"] = "1"
        if self.phase in _CACHED_PHASES:
            env["XDG_CACHE_HOME"] = str(self.dirs.cache)
            env.setdefault("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", ""))
            if not env["OMP_NUM_THREADS"]:
                del env["OMP_NUM_THREADS"]
        return env

    def requirements_map(self, variant: "str | None" = None) -> "dict[XPath, XPath]":
        """Returns the locked requirements of each file of requirements."""
        variant = variant or self.config.get("install_variant")
        base = self.base_requirements
        names = [base] if isinstance(base, str) else base
        files = [self.dirs.code / name for name in names]
        if variant == "unpinned":
            return {file: file for file in files}
        suffix = f".{variant}.txt" if variant else ".txt"
        return {file: file.with_suffix(suffix) for file in files}

    def requirements_files(self, variant: "str | None" = None) -> "list[XPath]":
        """Returns the requirements to install from."""
        return list(self.requirements_map(variant).values())

    async def install(self) -> None:
        """Installs the requirements.

        Raises:
          FileNotFoundError: this variant has no requirements.
        """
        for file in self.requirements_files():
            if not file.exists():
                raise FileNotFoundError(
                    f"no {file.name} in {file.parent}; write it with `cbs bench pin --variant`, or "
                    "install from requirements.in with `install_variant: unpinned`"
                )
            await self.pip_install("-r", file)

    async def pin(
        self,
        clear_previous: bool = True,
        pip_compile_args: Sequence[str] = (),
        input_files: Sequence[Any] = (),
        constraints: Sequence[Any] = (),
    ) -> None:
        """Writes the locked requirements of this variant."""
        for base, locked in self.requirements_map().items():
            if not base.exists():
                raise FileNotFoundError(f"no {base.name} in {base.parent}")
            if clear_previous:
                locked.rm()
            limits = [part for file in constraints for part in ("-c", str(file))]
            # Locked files contain the command that made them: remove this machine's folders.
            inside = [os.path.relpath(file, self.dirs.code) for file in (locked, base)]
            await self.execute(
                *("pip-compile", "-o", inside[0], *pip_compile_args, *limits),
                *(inside[1], *input_files),
            )

    def build_prepare_plan(self) -> Any:
        """Returns the prepare command; without a script, one that does nothing."""
        from .commands import CmdCommand, VoidCommand

        script = self.prepare_script and self.dirs.code / self.prepare_script
        return (
            CmdCommand(self, script, *self.argv)
            if script and script.exists()
            else VoidCommand(self)
        )

    async def prepare(self) -> None:
        """Runs the command from `build_prepare_plan`."""
        await self.build_prepare_plan().execute()

    def build_run_plan(self) -> Any:
        """Returns the command that is measured."""
        from .commands import PackCommand, VoirCommand

        # voir looks for its voirfile in the working directory, and above.
        own = type(self).working_directory is not BasePackage.working_directory
        main = self.dirs.code / self.main_script
        folder = self.working_directory if own else main.parent
        return VoirCommand(PackCommand(self, *self.argv, lazy=True), cwd=folder)

    async def run(self) -> Any:
        """Runs as many copies of the command from `build_run_plan` as the configuration plans."""
        return await self.planned(self.build_run_plan()).execute()


def command_line(
    pack: BasePackage,
    args: "list[Any]",
    *,
    cwd: Any = None,
    env: "dict[str, str] | None" = None,
    use_stdout: bool = False,
    measured: bool = True,
) -> "dict[str, Any]":
    """Returns a command as the suite reads it."""
    folder = pack.working_directory
    return {
        "argv": [str(item) for item in args],
        # A folder that the installation fetches does not exist yet.
        "cwd": str(cwd or (folder if folder.exists() else pack.dirs.code)),
        "env": {name: str(value) for name, value in pack.full_env(env).items()},
        "use_stdout": bool(use_stdout),
        "measured": measured,
        "tag": pack.tag,
        "devices": list(pack.config.get("devices") or []),
    }
