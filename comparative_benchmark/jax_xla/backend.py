"""JAX on CPU and GPU: its programs, callbacks to Python, profiles and reproducers.

Prefill and decode of a model that generates are separate programs. A reproducer is an artifact of
`jax.export`, whose leading arguments are the weights.
"""

import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import block_until_ready
from jax import export as jax_export

from comparative_benchmark.backends import host_settings, operator_profile
from comparative_benchmark.backends.api import (
    ALLOCATED_ONLY,
    LEAST_COMPILED,
    Array,
    Backend,
    BackendContext,
    BackendFacts,
    GenerationParts,
    OutputRule,
    UnsupportedError,
)
from comparative_benchmark.backends.exported_programs import Exported, ExportTask
from comparative_benchmark.backends.frameworks import jax_models, xla_executables
from comparative_benchmark.backends.frameworks.jax_models import split
from comparative_benchmark.backends.host_settings import HostSettings
from comparative_benchmark.backends.model_protocols import (
    FunctionParts,
    Step,
    StepParts,
    TrainingLoop,
)
from comparative_benchmark.backends.recipes import chosen_among
from comparative_benchmark.jax_xla.reference import bodies
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.training.in_jax import Run, TrainableModel
from openxla.benchmark.training.models import Draw

_ITERATIONS, _LONGEST_S = 10, 1.0


class Callbacks:
    """The callbacks of a traced program, timed.

    Args:
      jaxpr: jaxpr of the program before lowering; its callbacks are replaced by timed ones.
    """

    def __init__(self, jaxpr: Any) -> None:
        self._spent_s = 0.0
        self.names: list[str] = []
        for equation in _equations(jaxpr):
            callback = equation.params.get("callback")
            if callback is not None:
                self.names.append(equation.primitive.name)
                equation.params["callback"] = _Timed(callback, self._add)

    def compiled_share(self, iterate: Callable[[], object]) -> float:
        """Returns the share of an iteration's time outside of callbacks, 0 to 1.

        The iteration with the largest share counts, because disturbances only make it smaller.

        Args:
          iterate: runs an iteration to its end.
        """
        shares, start = [], time.perf_counter()
        for _ in range(_ITERATIONS):
            self._spent_s, begin = 0.0, time.perf_counter()
            iterate()
            end = time.perf_counter()
            shares.append(1 - min(1.0, self._spent_s / (end - begin)))
            if end - start > _LONGEST_S:
                break
        return max(shares)

    def _add(self, seconds: float) -> None:
        self._spent_s += seconds


class _Timed:
    """A callback that reports the time of each call."""

    callback: Callable[..., Any]

    def __init__(self, callback: Callable[..., Any], report: Callable[[float], None]) -> None:
        # A program that is traced again may share parts, and so callbacks, with the first one.
        self.callback = callback.callback if isinstance(callback, _Timed) else callback
        self._report = report

    def __call__(self, *arguments: Any) -> Any:
        begin = time.perf_counter()
        try:
            return self.callback(*arguments)
        finally:
            self._report(time.perf_counter() - begin)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yields the equations of a jaxpr and those in its branches, loops and calls."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for body in bodies(equation.params):
            yield from _equations(body)


def parts_of(model: Any, params: Any, inputs: Sequence[jax.Array]) -> GenerationParts:
    """Compiles `prefill` and `decode`, each with the choice of the token, ahead of time.

    `decode` takes the cache as a donated argument, so that XLA writes into it, as it does inside
    the loop of a whole generation; otherwise it would have to copy the cache for each token.
    """

    def prefill(params: Any, *inputs: jax.Array) -> Step:
        return _chosen(*model.prefill(params, *inputs))

    def decode(params: Any, token: jax.Array, position: jax.Array, cache: Any) -> Step:
        return _chosen(*model.decode(params, token, position, cache))

    first, device = model.first_position(*inputs), inputs[0].device
    positions = [
        jax.device_put(np.int32(first + index), device) for index in range(model.max_new_tokens - 1)
    ]
    compiled_prefill = jax.jit(prefill).lower(params, *inputs).compile()
    compiled_decode = None
    if positions:
        token, _, cache = compiled_prefill(params, *inputs)
        lowered = jax.jit(decode, donate_argnums=3).lower(params, token, positions[0], cache)
        compiled_decode = functools.partial(lowered.compile(), params)
    return FunctionParts(
        functools.partial(compiled_prefill, params, *inputs),
        compiled_decode,
        positions,
        wait=block_until_ready,
        to_host=np.asarray,
    )


