"""Settings shared by all trials of a run, and the opening of sessions."""

import math
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import attrs

from comparative_benchmark.analysis.machine.host import ASKED, Threads, default_threads
from comparative_benchmark.analysis.machine.other_processes import default_limit_bytes
from comparative_benchmark.analysis.machine.variables import for_worker
from comparative_benchmark.analysis.stats.sampling_rule import (
    CompileOnly,
    FixedCounts,
    SamplingRule,
)
from comparative_benchmark.backends.api import BackendInfo, OutputMode
from comparative_benchmark.engine.environments import Environment
from comparative_benchmark.engine.session import (
    CPUS_VARIABLE,
    HIDDEN_VARIABLE,
    Hidden,
    InProcessSession,
    Limits,
    Session,
)
from comparative_benchmark.engine.trace import ProcessTrack
from openxla.benchmark.def_types import DeviceSpec
from openxla.benchmark.devices import HOST_CPU
from openxla.benchmark.root import ROOT_DIR_VARIABLE, root_dir

SessionKind = TypeVar("SessionKind", bound=Session)


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
      until: `time.monotonic()` at the end of the budget; no process is started later.
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
        of only those from `analysis.machine.variables.for_worker`.
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
        device=device,
        threads=chosen.number,
        threads_from=chosen.rule,
        limits=limits,
        **others,
    )
