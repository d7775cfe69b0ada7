"""XLA without a framework: a program and its weights, compiled and run by jaxlib alone."""

import functools
import os
import shutil
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from comparative_benchmark.backends import host_settings, operator_profile
from comparative_benchmark.backends.api import (
    ALLOCATED_ONLY,
    Array,
    Backend,
    BackendContext,
    BackendFacts,
    ModelDefinition,
    OutputRule,
)
from comparative_benchmark.backends.exported_programs import digest_of_parts
from comparative_benchmark.backends.frameworks import xla_executables
from comparative_benchmark.backends.host_settings import HostSettings
from comparative_benchmark.xla_hlo import CACHE_VARIABLE, exported_program
from comparative_benchmark.xla_hlo.export import export_program
from comparative_benchmark.xla_hlo.exported_program import ExportedProgram, HloModule
from comparative_benchmark.xla_hlo.pjrt import Executable, ExecutableCache, client, profiled

_PLATFORMS = {"cpu": "cpu", "gpu": "cuda"}


class XlaHlo(Backend):
    """Exports a model in another process, then compiles and runs the program in this one.

    The compiler's name is the form of the program: StableHLO, HLO text or HLO proto.
    """

    takes_definition: ClassVar[bool] = True
    _exported: ExportedProgram
    _executable: Executable

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._client = client(context.device.accelerator_type)
        directory = os.environ.get(CACHE_VARIABLE)
        self._cache = ExecutableCache(Path(directory) if directory else None)
        self._export_ms: dict[str, float] = {}
        self._arguments: list[Any] = []

    def load(self, model: ModelDefinition, inputs: Sequence[Array]) -> None:
        """Exports the model or takes a published program; puts weights and inputs on the device.

        The export process has ended before anything is compiled or run.
        """
        # Separate from that of another backend in this worker.
        directory = Path(tempfile.mkdtemp(prefix="export-", dir=self.context.work_dir))
        if self.context.exported:
            with self.context.phase("load"):
                self._exported = ExportedProgram.published(
                    self.context.exported, self.context.compiler, directory
                )
        else:
            self._exported, self._export_ms = export_program(
                model,
                inputs,
                self.context.compiler,
                directory,
                self.context.phase,
                platform=_PLATFORMS[self.context.device.accelerator_type],
            )
        exported = self._exported
        with self.context.phase("load"):
            weights = [self._client.put(weight) for weight in exported.weights()]
            exported.drop_weights()
        taken = iter(weights)
        self._arguments = [next(taken) if index is None else None for index in exported.inputs]
        with self.context.phase("h2d"):
            self.replace_inputs(inputs)

    def compile(self) -> None:
        """Compiles the program, from reading its file to an executable; the rest was in `load`."""
        exported = self._exported
        with self.context.phase("compile"):
            content = exported.path.read_bytes()
            flags = os.environ.get("XLA_FLAGS", "")
            key = digest_of_parts(
                content, exported.form, version("jaxlib"), self._client.platform, flags
            )
            self._executable = self._cache.get(
                key.hex(),
                self._client,
                lambda: self._client.compile(stablehlo_of(content, exported.form)),
            )
        self._run = self._executable.run

    def dispatch(self) -> Any:
        """Starts the executable, which returns before its outputs are complete."""
        return self._run(self._arguments)

    def synchronize(self, outputs: Any) -> None:
        """Waits until the outputs are complete."""
        for output in outputs:
            output.block_until_ready()

    def fetch(self, outputs: Any) -> list[Any]:
        """Copies the outputs to the host."""
        return [self._client.fetch(output) for output in outputs]

    def replace_inputs(self, inputs: Sequence[Array]) -> bool:
        """Puts them on the device, next to the weights."""
        resident = [self._client.put(value) for value in inputs]
        for place, index in enumerate(self._exported.inputs):
            if index is not None:
                self._arguments[place] = resident[index]
        return True

    def facts(self) -> BackendFacts:
        """Returns XLA's facts about the executable, and the packages that exported the program."""
        exported = self._exported
        facts = BackendFacts(weights="arguments" if exported.has_weights else "frozen")
        facts.device_name = self._client.device_kind
        facts.device_memory_peak_bytes = self._client.memory_peak_bytes()
        facts.cache_hits, facts.cache_misses = self._cache.hits, self._cache.misses
        xla_executables.describe(self._executable.loaded, facts)
        facts.notes["exported_by"] = dict(exported.versions)
        facts.notes["export_ms"] = self._export_ms
        if self.context.exported:
            facts.notes["starts_from"] = sorted(self.context.exported)
        facts.notes["tf32"] = self._tf32
        facts.notes["program_size_bytes"] = exported.path.stat().st_size
        if exported.form != "stablehlo":
            facts.notes["route"] = "the client accepts only StableHLO, so HLO is converted first"
        return facts

    def output_rule(self) -> OutputRule:
        """Outputs are allocated: PJRT executes into buffers that it creates."""
        return OutputRule(modes=("allocated",), reason=ALLOCATED_ONLY)

    def host_settings(self) -> HostSettings:
        """Returns the settings of XLA's CPU client."""
        return xla_executables.host_settings()

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """Writes a trace, XLA's own file, and the program before and after optimisation."""
        scratch = self.context.work_dir / "profile"
        with profiled(scratch):
            for _ in range(iterations):
                self.synchronize(self.dispatch())
        planes = {"*.trace.json.gz": "trace.json.gz", "*.xplane.pb": "xla.xplane.pb"}
        files = operator_profile.take_files(scratch, directory, planes, stack=self._client.platform)
        # Without its metadata, which Perfetto cannot read.
        events = operator_profile.read_trace(files[0])
        operator_profile.write_trace(files[0], events)
        before, after = self._exported.path, directory / "optimized.hlo.txt"
        text = xla_executables.optimized_hlo(self._executable.loaded, metadata=True)
        after.write_text(text, encoding="utf-8")
        profile = operator_profile.profile_of(
            events,
            xla_executables.optimized_hlo(self._executable.loaded),
            stack=f"XLA of jaxlib {version('jaxlib')}",
            iterations=iterations,
        )
        files.append(operator_profile.write(profile, directory))
        return [*files, Path(shutil.copy(before, directory / before.name)), after]

    @functools.cached_property
    def _tf32(self) -> bool | None:
        """Whether the program allows factors of float32 to be rounded, whatever exported it."""
        if self.context.device.accelerator_type != "gpu":
            return None
        exported = self._exported
        text = hlo_of(exported.path.read_bytes(), exported.form).text()
        exact = exported_program.is_exact(text)
        return host_settings.note(
            on_gpu=True, types=() if exact is None else ("float32",), allowed=not exact
        )


def stablehlo_of(content: bytes, form: str) -> str | bytes:
    """Returns the program in a form that the client accepts."""
    return content if form == "stablehlo" else hlo_of(content, form).stablehlo()


def hlo_of(content: bytes, form: str) -> HloModule:
    """Returns the program as an HLO module."""
    if form == "hlo-text":
        return HloModule.from_text(content.decode())
    if form == "hlo-proto":
        return HloModule.from_proto(content)
    return HloModule.from_stablehlo(content)