def _chosen(logits: jax.Array, cache: Any) -> Step:
    return jax.lax.argmax(logits, axis=1, index_dtype=jnp.int32), logits, cache


def write_profile(backend: Backend, directory: Path, iterations: int, hlo: str) -> list[Path]:
    """Profiles iterations; returns a trace for Perfetto, XLA's own file, and the operators.

    Args:
      backend: the backend whose program runs.
      hlo: the optimised program.
      directory: directory for the files.
      iterations: number of executions; each is a step `iteration`.

    Raises:
      RuntimeError: JAX wrote no profile.
    """
    options = jax.profiler.ProfileOptions()
    # Spans of Python calls would slow the host and hide those of the runtime.
    options.python_tracer_level = 0
    scratch = backend.context.work_dir / "jax-profile"
    with jax.profiler.trace(scratch, create_perfetto_trace=True, profiler_options=options):
        for index in range(iterations):
            with jax.profiler.StepTraceAnnotation("iteration", step_num=index):
                backend.synchronize(backend.dispatch())
    stack = f"JAX {jax.__version__}"
    planes = {"perfetto_trace.json.gz": "trace.json.gz", "*.xplane.pb": "xla.xplane.pb"}
    files = operator_profile.take_files(scratch, directory, planes, stack=stack)
    events = operator_profile.read_trace(files[0])
    profile = operator_profile.profile_of(events, hlo, stack=stack, iterations=iterations)
    return [*files, operator_profile.write(profile, directory)]


_NOTE = (
    "The measurement ran `jax.jit` of the model's function. The exported program is the result of "
    "JAX's lowering, so running it does not include tracing. XLA compiles a module that calls it."
)


def export_reproducer(task: ExportTask) -> Exported:
    """Writes `program.jax_export`, the StableHLO inside it, and the weights."""
    apply, params = split(task.model())
    leaves, structure = jax.tree.flatten(params)

    def flat(*arguments: Any) -> tuple[Any, ...]:
        weights = jax.tree.unflatten(structure, arguments[: len(leaves)])
        return as_tuple(apply(weights, *arguments[len(leaves) :]))

    types = [_type(value) for value in (*leaves, *task.inputs)]
    exported = jax_export.export(jax.jit(flat), platforms=("cpu",))(*types)
    (task.directory / "program.jax_export").write_bytes(exported.serialize())
    (task.directory / "program.mlirbc").write_bytes(exported.mlir_module_serialized)
    files = {
        "program.jax_export": "the program to compile, for `jax.export.deserialize`",
        "program.mlirbc": "the same program as a portable StableHLO artifact, for tools without "
        "JAX (`stablehlo-translate --deserialize program.mlirbc`); unused weights are not "
        "among its arguments",
    }
    if leaves:
        array_files.save_all(
            task.directory / "weights", "weight", [np.asarray(leaf) for leaf in leaves]
        )
        files["weights"] = "the weights, which are the program's first arguments"
    return Exported(
        settings={"threads": task.context.threads},
        packages=("jax", "jaxlib", "numpy", "ml_dtypes"),
        files=files,
        notes=(_NOTE,),
    )


def _type(value: Any) -> jax.ShapeDtypeStruct:
    # JAX converts arguments from 64 to 32 bits, unless configured otherwise.
    return jax.ShapeDtypeStruct(np.shape(value), jax.dtypes.canonicalize_dtype(value.dtype))


