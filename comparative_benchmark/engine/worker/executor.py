"""The worker's side of a trial: one method per command, independent of pipes and processes."""

import gc
import importlib
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np

from comparative_benchmark.analysis.machine.worker_settings import (
    Denormals,
    denormals,
    effective_settings,
    recorded_variables,
)
from comparative_benchmark.backends.api import (
    Array,
    Backend,
    BackendContext,
    ModelDefinition,
    UnsupportedError,
    installed_versions,
    load_object,
)
from comparative_benchmark.backends.missing_packages import chain
from comparative_benchmark.engine.worker import sampling
from comparative_benchmark.engine.worker.contributed_model import (
    check_arity,
    checked_array,
    why_unsupported,
)
from comparative_benchmark.engine.worker.phases import (
    PhaseClock,
    forget_peak_memory,
    give_back_memory,
    peak_memory_bytes,
    resident_memory_bytes,
)
from comparative_benchmark.engine.worker.protocol import Message
from comparative_benchmark.engine.worker.sampling import CompiledRuns
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.def_types import DefinitionError

# A busy machine may delay some of them; slow models need fewer runs.
_MOST_FRESH_RUNS = 20
_FEWEST_FRESH_RUNS = 5
_FRESH_RUNS_MS = 2000.0
# Without fresh runs, runs on the first input show how slow the machine is.
_SEEN_RUNS = 3
# Out-of-memory messages of stacks that do not raise MemoryError.
_OUT_OF_MEMORY = re.compile(
    r"out of memory|can.t allocate memory|cannot allocate memory|RESOURCE_EXHAUSTED|bad_alloc"
    r"|Unable to allocate",
    re.IGNORECASE,
)


