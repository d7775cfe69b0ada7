"""TensorFlow on CPU and GPU: its programs, their identity and cache, and their reproducers.

Prefill and decode of a model that generates are separate programs. A reproducer is a SavedModel
with the weights as its variables.
"""

import functools
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import tensorflow as tf

from comparative_benchmark.backends import host_settings
from comparative_benchmark.backends.api import (
    ALLOCATED_ONLY,
    Array,
    Backend,
    BackendContext,
    BackendFacts,
    GenerationParts,
    OutputRule,
    UnsupportedError,
)
from comparative_benchmark.backends.exported_programs import Exported, ExportTask
from comparative_benchmark.backends.frameworks import tensorflow_models, xla_executables
from comparative_benchmark.backends.host_settings import HostSettings, pool_size
from comparative_benchmark.backends.model_protocols import (
    FunctionParts,
    Step,
    StepParts,
    TrainingLoop,
)
from comparative_benchmark.tf_xla import profiler
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.training.in_tensorflow import Run, TrainableModel
from openxla.benchmark.training.models import Draw

_FLAG = re.compile(r"--tf_xla_persistent_cache_directory=(\S+)")

# By file, the values that change when it is written again.
Files = Mapping[Path, tuple[int, int]]
# The operators of `tf.py_function` and `tf.numpy_function`.
_PYTHON = frozenset({"EagerPyFunc", "PyFunc", "PyFuncStateless"})
_MODULE = re.compile(r"^HloModule ([\w.-]+)")
# Source location of an operation; its strings may contain braces.
_METADATA = re.compile(r',? metadata=\{(?:"(?:[^"\\]|\\.)*"|[^"}])*\}')
# Argument `jit_compile` of the reproducer's function, by compiler.
_JIT: dict[str, bool | None] = {"xla": True, "graph": None, "eager": None}
_NOTE = (
    "The measurement ran the model's own function. The SavedModel contains the graph that "
    "TensorFlow traced, so the reproducer does not include the tracing."
)
_GPU = "GPU:0"
_INTER_OP_POOL = "tf_Compute"
# TensorFlow's messages if an operation has no kernel, or no lowering to XLA.
_MISSING = re.compile(
    r"(?<=unsupported operations when trying to compile graph ).+"
    r"|No OpKernel was registered.+|Could not find device for node.+"
)


@attrs.frozen(kw_only=True)
class CacheUse:
    """Cache use of one compilation; None for unknown values.

    Attributes:
      hits: 1 if the program was cached.
      misses: number of programs that were compiled and written.
      size_bytes: size of what was loaded or written; None if one of several files was loaded.
    """

    hits: int | None = None
    misses: int | None = None
    size_bytes: int | None = None


class PersistentCache:
    """The persistent cache's directory, from the flags of this process."""

    def __init__(self) -> None:
        match = _FLAG.search(os.environ.get("TF_XLA_FLAGS", ""))
        self._directory = Path(match[1]) if match else None
        self._was_empty = not self.files()

    def files(self) -> Files:
        """Returns the files in the cache."""
        if self._directory is None or not self._directory.is_dir():
            return {}
        states = {path: path.stat() for path in self._directory.iterdir() if path.is_file()}
        return {path: (state.st_ino, state.st_mtime_ns) for path, state in states.items()}

    def use_since(self, before: Files) -> CacheUse:
        """Returns the cache use of one compilation that began with these files in the cache.

        Unknown if the cache is empty, or was empty at first and did not gain the program: it is
        off, or it cannot hold the program.
        """
        after = self.files()
        written = [path for path, state in after.items() if before.get(path) != state]
        if not after or (self._was_empty and not written):
            return CacheUse()
        used = written or (after if len(after) == 1 else ())
        return CacheUse(
            hits=int(not written),
            misses=len(written),
            size_bytes=sum(path.stat().st_size for path in used) if used else None,
        )