class JaxXla(Backend):
    """Compiles `apply(params, *inputs)` ahead of time; the weights are arguments."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._device = _device(context)
        self._on_gpu = context.device.accelerator_type == "gpu"
        self._apply: Callable[..., Any] = lambda *_: None
        self._params: Any = ()
        self._model: Any = None
        self._inputs: tuple[Any, ...] = ()
        self._compiled: Any = None
        self._types: frozenset[str] = frozenset()
        self._recipe = chosen_among(context.options)
        self._applied: dict[str, Any] | None = None
        self._cache_hits = self._cache_misses = 0
        self._training: TrainingLoop | None = None
        self._steps: Run | None = None
        self._callbacks: Callbacks | None = None
        jax.monitoring.register_event_listener(self._count_cache_event)

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Puts weights and inputs on the device."""
        with self.context.phase("load"):
            self._model = model
            self._apply, params = jax_models.split(model)
            self._params = block_until_ready(jax.device_put(params, self._device))
        with self.context.phase("h2d"):
            self.replace_inputs(inputs)
        arrays = jax.tree.leaves((self._params, self._inputs))
        self._types = frozenset(str(leaf.dtype) for leaf in arrays)
        if self._recipe is not None:
            from comparative_benchmark.jax_xla import qwix_recipes

            with self.context.phase("load"), self._precision():
                self._apply, params, self._applied = qwix_recipes.apply(
                    model, self._inputs, self._recipe
                )
                # The recipe made them on the device. Another `device_put` would give 4-bit numbers
                # a layout that the compiler does not accept.
                self._params = block_until_ready(params)
            self._model = None  # it holds the original weights

    def compile(self) -> None:
        """Traces to a jaxpr, lowers to StableHLO, and compiles with XLA, in separate phases."""
        # Ignore cache events of compilations while the model was created.
        self._cache_hits = self._cache_misses = 0
        if isinstance(self._model, TrainableModel):
            self._compile_step(self._model)
            return
        self._compile_ahead(jax.jit(self._apply), self._params, *self._inputs)

    def dispatch(self) -> Any:
        """Calls the executable; JAX returns before the outputs are complete."""
        if self._training is not None:
            return self._training.dispatch()
        return self._compiled(self._params, *self._inputs)

    def synchronize(self, outputs: Any) -> None:
        """Waits until the outputs are complete, or the state after a training step."""
        block_until_ready(outputs if self._steps is None else self._steps.pending())

    def complete(self, outputs: Any) -> Any:
        """Takes the remaining training steps."""
        return outputs if self._training is None else self._training.finish(outputs)

    def retain(self, outputs: Any) -> Any:
        """Returns the outputs; a training step's state does not survive the next step."""
        return self.complete(outputs)

    def fetch(self, outputs: Any) -> list[Any]:
        """Copies the outputs to the host."""
        return [np.asarray(value) for value in as_tuple(outputs)]

    def facts(self) -> BackendFacts:
        """Returns XLA's facts about the executable."""
        facts = BackendFacts(weights="arguments" if jax.tree.leaves(self._params) else "frozen")
        facts.device_name = self._device.device_kind
        facts.cache_hits, facts.cache_misses = self._cache_hits, self._cache_misses
        xla_executables.describe(self._compiled.runtime_executable(), facts)
        if statistics := self._device.memory_stats():
            facts.device_memory_peak_bytes = statistics.get("peak_bytes_in_use")
        if self._applied is not None:
            facts.notes["recipe"] = self._applied
        facts.notes["tf32"] = host_settings.note(
            on_gpu=self._on_gpu,
            types=self._types,
            allowed=not host_settings.is_float32(self._types),
        )
        return facts

    def output_rule(self) -> OutputRule:
        """Outputs are allocated: JAX's arrays are immutable."""
        return OutputRule(modes=("allocated",), reason=ALLOCATED_ONLY)

    def host_settings(self) -> HostSettings:
        """Returns the settings of XLA's CPU client."""
        return xla_executables.host_settings()

    def replace_inputs(self, inputs: Sequence[Array]) -> bool:
        """Puts them on the device."""
        resident = jax.device_put(tuple(inputs), self._device)
        self._inputs = block_until_ready(resident)
        if self._training is not None:
            self._training.restart(block_until_ready(self._model.batches(self._inputs)))
        return True

    def run_with(self, inputs: Sequence[Array]) -> list[Any] | None:
        """Compiles for these inputs, with the resident weights, and runs once."""
        resident = jax.device_put(tuple(inputs), self._device)
        with self._precision():
            return self.fetch(jax.jit(self._apply)(self._params, *resident))

    def generation_parts(self) -> GenerationParts:
        """Returns prefill and decode as separate programs, on the resident weights."""
        with self._precision():
            return parts_of(self._model, self._params, self._inputs)

    def updated(self, draw: Draw, steps: int) -> Mapping[str, Array]:
        """See `Backend.updated`; compiles the function that a step calls as a separate program."""
        assert isinstance(self._model, TrainableModel)
        with self._precision(), jax.default_device(self._device):
            state, gradients = self._model.given(draw, steps)
            state, _ = jax.jit(self._model.update, donate_argnums=0)(state, gradients)
        return {name: np.asarray(value) for name, value in state["weights"].items()}

    @contextmanager
    def step_parts(self) -> Iterator[StepParts]:
        """Yields the loss, the loss with its gradients, and the update, as separate programs."""
        assert self._training is not None
        assert self._steps is not None
        model, batch, params = self._model, self._training.batch(), self._params
        state = jax.tree.map(jax.numpy.copy, self._steps.pending())
        weights = state["weights"]
        with self._precision():
            loss = jax.jit(model.loss).lower(weights, params, *batch).compile()
            both = jax.jit(jax.value_and_grad(model.loss)).lower(weights, params, *batch).compile()
            _, gradients = both(weights, params, *batch)
            change = jax.jit(model.update, donate_argnums=0).lower(state, gradients).compile()

        def update() -> Any:
            nonlocal state
            state, norm = change(state, gradients)
            return state, norm

        # The update takes over the memory of its state.
        kept = jax.tree.map(jax.numpy.copy, weights)
        parts = (
            ("forward", lambda: loss(kept, params, *batch)),
            ("forward_backward", lambda: both(kept, params, *batch)),
            ("update", update),
        )
        yield StepParts(how="programs", parts=parts, wait=block_until_ready)

    def compiled_shares(self) -> Mapping[str, float]:
        """See `Backend.compiled_shares`; only callbacks run Python code in a program."""
        if self._callbacks is None or not self._callbacks.names:
            return {}
        share = self._callbacks.compiled_share(self.iterate)
        if share < LEAST_COMPILED:
            names = ", ".join(sorted(set(self._callbacks.names)))
            raise UnsupportedError(
                f"Python functions that the program calls ({names}) take {1 - share:.0%} of its "
                f"time, but compiled code must take at least {LEAST_COMPILED:.0%}"
            )
        return {"compiled_share": share}

    def release(self) -> None:
        """Stops counting cache events; the listener would keep the weights alive."""
        jax.monitoring.unregister_event_listener(self._count_cache_event)

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """Writes a trace for Perfetto and XLA's own file, by `jax.profiler`."""
        hlo = xla_executables.optimized_hlo(self._compiled.runtime_executable())
        return write_profile(self, directory, iterations, hlo)

    def _compile_step(self, model: TrainableModel) -> None:
        """Compiles a training step, which takes over the memory of the state."""
        first = block_until_ready(model.state(self._params))
        batches = block_until_ready(model.batches(self._inputs))
        step = jax.jit(model.step, donate_argnums=0)
        self._compile_ahead(step, first, self._params, *batches[0])
        self._steps = Run(model, self._compiled, first, self._params)
        self._training = TrainingLoop(self._steps, batches, self._steps.outputs)
        self.rewind = self._training.rewind

    def _compile_ahead(self, function: Any, *arguments: Any) -> None:
        with self.context.phase("trace"), self._precision():
            traced = function.trace(*arguments)
        self._callbacks = Callbacks(traced.jaxpr)
        with self.context.phase("lower"), self._precision():
            lowered = traced.lower()
        with self.context.phase("compile"):
            self._compiled = lowered.compile()

    def _precision(self) -> Any:
        return jax_models.precision(on_gpu=self._on_gpu, types=self._types)

    def _count_cache_event(self, event: str, **_: Any) -> None:
        self._cache_hits += event == "/jax/compilation_cache/cache_hits"
        self._cache_misses += event == "/jax/compilation_cache/cache_misses"


def _device(context: BackendContext) -> Any:
    wanted = context.device.accelerator_type
    try:
        return jax.devices(wanted)[0]
    except RuntimeError as error:
        raise UnsupportedError(
            f"JAX {jax.__version__} finds no {wanted} device for {context.device.name} "
            f"({str(error).splitlines()[0]}): check `nvidia-smi` and install `jax[cuda13]`"
        ) from error
