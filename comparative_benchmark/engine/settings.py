"""What holds for all trials of a run, and how a session is opened under it."""

import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Self, TypeVar

import attrs

from comparative_benchmark.analysis.machine.host import default_threads
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
      device: where to run.
      sampling: how long to warm up and to sample.
      threads: threads that each backend may use.
      threads_from: the rule that gave them, see `analysis.machine.host`; None where none is told.
      cpus: CPUs that workers are pinned to; empty for all that this process may use.
      baseline: name of the competitor that ratios will be taken against, if that is known.
      limits: of each worker.
      log_dir: where the workers' output goes.
      budget_s: of the whole run, see `RunBudget`; None for no limit.
      until: `time.monotonic()` when the budget ends; later, no race starts a further process.
      profile: whether the last process of each trial is profiled when it has been measured.
      profile_dir: where profiles go.
      only_profiled: whether workers measure nothing, and are compiled to be profiled.
      generate_artifacts: make artifacts anew even where valid ones are there.
      use_only_local: never make or fetch artifacts.
      use_locks: fetch what lock files name; without, all is made here.
      exported_programs: start backends that can from published programs.
      in_process: no worker processes, for debugging.
      keep_exports: start the further processes of a trial from what the first one exported.
      share_workers: let the n-th process of a competitor be the same for all workloads.
      load_together: have several workers load at the same time, while nothing is measured.
      outputs: how outputs are to be held; None for what each stack's own users have.
      inherit_environment: give workers all variables of this process's environment, and not only
        those of `analysis.machine.variables.for_worker`.
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

        One that measures the CPU sees no GPU: frameworks put weights on any that they find.
        """
        on_gpu = self.device.accelerator_type != "cpu"
        fields = {
            "work_dir": str(work_dir),
            "cache_dir": str(cache_dir),
            "threads": str(self.threads),
            "accelerator": self.device.accelerator_type,
            # Not "gpu", which JAX takes for AMD's plug-in as well, and fails where that is missing.
            # A GPU comes first, and so is the default; the CPU is there for what belongs there.
            "jax_platforms": "cuda,cpu" if on_gpu else "cpu",
        }
        # Braces of other texts stay as they are: only our own fields are replaced.
        filled = {name: _fill(value, fields) for name, value in backend.environment.items()}
        if self.only_profiled:
            filled |= backend.profiling
        # In the process of this program, the next worker may be one that needs the GPU.
        hidden = {} if on_gpu or self.in_process else {"CUDA_VISIBLE_DEVICES": ""}
        return {
            **filled,
            **hidden,
            ROOT_DIR_VARIABLE: str(root_dir()),
            "PYTHONUNBUFFERED": "1",
            "TOKENIZERS_PARALLELISM": "false",
            # What the driver compiles from PTX: in ~/.nv, its own choice, it would never be cold.
            "CUDA_CACHE_PATH": str(cache_dir / "cuda"),
            "TMPDIR": str(work_dir),
            CPUS_VARIABLE: ",".join(map(str, self.cpus)),
        }

    def for_truth(self) -> Self:
        """Returns the settings of workers that compute truth: on the CPU, whatever is measured."""
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
        """Starts a worker for a backend, in another Python environment if one is given.

        One that measures gets what it may not see as `hidden`.

        Raises:
          SessionEnded: it did not come up.
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