class Executor:
    """Executes commands such as `prepare`, `load`, `compile`, `measure` and `outputs`.

    A worker that serves several models receives `release` between them; `call` runs any other
    function of the suite in a worker.
    """

    def __init__(self, announce: Callable[[Message], None]) -> None:
        self._announce = announce
        self._phases = PhaseClock(announce)
        self._backend: Backend | None = None
        self._last_outputs: Any = None
        self._denormals_before: Denormals | None = None
        # Resident memory before the model was loaded, if this model alone caused the peak.
        self._base_bytes: int | None = None
        self._released = 0
        # Module and parameters of the loaded model.
        self._made_of: tuple[str, dict[str, Any]] = ("", {})
        self._compiled_runs = CompiledRuns(None)

    def handle(self, command: Message) -> Message:
        """Executes a command; returns an `error` message with the traceback if it raises."""
        name = command["command"]
        try:
            answer = getattr(self, f"_{name}")(**command["arguments"])
        except Exception as error:
            return {**self._error(name, error, command["arguments"]), "id": command["id"]}
        return {**answer, "type": name, "id": command["id"]}

    def _prepare(
        self, *, packages: Mapping[str, str] = MappingProxyType({}), **arguments: Any
    ) -> Message:
        """Generates inputs, truth and reference of a workload, see `preparing.prepare`.

        Args:
          packages: package names, by module, whose versions are reported (see
            `BackendInfo.packages`).
          arguments: arguments of `preparing.prepare`.
        """
        return {**self._prepared("prepare", arguments), "versions": _versions(packages)}

    def _prepare_further(self, **arguments: Any) -> Message:
        """Generates a further input of a workload, see `preparing.prepare_further`."""
        return self._prepared("prepare_further", arguments)

    def _quantised_run(self, **arguments: Any) -> Message:
        """Runs a model with the rounding of a recipe, see `preparing.quantised_run`."""
        return self._prepared("quantised_run", arguments)

    def _prepared(self, function: str, arguments: dict[str, Any]) -> Message:
        # Import here, so that measuring workers start sooner.
        from comparative_benchmark.engine.worker import preparing

        self._phases = PhaseClock(self._announce)
        return {**getattr(preparing, function)(self._phases, **arguments), **self._report()}

    def _load(
        self,
        *,
        implementation: str,
        context: dict[str, Any],
        module_path: str,
        parameters: dict[str, Any],
        inputs: list[str],
        packages: Mapping[str, str] = MappingProxyType({}),
    ) -> Message:
        """Imports the framework and puts model, weights and inputs on the device."""
        peak_is_its_own = forget_peak_memory()
        with self._phases("import"):
            backend_class: type[Backend] = load_object(implementation)
            exported = context.get("exported", {})
            if not backend_class.takes_definition and not exported:
                importlib.import_module(module_path)
            if not self._released:
                # Modules live until the end, so collections need not visit them again.
                gc.freeze()
        self._base_bytes = resident_memory_bytes() if peak_is_its_own else None
        self._backend = backend_class(BackendContext.read(context, self._phases))
        self._backend.output_mode()  # raises if the requested handling of outputs is impossible
        values = [array_files.load(Path(path)) for path in inputs]
        model: Any = ModelDefinition(module_path=module_path, parameters=parameters)
        if not exported:
            model = self._model(backend_class, module_path, parameters, values)
        self._backend.load(model, values)
        self._made_of = (module_path, parameters)
        timer_ns = sampling.timer_resolution_ns()
        return {
            "versions": _versions(packages),
            "timer_ns": timer_ns,
            "variables": recorded_variables(os.environ),
            **self._report(),
        }

    def _compile(self) -> Message:
        """Compiles and runs once; returns exported files that another process may start from."""
        backend = self._require_backend()
        backend.compile()
        backend.poison_outputs()
        self._denormals_before = denormals()
        self._compiled_runs = CompiledRuns(backend.compiled_calls)
        with self._phases("first_run"), self._compiled_runs.first():
            self._last_outputs = backend.dispatch()
            backend.synchronize(self._last_outputs)
        exports = {kind: list(map(str, paths)) for kind, paths in backend.exports().items()}
        return {"exports": exports, **self._report()}

    def _measure(
        self,
        *,
        iterations: int,
        device_times: bool = False,
        refresh: bool = False,
        warm_up: bool = False,
    ) -> Message:
        """Runs a block of iterations.

        Args:
          iterations: number of measured iterations.
          device_times: whether to run more iterations for device times.
          refresh: whether to run one unmeasured iteration first, see `sampling.measure_block`.
          warm_up: whether to accept iterations that compile or run uncompiled code.
        """
        with self._phases("execute"):
            backend = self._require_backend()
            context = backend.context
            self._last_outputs = None  # freed before timing starts
            block = sampling.measure_block(
                backend,
                iterations,
                threads=context.threads,
                gpu=context.device.accelerator_type != "cpu",
                refresh=refresh,
            )
            if not warm_up:
                self._compiled_runs.require(block)
            if device_times:
                block = sampling.with_device_times(backend, block)
        self._last_outputs = block.outputs
        # `asdict` would visit each of thousands of samples.
        inner = attrs.filters.exclude("outputs", "compiled_calls", "compilations")
        fields = attrs.asdict(block, recurse=False, filter=inner)
        return {"block": {**fields, "conditions": attrs.asdict(block.conditions)}}

    def _outputs(self, *, directory: str) -> Message:
        """Fetches and saves the outputs of the last execution."""
        backend = self._require_backend()
        self._last_outputs = backend.complete(self._last_outputs)
        is_first = "d2h" not in self._phases.records
        with self._phases("d2h") if is_first else self._phases.whole("outputs"):
            values = backend.fetch(self._last_outputs)
        checked = [checked_array(value, "forward") for value in values]
        saved = array_files.save_all(Path(directory), "output", checked)
        facts = backend.facts()
        facts.outputs = facts.outputs or backend.output_mode()
        if self._released and not backend.peak_is_of_the_model:
            facts.device_memory_peak_bytes = None  # includes earlier models
        effective = effective_settings(
            backend.host_settings(), denormals_before=self._denormals_before
        )
        return {
            "files": saved,
            "facts": attrs.asdict(facts),
            "effective": attrs.asdict(effective),
            **self._report(),
        }

    def _run_on(self, *, inputs: list[str], directory: str) -> Message:
        """Runs the program on other inputs of the same shapes, keeps them, and saves the outputs.

        `files` of the answer is None if the backend cannot replace its inputs.
        """
        backend = self._require_backend()
        with self._phases.whole("run_on"):
            backend.poison_outputs()
            counted = self._compiled_runs.verified("the run on other inputs", calls=1)
            values = [array_files.load(Path(path)) for path in inputs]
            if (done := sampling.fresh_run(backend, values, counted)) is None:
                return {"files": None, "run_ms": None, **self._report()}
            self._last_outputs, values, run_ms = done
        checked = [checked_array(value, "forward") for value in values]
        files = array_files.save_all(Path(directory), "output", checked)
        return {"files": files, "run_ms": run_ms, **self._report()}

    def _fresh_runs(self, *, inputs: list[str], enough_ms: float, restored: list[str]) -> Message:
        """Times single runs on inputs new to the program, until one is short enough.

        Args:
          inputs: input files; each run gets them rotated by a different offset along their last
            axes.
          enough_ms: a run of at most this duration ends the series.
          restored: files of the inputs to restore at the end.

        Returns:
          `runs_ms`: time of each run including fetching its outputs, less the time to fetch them
            again; `seen_ms`: after each run that was too long, time of a run on the same inputs, or
            times of runs on the restored inputs if nothing else was run;
            `without`: the reason if nothing was run, else None.
        """
        backend = self._require_backend()
        runs_ms: list[float] = []
        seen_ms: list[float] = []
        without = "rotating the inputs does not change them"
        values = [array_files.load(Path(path)) for path in inputs]
        with self._phases.whole("fresh_runs"):
            try:
                for places in range(1, _MOST_FRESH_RUNS + 1):
                    moved = [_rotated(value, places) for value in values]
                    is_seen = all(map(np.array_equal, moved, values))
                    if is_seen or (done := sampling.fresh_run(backend, moved)) is None:
                        break
                    runs_ms.append(done[2])
                    is_long = sum(runs_ms) > _FRESH_RUNS_MS and places >= _FEWEST_FRESH_RUNS
                    if runs_ms[-1] <= enough_ms:
                        break
                    seen_ms.append(sampling.seen_run_ms(backend))
                    if is_long:
                        break
            except Exception as error:  # a model may reject rotated inputs
                without = _told(error)
            backend.replace_inputs([array_files.load(Path(path)) for path in restored])
            if not runs_ms:
                seen_ms = [sampling.seen_run_ms(backend) for _ in range(_SEEN_RUNS)]
        reason = None if runs_ms else without
        return {"runs_ms": runs_ms, "seen_ms": seen_ms, "without": reason, **self._report()}

    def _run_with(self, *, inputs: list[str], directory: str) -> Message:
        """Runs the model on further inputs, with a second backend if needed; saves the outputs."""
        backend = self._require_backend()
        values = [array_files.load(Path(path)) for path in inputs]
        with self._phases.whole("verification_compile"):
            with self._compiled_runs.verified("an additional run", calls=1):
                outputs = backend.run_with(values)
            if outputs is None:
                outputs = self._run_second_backend(backend, values)
        checked = [checked_array(value, "forward") for value in outputs]
        return {"files": array_files.save_all(Path(directory), "output", checked), **self._report()}

    def _run_second_backend(self, first: Backend, values: Sequence[Array]) -> list[Any]:
        """Returns the outputs of a second program, built as the first backend's was."""
        work_dir = Path(tempfile.mkdtemp(dir=first.context.work_dir))
        second = type(first)(attrs.evolve(first.context, work_dir=work_dir))
        second.load(self._model(type(first), *self._made_of, values), values)
        second.compile()
        outputs = second.dispatch()
        second.synchronize(outputs)
        return second.fetch(outputs)

    def _generation(self, *, directory: str, iterations: int) -> Message:
        """Runs prefill and decode separately: once to save their outputs, then timed."""
        backend = self._require_backend()
        with self._phases.whole("generation_compile"):
            parts = backend.generation_parts()
            saved = sampling.run_through(parts, Path(directory))
        with self._phases.whole("generation"):
            times = sampling.measure_generation(parts, backend, iterations)
        return {"files": saved, "times": times, **self._report()}

    def _step_parts(self, *, iterations: int) -> Message:
        """Times the parts of a training step separately."""
        with self._phases.whole("step_parts"), self._require_backend().step_parts() as parts:
            times = sampling.measure_step(parts, iterations)
        self._last_outputs = None  # outputs of released steps
        return {"times": times, **self._report()}

    def _updated(self, *, directory: str) -> Message:
        """Runs a single optimizer update; saves the first elements of each weight."""
        from openxla.benchmark.training import models

        with self._phases.whole("update_check"):
            weights = self._require_backend().updated(models.draw_update, models.STEPS_BEFORE)
        self._last_outputs = None
        values = [np.ravel(value)[: models.COMPARED] for value in weights.values()]
        saved = array_files.save_all(Path(directory), "weight", values)
        return {"names": list(weights), "files": saved, **self._report()}

    def _compiled_shares(self) -> Message:
        """Measures the fractions of compiled code in a few further iterations."""
        with self._phases.whole("compiled_shares"):
            shares = dict(self._require_backend().compiled_shares())
        self._last_outputs = None
        return {"shares": shares, **self._report()}

    def _profile(self, *, directory: str, iterations: int) -> Message:
        """Runs iterations under the stack's profiler; returns the names of its files."""
        target = Path(directory)
        files = self._require_backend().profile(target, iterations)
        for path in files:
            if path.parent != target or not path.is_file() or not path.stat().st_size:
                raise RuntimeError(f"the profiler did not write {path.name!r} to {target}")
        if not files:
            raise RuntimeError("the profiler wrote no files")
        return {"files": [path.name for path in files]}

    def _release(self) -> Message:
        """Releases the model, so that this process can serve another one."""
        if self._backend is not None:
            self._backend.release()
        self._backend = self._last_outputs = None
        self._phases = PhaseClock(self._announce)
        gc.collect()
        if not self._released:
            # Includes what the framework has loaded on first use.
            gc.freeze()
        self._released += 1
        give_back_memory()
        return self._report()

    def _call(self, *, function: str, arguments: dict[str, Any]) -> Message:
        """Calls a function, `module:name`, and returns its result as a JSON value."""
        self._phases = PhaseClock(self._announce)
        return {"value": load_object(function)(**arguments), **self._report()}

    def _model(
        self,
        backend_class: type[Backend],
        module_path: str,
        parameters: dict[str, Any],
        values: Sequence[Array],
    ) -> Any:
        """Returns the model, checked to take these inputs, or its definition if needed."""
        definition = ModelDefinition(module_path=module_path, parameters=parameters)
        if backend_class.takes_definition:
            return definition
        with self._phases("load"):
            model = definition.create()
        check_arity(model, values)
        return model

    def _require_backend(self) -> Backend:
        if self._backend is None:
            raise RuntimeError("the command `load` must come first")
        return self._backend

    def _report(self) -> Message:
        return {
            "phases": {name: attrs.asdict(record) for name, record in self._phases.records.items()},
            "host_memory_peak_bytes": peak_memory_bytes(),
            "host_memory_base_bytes": self._base_bytes,
        }

    def _error(self, command: str, error: Exception, arguments: Message) -> Message:
        phase = self._phases.current or command
        self._phases.abandon()
        module_path, parameters = self._made_of
        reason = why_unsupported(
            error,
            arguments.get("module_path", module_path),
            arguments.get("parameters", parameters),
        )
        is_explained = not reason and isinstance(error, UnsupportedError)
        return {
            "type": "error",
            "kind": "unsupported" if reason else _kind_of(error),
            "phase": phase,
            "message": reason or _told(error),
            "explanation": str(error).strip()[:4000] if is_explained else None,
            "traceback": "".join(traceback.format_exception(error))[-20000:],
            **self._report(),
        }


