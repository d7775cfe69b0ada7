"""A trial (case x backend x device) and how it ended."""

import enum
from collections.abc import Sequence
from typing import Any

import attrs

from comparative_benchmark.backend_api import (
    BackendInfo,
    CompilerInfo,
    UnknownBackendError,
    backends,
    get_backend,
)
from comparative_benchmark.harness.verification import Verification
from openxla.benchmark.def_types import BenchmarkCase, DeviceSpec, Workload


class Status(enum.Enum):
    """How a trial ended; each but `ok` comes with a phase and evidence."""

    OK = "ok"
    UNSTEADY = "unsteady"
    WRONG_OUTPUT = "wrong_output"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    CRASHED = "crashed"


@attrs.frozen(kw_only=True)
class Competitor:
    """A backend with one of its compilers and options of that compiler."""

    backend: BackendInfo
    compiler: CompilerInfo
    options: tuple[str, ...] = ()

    @property
    def compiler_label(self) -> str:
        """Compiler and options, e.g. `inductor+freezing`."""
        return "+".join([self.compiler.name, *self.options])

    def __str__(self) -> str:
        return f"{self.backend.name}:{self.compiler_label}"


@attrs.frozen(kw_only=True)
class Trial:
    """One case by one competitor on one device."""

    case: BenchmarkCase
    workload: Workload
    competitor: Competitor
    device: DeviceSpec

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from other trials of a run; `--resume` goes by it."""
        competitor = self.competitor
        return (
            self.case.name,
            competitor.backend.name,
            competitor.compiler_label,
            self.device.name,
        )

    def __str__(self) -> str:
        return f"{self.case.model.name} {self.competitor}"


@attrs.define(kw_only=True)
class TrialOutcome:
    """All that is known when a trial has ended.

    Attributes:
      status: how it ended.
      phase: where it ended, unless it is `ok`.
      reason: one sentence for a person.
      traceback: the worker's, whole.
      log_file: what the worker printed.
      phases: time and peak memory by phase, as the worker reported.
      verification: of the first run; `final_verification`: of the last timed output.
      warmup, block: samples, see `sampling.Block`.
      facts: see `backend_api.BackendFacts`.
      versions: of the packages that the worker had imported.
    """

    status: Status = Status.OK
    phase: str | None = None
    reason: str | None = None
    traceback: str | None = None
    log_file: str | None = None
    phases: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    host_memory_peak_bytes: int | None = None
    verification: Verification | None = None
    final_verification: Verification | None = None
    warmup: dict[str, Any] | None = None
    block: dict[str, Any] | None = None
    facts: dict[str, Any] = attrs.field(factory=dict)
    versions: dict[str, str] = attrs.field(factory=dict)
    artifact_digests: dict[str, str] = attrs.field(factory=dict)
    wall_s: float = 0.0


def parse_competitors(text: str, accelerator: str) -> list[Competitor]:
    """Returns the competitors that `a,b:compiler,c:compiler+option` names.

    A backend without a compiler stands for all its default compilers for that accelerator.

    Raises:
      UnknownBackendError: a name is unknown; the message gives the choices.
    """
    found: dict[str, Competitor] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, compiler = item.partition(":")
        compilers = [compiler] if compiler else []
        for competitor in competitors_of(get_backend(name), compilers, accelerator):
            found[str(competitor)] = competitor
    if not found:
        raise UnknownBackendError(f"no backend given; choices are {', '.join(backends())}")
    return list(found.values())


def competitors_of(
    backend: BackendInfo, compilers: Sequence[str], accelerator: str
) -> list[Competitor]:
    """Returns the given compilers (`name+option`) of a backend, or its default ones.

    Raises:
      UnknownBackendError: the backend has no such compiler.
    """
    if not compilers:
        return [
            Competitor(backend=backend, compiler=compiler)
            for compiler in backend.compilers
            if compiler.default and compiler.accelerator in (None, accelerator)
        ]
    return [_competitor(backend, compiler) for compiler in compilers]


def _competitor(backend: BackendInfo, text: str) -> Competitor:
    name, *options = text.split("+")
    compiler = backend.compiler(name)
    for option in options:
        if option not in compiler.options:
            known = ", ".join(compiler.options) or "none"
            raise UnknownBackendError(
                f"{backend.name}:{name} has no option {option!r}; choices are {known}"
            )
    return Competitor(backend=backend, compiler=compiler, options=tuple(sorted(set(options))))