def python_operators(concrete: Any) -> list[str]:
    """Returns the types of a function's operators that call Python, without duplicates."""
    definition = concrete.graph.as_graph_def()
    functions = (function.node_def for function in definition.library.function)
    nodes = itertools.chain(definition.node, *functions)
    return sorted({node.op for node in nodes if node.op in _PYTHON})


def fingerprint(hlo: str) -> str:
    """Returns the sha256 of a program's text.

    It leaves out metadata, which hold lines of Python source, and the module's name, which holds
    TensorFlow's running number of the function.
    """
    text = _METADATA.sub("", hlo)
    if module := _MODULE.match(text):
        text = text.replace(module[1], "module")
    return hashlib.sha256(text.encode()).hexdigest()


def parts_of(
    model: Any,
    inputs: Sequence[tf.Tensor],
    compiled: Callable[..., Callable[..., Any]],
    synchronize: Callable[[Any], None],
) -> GenerationParts:
    """Compiles `prefill` and `decode`, each with the choice of the token, by a first call.

    TensorFlow cannot donate arguments: `decode` copies the cache for each token, which the loop of
    a whole generation need not do.

    Args:
      model: a `GenerationModel`.
      inputs: its resident inputs.
      compiled: returns a function in the form that the backend's compiler runs, given example
        arguments.
      synchronize: waits for all work that was started.
    """

    def prefill(*inputs: tf.Tensor) -> Step:
        return _chosen(*model.prefill(*inputs))

    def decode(token: tf.Tensor, position: tf.Tensor, cache: Any) -> Step:
        return _chosen(*model.decode(token, position, cache))

    first = model.first_position(*inputs)
    with tf.device(inputs[0].device):
        steps = range(model.max_new_tokens - 1)
        positions = [tf.constant(first + index, tf.int32) for index in steps]
    compiled_prefill = compiled(prefill, *inputs)
    compiled_decode = None
    token, logits, cache = compiled_prefill(*inputs)
    if positions:
        compiled_decode = compiled(decode, token, positions[0], cache)
        _, logits, _ = compiled_decode(token, positions[0], cache)
    synchronize(logits)
    return FunctionParts(
        functools.partial(compiled_prefill, *inputs),
        compiled_decode,
        positions,
        wait=synchronize,
        to_host=lambda value: value.numpy(),
    )


def _chosen(logits: tf.Tensor, cache: Any) -> Step:
    return tf.argmax(logits, axis=-1, output_type=tf.int32), logits, cache


def export_reproducer(task: ExportTask) -> Exported:
    """Writes `saved_model`, whose function `run` takes the inputs by position."""
    tf.config.set_visible_devices([], "GPU")
    model = task.model()
    specs = [
        tf.TensorSpec(value.shape, tf.as_dtype(value.dtype.name), name=f"input_{index}")
        for index, value in enumerate(task.inputs)
    ]

    def positional(*arguments: Any) -> tuple[Any, ...]:
        # An output that is an input or a variable would not be kept as an output.
        return tuple(tf.identity(value) for value in as_tuple(model.forward(*arguments)))

    module = tf.Module()
    module.run = tf.function(positional, input_signature=specs)
    # A SavedModel keeps only attributes of its module, so add the captured variables.
    module.weights = list(module.run.get_concrete_function().variables)
    tf.saved_model.save(module, str(task.directory / "saved_model"))
    notes = [_NOTE]
    if task.context.compiler == "eager":
        notes.append(
            "The measurement ran op by op. A graph cannot do that, so run.py runs the whole graph."
        )
    return Exported(
        settings={"threads": task.context.threads, "jit_compile": _JIT[task.context.compiler]},
        packages=("tensorflow", "numpy", "ml_dtypes"),
        files={"saved_model": "the program to compile; its weights are its variables"},
        notes=tuple(notes),
    )