def _rotated(value: Array, places: int) -> Array:
    """Returns an array with the same values, in a different order for each number of places.

    Floating-point numbers that no rotation changes become a little smaller instead.
    """
    if not (value.ndim and value.size):
        return value
    turned = np.roll(value, places, -1)
    if value.ndim > 1:  # after a full rotation of the last axis, rotate the rows as well
        turned = np.roll(turned, places // value.shape[-1], 0)
    if value.dtype.kind not in "iub" and np.array_equal(turned, value):
        return np.asarray(np.multiply(value, 1 - places / 64), dtype=value.dtype)
    return turned


def _told(error: Exception) -> str:
    """Returns an error message, with the first cause if a lazy import hides it."""
    if isinstance(error, DefinitionError):
        return str(error)[:4000]  # already a message to the user
    *_, first = chain(error, implicit=False)
    text = f"{type(error).__name__}: {error}".strip()[:4000]
    if first is error or not isinstance(error, ImportError):
        return text
    return f"{text} (caused by {type(first).__name__}: {first})"[:4000]


def _kind_of(error: Exception) -> str:
    if isinstance(error, UnsupportedError):
        return "unsupported"
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory"
    return "out_of_memory" if _OUT_OF_MEMORY.search(str(error)) else "failed"


def _versions(packages: Mapping[str, str]) -> dict[str, str]:
    """Returns the versions of the packages whose modules this process has imported."""
    return installed_versions(name for module, name in packages.items() if module in sys.modules)
