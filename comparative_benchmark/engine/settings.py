"""Settings shared by all trials of a run, the Python environments of workers, and their sessions.

`--env old=PATH,new=PATH`: each PATH is a virtual environment or its interpreter. Workers in all
environments run this harness and its models, so that only the installed packages differ.
"""

import atexit
import functools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import attrs

import openxla.benchmark
from comparative_benchmark.analysis.machine.host import ASKED, Threads, default_threads
from comparative_benchmark.analysis.machine.other_processes import default_limit_bytes
from comparative_benchmark.analysis.machine.worker_settings import for_worker
from comparative_benchmark.analysis.stats.planning import CompileOnly, FixedCounts, SamplingRule
from comparative_benchmark.backends.api import BackendInfo, OutputMode, backends, get_backend
from comparative_benchmark.engine.messages import ProcessTrack
from comparative_benchmark.engine.session import (
    CPUS_VARIABLE,
    HIDDEN_VARIABLE,
    Hidden,
    InProcessSession,
    Limits,
    Session,
    call_function,
)
from comparative_benchmark.errors import UsageError
from openxla.benchmark.def_types import DeviceSpec
from openxla.benchmark.devices import HOST_CPU
from openxla.benchmark.files import temporary_folder
from openxla.benchmark.installation import ROOT_DIR_VARIABLE, checkout, root_dir

# Imports of the worker itself, apart from the standard library and frameworks.
_HARNESS_MODULES = ("attrs", "numpy", "ml_dtypes", "psutil")
_OLDEST_PYTHON = (3, 11)
_PATIENCE_S = 60

SessionKind = TypeVar("SessionKind", bound=Session)
T = TypeVar("T")

_QUESTION = """
import importlib.metadata as m, importlib.util as u, json, sys
def missing(name):
    try:
        return u.find_spec(name) is None
    except ModuleNotFoundError:
        return True
# A package may be there twice: the first on the path is the one that is imported.
# An interrupted installation leaves a folder without metadata.
whole = [d for d in m.distributions() if d.read_text("METADATA") or d.read_text("PKG-INFO")]
found = {d.metadata["Name"]: d.version for d in reversed(whole)}
print(json.dumps({
    "version": list(sys.version_info[:3]),
    "packages": [{"name": name, "version": found[name]} for name in sorted(found, key=str.lower)],
    "missing": [name for name in sys.argv[1:] if missing(name)],
}))
"""


class UnusableEnvironmentError(UsageError, ValueError):
    """An environment cannot be used; the message follows the option's name and gives the remedy."""