class TfXla(Backend):
    """Runs `model.forward`, compiled by XLA, as a graph, or op by op.

    The weights are variables, which the program reads each time that it runs.
    """

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._on_gpu = context.device.accelerator_type == "gpu"
        _configure(context)
        self._model: Any = None
        self._inputs: tuple[tf.Tensor, ...] = ()
        self._function: Any = None
        self._run: Any = None
        self._concrete: Any = None
        self._types: frozenset[str] = frozenset()
        self._cache = PersistentCache()
        self._cached = CacheUse()
        self._facts: BackendFacts | None = None
        self._training: TrainingLoop | None = None

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Puts the inputs on the device; the variables are there since the model was created."""
        with self.context.phase("load"):
            self._model = model
            held = (*inputs, *_variables(model))
            # Keras variables have their own types, which are names.
            self._types = frozenset(tf.as_dtype(value.dtype).name for value in held)
            if self._on_gpu:
                # TensorFlow allows TF32 by default. A 16-bit model is compiled as its users compile
                # it.
                exact = host_settings.is_float32(self._types)
                tf.config.experimental.enable_tensor_float_32_execution(not exact)
            self._wait()
        with self.context.phase("h2d"):
            self.replace_inputs(inputs)
        self._run = self._function = model.forward
        if isinstance(model, TrainableModel):
            self._start_training(model, lambda step: step)

    def compile(self) -> None:
        """Traces to a graph, and compiles it in a first call; does nothing for eager.

        TensorFlow compiles a graph, by XLA or by Grappler, when it is first called, and then runs
        it: lowering, compilation and the first run cannot be timed separately.

        Raises:
          UnsupportedError: an operation of the model has no kernel or no lowering here.
        """
        if self.context.compiler == "eager":
            return
        with self.context.phase("trace"):
            if isinstance(self._model, TrainableModel):
                self._start_training(self._model, self._compiled_step)
            else:
                self._function = self._compiled(self._model.forward)
                self._run = self._concrete = self._function.get_concrete_function(*self._inputs)
        self._require_graph()
        before = self._cache.files()
        with self.context.phase("compile"):
            try:
                self.synchronize(self.dispatch())
            except tf.errors.OpError as error:
                if (missing := _missing(error)) is None:
                    raise
                raise UnsupportedError(
                    f"TensorFlow {tf.__version__} cannot run this model with "
                    f"{self.context.compiler} on {self.context.device.name}: {missing}"
                ) from error
        self._cached = self._cache.use_since(before)

    def _require_graph(self) -> None:
        """Raises UnsupportedError unless the function to call is a single compiled program.

        XLA itself refuses operators without a lowering. A graph accepts Python functions, which
        TensorFlow calls back.
        """
        concrete = self._concrete
        if tf.config.functions_run_eagerly():
            raise UnsupportedError(
                "the model makes TensorFlow run functions eagerly: remove "
                "tf.config.run_functions_eagerly(True), or measure tf_xla:eager"
            )
        if self.context.compiler == "xla":
            if not concrete.function_def.attr["_XlaMustCompile"].b:
                raise UnsupportedError("TensorFlow would run operators outside XLA's program")
        elif python := python_operators(concrete):
            raise UnsupportedError(
                f"the graph calls Python functions ({', '.join(python)}), which are not part of a "
                "compiled program: measure tf_xla:eager"
            )

    def dispatch(self) -> Any:
        """Calls the program, or takes the next training step."""
        if self._training is not None:
            return self._training.dispatch()
        return self._run(*self._inputs)

    def complete(self, outputs: Any) -> Any:
        """Takes the remaining training steps."""
        return outputs if self._training is None else self._training.finish(outputs)

    def retain(self, outputs: Any) -> Any:
        """Returns the outputs; training variables change with the next step."""
        return self.complete(outputs)

    def synchronize(self, outputs: Any) -> None:
        """Waits for the GPU; on the CPU the call returned completed outputs."""
        self._wait()

    def fetch(self, outputs: Any) -> list[Any]:
        """Copies the outputs to the host."""
        return [to_numpy(value) for value in as_tuple(outputs)]

    def replace_inputs(self, inputs: Sequence[Array]) -> bool:
        """Puts them on the device."""
        self._inputs = self._put(inputs)
        if self._training is not None:
            self._training.restart(self._model.batches(self._inputs))
        self._wait()
        return True

    def run_with(self, inputs: Sequence[Array]) -> list[Any]:
        """Runs the model on further inputs; TensorFlow compiles again if shapes differ."""
        return self.fetch(self._function(*self._put(inputs)))

    def generation_parts(self) -> GenerationParts:
        """Returns prefill and decode as separate programs, on the existing variables."""
        return parts_of(self._model, self._inputs, self._traced, self.synchronize)

    def updated(self, draw: Draw, steps: int) -> Mapping[str, Array]:
        """See `Backend.updated`; compiles the function that a step calls as a separate program."""
        assert self._training is not None
        run = self._training.run
        assert isinstance(run, Run)
        gradients = run.given(draw, steps)
        self._traced(run.update, *gradients)(*gradients)
        weights = run.weights()
        self._training.abandon()
        return weights

    @contextmanager
    def step_parts(self) -> Iterator[StepParts]:
        """Yields the loss, the loss with its gradients, and the update, as separate programs."""
        assert self._training is not None
        run, batch = self._training.run, self._training.batch()
        assert isinstance(run, Run)
        loss = self._traced(self._model.loss, *batch)
        both = self._traced(run.gradients, *batch)
        _, gradients = both(*batch)
        update = self._traced(run.update, *gradients)
        parts = (
            ("forward", lambda: loss(*batch)),
            ("forward_backward", lambda: both(*batch)),
            ("update", lambda: update(*gradients)),
        )
        yield StepParts(how="programs", parts=parts, wait=self.synchronize)
        self._training.abandon()

    def facts(self) -> BackendFacts:
        """Returns facts about the program from TensorFlow and XLA."""
        # Cached, because XLA compiles again to report them.
        if self._facts is None:
            self._facts = self._known_once()
        if not self._on_gpu:
            return self._facts
        peak = tf.config.experimental.get_memory_info(_GPU)["peak"]
        return attrs.evolve(self._facts, device_memory_peak_bytes=peak)

    def output_rule(self) -> OutputRule:
        """Outputs are allocated: TensorFlow's tensors are immutable."""
        return OutputRule(modes=("allocated",), reason=ALLOCATED_ONLY)

    def host_settings(self) -> HostSettings:
        """Returns the sizes of its pools, by thread names; Grappler's threads have none."""
        if self.context.compiler == "xla":
            threads = pool_size(xla_executables.POOL)
            told_by = f"threads named {xla_executables.POOL}"
        else:
            # TensorFlow returns 0 if the environment sets the number.
            asked = tf.config.threading.get_intra_op_parallelism_threads()
            threads = asked or int(os.environ["TF_NUM_INTRAOP_THREADS"])
            told_by = "tf.config.threading" if asked else "TF_NUM_INTRAOP_THREADS"
        return HostSettings(
            threads=threads,
            inter_op_threads=pool_size(_INTER_OP_POOL),
            threads_told_by=f"{told_by}; threads named {_INTER_OP_POOL}",
        )

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """Writes a trace and TensorFlow's own file, by `tf.profiler`."""
        return profiler.profile(self, directory, iterations, self._optimized_hlo())

    def _optimized_hlo(self) -> str:
        """Returns XLA's program, which requires another compilation; empty if XLA has none."""
        if self.context.compiler != "xla":
            return ""
        inputs = self._inputs
        if self._training is not None:
            inputs = self._model.batches(inputs)[0]
        text: str = self._function.experimental_get_compiler_ir(*inputs)(stage="optimized_hlo")
        return text

    def _known_once(self) -> BackendFacts:
        known = _variables(self._model) if self._concrete is None else self._concrete.variables
        facts = BackendFacts(weights="parameters" if list(known) else "frozen")
        if self.context.compiler != "eager":
            facts.not_measurable = ("lower", "first_run")
            facts.notes["compile"] = "a call that compiles and then runs once"
        if self.context.compiler == "xla":
            facts.cache_hits, facts.cache_misses = self._cached.hits, self._cached.misses
            facts.artifact_size_bytes = self._cached.size_bytes
            facts.artifact_sha256 = fingerprint(self._optimized_hlo())
        if self._on_gpu:
            [gpu, *_] = tf.config.list_physical_devices("GPU")
            details = tf.config.experimental.get_device_details(gpu)
            facts.device_name = details.get("device_name")
        facts.notes["tf32"] = host_settings.note(
            on_gpu=self._on_gpu,
            types=self._types,
            allowed=tf.config.experimental.tensor_float_32_execution_enabled(),
        )
        return facts

    def _start_training(self, model: TrainableModel, compiled: Callable[..., Any]) -> None:
        run = model.run(compiled)
        self._training = TrainingLoop(run, model.batches(self._inputs), run.outputs)
        self.rewind = self._training.rewind

    def _compiled_step(self, step: Callable[..., Any]) -> Any:
        self._function = self._compiled(step)
        batch = self._model.batches(self._inputs)[0]
        self._concrete = self._function.get_concrete_function(*batch)
        return self._concrete

    def _compiled(self, function: Callable[..., Any]) -> Any:
        """Returns a function in the form that this backend's compiler runs."""
        if self.context.compiler == "eager":
            return function
        jit_compile = True if self.context.compiler == "xla" else None
        return tensorflow_models.function_of(function, jit_compile=jit_compile)

    def _traced(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Returns a function in that form, traced for such arguments.

        The concrete function is called, which skips the check of the arguments' types: they never
        change.
        """
        compiled = self._compiled(function)
        if self.context.compiler != "eager":
            compiled = compiled.get_concrete_function(*arguments)
        return compiled

    def _put(self, inputs: Sequence[Array]) -> tuple[tf.Tensor, ...]:
        with tf.device(_GPU if self._on_gpu else "CPU:0"):
            return tuple(tf.identity(tf.convert_to_tensor(value)) for value in inputs)

    def _wait(self) -> None:
        if self._on_gpu:
            tf.test.experimental.sync_devices()


def to_numpy(value: Any) -> Array:
    """Returns a tensor as an array on the host.

    Raises:
      TypeError: the value is not a tensor.
    """
    if not isinstance(value, tf.Tensor):
        raise TypeError(f"forward returned a {type(value).__name__}, expected a tensor")
    return np.asarray(value.numpy())


def _configure(context: BackendContext) -> None:
    """Sets devices and threads, which TensorFlow accepts only before its initialisation.

    Raises:
      UnsupportedError: there is no such device.
    """
    gpus = tf.config.list_physical_devices("GPU")
    on_gpu = context.device.accelerator_type == "gpu"
    if on_gpu and not gpus:
        raise UnsupportedError(
            f"TensorFlow {tf.__version__} finds no GPU for {context.device.name}: check "
            "`nvidia-smi`, and install `tensorflow[and-cuda]`"
        )
    tf.config.set_visible_devices(gpus[:1] if on_gpu else [], "GPU")
    if os.environ.get("TF_NUM_INTRAOP_THREADS") != str(context.threads):
        # Without a worker, the environment does not set them.
        tf.config.threading.set_intra_op_parallelism_threads(context.threads)
        tf.config.threading.set_inter_op_parallelism_threads(context.threads)


def _missing(error: tf.errors.OpError) -> str | None:
    """Returns what TensorFlow lacks, if the error is about a missing kernel or lowering."""
    if match := _MISSING.search(error.message):
        return match[0]
    if isinstance(error, tf.errors.UnimplementedError):
        return str(error.message).partition("\n")[0]
    return None


def _variables(model: Any) -> Iterator[Any]:
    """Yields the variables of a model and of its attributes; some of them twice."""
    for part in (model, *vars(model).values()):
        if isinstance(part, tf.Variable):
            yield part
        elif not isinstance(part, type):  # a model may hold classes of layers
            yield from getattr(part, "variables", ())