@functools.cache
def _roots() -> tuple[str, ...]:
    """Returns folders that contain our packages, but not those installed next to them."""
    ours = [Path(__file__).parents[1], Path(str(openxla.benchmark.__file__)).parents[1]]
    if checkout() is not None:
        return tuple(str(package.parent) for package in ours)
    folder = Path(tempfile.mkdtemp(prefix="cbs-packages-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for package in ours:
        (folder / package.name).symlink_to(package)
    return (str(folder),)


@attrs.frozen(kw_only=True)
class Environment:
    """A named Python environment.

    Attributes:
      name: name chosen by the user, as displayed in tables.
      python: path of the interpreter.
      python_version: version, e.g. `3.11.9`.
      packages: installed packages, in the format of `host.python_environment`.
      missing: modules required by backends that are not installed.
    """

    name: str
    python: str
    python_version: str
    packages: tuple[dict[str, str], ...] = attrs.field(eq=False)
    missing: frozenset[str]

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of workers in this environment; our code is first on their path."""
        given = os.environ.get("PYTHONPATH")
        return {"PYTHONPATH": os.pathsep.join([*_roots(), *([given] if given else [])])}


def parse_environments(text: str) -> list[Environment]:
    """Returns the environments given as `name=PATH,name=PATH`.

    Raises:
      UnusableEnvironmentError: an environment cannot be used.
    """
    return [_inspect(name, python) for name, python in interpreters(text).items()]


def interpreters(text: str) -> dict[str, str]:
    """Returns the interpreter path of each name in `name=PATH,name=PATH`, without running it.

    Raises:
      UnusableEnvironmentError: an interpreter does not exist.
    """
    pythons: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, path = item.partition("=")
        if not separator or not name.isidentifier() or not path:
            raise UnusableEnvironmentError(f"{item!r} is not NAME=PATH")
        if name in pythons:
            raise UnusableEnvironmentError(f"names {name!r} twice")
        pythons[name] = _interpreter(name, Path(path).expanduser())
    if not pythons:
        raise UnusableEnvironmentError("names no environment: expected NAME=PATH[,NAME=PATH]")
    return pythons


def _interpreter(name: str, path: Path) -> str:
    """Returns the interpreter of a virtual environment, or `path` itself if it is one.

    Symbolic links are not resolved, because a virtual environment's interpreter is a link.
    """
    python = path / "bin" / "python" if path.is_dir() else path
    if not (found := shutil.which(python)):
        raise UnusableEnvironmentError(
            f"{name}={path}: no Python interpreter found; create one with `python -m venv {path}`"
        )
    return str(Path(found).absolute())


def _inspect(name: str, python: str) -> Environment:
    wanted = (
        names
        for backend in backends().values()
        for names in (*backend.modules.values(), *backend.program_modules.values())
    )
    modules = sorted({module for names in wanted for module in names})
    try:
        for safe in ("-P", "-I"):  # Python 3.10 has no option -P
            asked = subprocess.run(
                [python, safe, "-c", _QUESTION, *_HARNESS_MODULES, *modules],
                capture_output=True,
                text=True,
                check=False,
                timeout=_PATIENCE_S,
            )
            if asked.returncode == 0:
                break
        asked.check_returncode()
        answer = json.loads(asked.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        words = str(getattr(error, "stderr", "") or error).strip().splitlines()
        raise UnusableEnvironmentError(
            f"{name}: cannot run {python} ({words[-1] if words else error})"
        ) from error
    version = ".".join(map(str, answer["version"]))
    if tuple(answer["version"]) < _OLDEST_PYTHON:
        oldest = ".".join(map(str, _OLDEST_PYTHON))
        reason = f"{name}: expected Python {oldest} or newer, got {version}"
        raise UnusableEnvironmentError(reason)
    if lacking := [module for module in _HARNESS_MODULES if module in answer["missing"]]:
        packages = " ".join(module.replace("_", "-") for module in lacking)
        raise UnusableEnvironmentError(
            f"{name}: workers also need {', '.join(lacking)}; "
            f"run {python} -m pip install {packages}"
        )
    return Environment(
        name=name,
        python=python,
        python_version=version,
        packages=tuple(answer["packages"]),
        missing=frozenset(answer["missing"]),
    )


@attrs.frozen(kw_only=True)
class ProcessPlan:
    """One process of a trial, before it starts.

    Attributes:
      replicate: index of the process within its trial, from 0.
      work_dir: folder for files of the worker.
      cache_dir: folder for its compile caches.
      log_file: file for its output.
      cold: whether the caches are empty.
      track: its track on the timeline.
      framework: framework of the model.
      exports: exports of the trial's first process, by type; empty for a process that exports.
      compiles_anew: whether the caches are empty although the trial has compiled before.
      hidden: folders to hide from the worker; shared workers hide their pool's folders.
    """

    replicate: int
    work_dir: Path
    cache_dir: Path
    log_file: Path
    cold: bool
    track: ProcessTrack
    framework: str
    exports: Mapping[str, Sequence[str]] = attrs.field(factory=dict)
    compiles_anew: bool = False
    hidden: Hidden | None = None


@attrs.frozen(kw_only=True)
class RunSettings:
    """Settings of a run.

    Attributes:
      device: device to measure.
      sampling: rule for warm-up and sampling.
      threads: number of threads that each backend may use.
      threads_from: the rule that determined `threads`, see `analysis.machine.host`; None if
        unknown.
      cpus: CPUs that workers are pinned to; empty for all CPUs available to this process.
      baseline: name of the competitor that is the baseline of ratios, if known.
      limits: limits of each worker.
      log_dir: folder for the workers' output.
      budget_s: budget of the whole run, see `RunBudget`; None for no limit.
      until: `time.monotonic()` at the end of the budget; no replicate but the first starts later.
      profile: whether to profile the last process of each trial after its measurement.
      profile_dir: folder for profiles.
      only_profiled: whether workers are only profiled, not measured, and compiled for that.
      generate_artifacts: whether to generate artifacts even if valid ones exist.
      use_only_local: whether to use only existing artifacts, without generating or fetching.
      use_locks: whether to fetch artifacts listed in lock files; otherwise all are generated here.
      exported_programs: whether to start from published programs, if the backend can.
      in_process: whether to run without worker processes, for debugging.
      keep_exports: whether later processes of a trial start from the exports of the first one.
      share_workers: whether the n-th process of a competitor is shared by all workloads.
      load_together: whether workers may load in parallel, while nothing is measured.
      outputs: requested handling of outputs; None for the default of each stack.
      inherit_environment: whether workers get all variables of this process's environment, instead
        of only those from `analysis.machine.worker_settings.for_worker`.
    """

    device: DeviceSpec
    sampling: CompileOnly | FixedCounts | SamplingRule = attrs.field(factory=SamplingRule)
    threads: int = attrs.field(factory=lambda: default_threads().number)
    threads_from: str | None = None
    cpus: tuple[int, ...] = ()
    baseline: str | None = None
    limits: Limits = attrs.field(factory=Limits)
    log_dir: Path = Path("logs")
    budget_s: float | None = None
    until: float = math.inf
    profile: bool = False
    profile_dir: Path = Path("profiles")
    only_profiled: bool = False
    generate_artifacts: bool = False
    use_only_local: bool = False
    use_locks: bool = True
    exported_programs: bool = False
    in_process: bool = False
    keep_exports: bool = True
    share_workers: bool = False
    load_together: bool = True
    outputs: OutputMode | None = None
    inherit_environment: bool = False

    def environment(self, backend: BackendInfo, work_dir: Path, cache_dir: Path) -> dict[str, str]:
        """Returns the environment variables of a worker of that backend.

        Workers that measure the CPU cannot see GPUs, because frameworks would put weights on them.
        """
        on_gpu = self.device.accelerator_type != "cpu"
        fields = {
            "work_dir": str(work_dir),
            "cache_dir": str(cache_dir),
            "threads": str(self.threads),
            "accelerator": self.device.accelerator_type,
            # Not "gpu", which also selects AMD's plug-in in JAX and fails if that is missing. The
            # first platform is the default; the CPU is needed for host computations.
            "jax_platforms": "cuda,cpu" if on_gpu else "cpu",
        }
        # Replace only our own fields; other braces in the text are kept.
        filled = {name: _fill(value, fields) for name, value in backend.environment.items()}
        if self.only_profiled:
            filled |= backend.profiling
        # Within this process, a later worker may need the GPU.
        hidden = {} if on_gpu or self.in_process else {"CUDA_VISIBLE_DEVICES": ""}
        return {
            **filled,
            **hidden,
            ROOT_DIR_VARIABLE: str(root_dir()),
            "PYTHONUNBUFFERED": "1",
            "TOKENIZERS_PARALLELISM": "false",
            # Compiled PTX code; the driver's default, ~/.nv, would never be cold.
            "CUDA_CACHE_PATH": str(cache_dir / "cuda"),
            "TMPDIR": str(work_dir),
            CPUS_VARIABLE: ",".join(map(str, self.cpus)),
        }

    def for_truth(self) -> Self:
        """Returns the settings of workers that compute truth: always on the CPU."""
        return self if self.in_process else attrs.evolve(self, device=HOST_CPU)

    def open_session(
        self,
        backend: BackendInfo,
        environment: Environment | None,
        *,
        work_dir: Path,
        cache_dir: Path,
        log_file: Path,
        track: ProcessTrack | None = None,
        hidden: Hidden | None = None,
        kind: type[SessionKind] = Session,  # type: ignore[assignment]  # mypy issue 3737
    ) -> SessionKind | InProcessSession:
        """Starts a worker for a backend, in another Python environment if given.

        Workers that measure get the folders to hide as `hidden`.

        Raises:
          SessionEnded: the worker did not start.
        """
        variables = self.environment(backend, work_dir, cache_dir)
        if self.in_process:
            return InProcessSession(environment=variables)
        if hidden is not None:
            variables[HIDDEN_VARIABLE] = hidden.to_json()
        return kind(
            limits=self.limits,
            log_file=log_file,
            environment={**variables, **(environment.variables if environment else {})},
            inherited=None if self.inherit_environment else for_worker(os.environ),
            python=environment.python if environment else sys.executable,
            track=track,
        )


def _fill(template: str, fields: Mapping[str, str]) -> str:
    for name, value in fields.items():
        template = template.replace(f"{{{name}}}", value)
    return template


def settings_of(
    device: DeviceSpec,
    *,
    timeout_s: float,
    memory_bytes: int | None,
    threads: int | None = None,
    phase_deadlines_s: Iterable[tuple[str, float]] = (),
    processes: int = 1,
    **others: Any,
) -> RunSettings:
    """Returns settings with these limits, and the usual threads.

    Args:
      device: where to run.
      timeout_s: time limit of a worker.
      memory_bytes: memory limit of a worker; None for the memory that is available.
      threads: threads of each backend; None for the default.
      phase_deadlines_s: time limits of phases.
      processes: number of concurrent processes, which share the memory if no limit is given.
      others: further fields of `RunSettings`.
    """
    limits = Limits(
        deadline_s=timeout_s,
        phase_deadlines_s=dict(phase_deadlines_s),
        memory_bytes=memory_bytes or default_limit_bytes() // processes,
    )
    chosen = Threads(threads, ASKED) if threads else default_threads(others.get("cpus", ()))
    return RunSettings(
        device=device, threads=chosen.number, threads_from=chosen.rule, limits=limits, **others
    )


def call_once(
    settings: RunSettings, function: str, arguments: Mapping[str, Any], kind: type[T]
) -> T:
    """Calls a function in a new PyTorch worker and decodes its result as `kind`.

    Args:
      settings: settings of the worker.
      function: the function as `module:function`.
      arguments: keyword arguments; JSON values.
      kind: expected class of the returned JSON value.

    Raises:
      SessionEnded: see `call_function`.
    """
    with temporary_folder("call") as scratch:
        place = Path(scratch)
        session = settings.open_session(
            get_backend("pt_inductor"),
            None,
            work_dir=place,
            cache_dir=place / "cache",
            log_file=place / "log",
        )
        with session:
            return call_function(session, function, arguments, kind)
