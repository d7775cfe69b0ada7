"""PyTorch on CPU and CUDA; also prefill and decode of a model as separate calls."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch._dynamo.utils import clear_compilation_metrics, counters
from torch._inductor.codecache import FxGraphCache, PyCodeCache
from torch._inductor.compile_fx import compile_fx, compile_fx_inner

from comparative_benchmark.backends import host_settings
from comparative_benchmark.backends.api import (
    ALLOCATED_ONLY,
    LEAST_COMPILED,
    Array,
    Backend,
    BackendContext,
    BackendFacts,
    DeviceTimer,
    GenerationParts,
    OutputRule,
    UnsupportedError,
)
from comparative_benchmark.backends.compiled_calls import CompiledCalls
from comparative_benchmark.backends.exported_programs import digest_of_set
from comparative_benchmark.backends.frameworks import torch_modules as modules
from comparative_benchmark.backends.frameworks.torch_export import refusing
from comparative_benchmark.backends.frameworks.torch_modules import to_numpy
from comparative_benchmark.backends.host_settings import HostSettings
from comparative_benchmark.backends.model_protocols import (
    ForeignModel,
    FunctionParts,
    Step,
    StepParts,
    TrainingLoop,
)
from comparative_benchmark.backends.recipes.registry import accept_options, chosen_among
from comparative_benchmark.pt_inductor import BACKEND, cuda, dynamo, exports, profiler, quantization
from openxla.benchmark.models.model_interfaces import GenerationModel
from openxla.benchmark.models.pt.tensors import as_tensor
from openxla.benchmark.models.shared_model import as_tuple
from openxla.benchmark.operators import in_torch
from openxla.benchmark.training import in_torch as training
from openxla.benchmark.training.models import Draw


def parts_of(
    model: Any,
    inputs: Sequence[torch.Tensor],
    *,
    compile_part: Callable[[Any], Any],
    wait: Callable[[Any], None],
) -> GenerationParts:
    """Calls `prefill` and `decode` of the measured model, on the same weights.

    `compile_part` is what the backend does to a function. If it compiles by tracing calls, these
    two have been compiled already, as parts of the model. `decode` writes into its cache.
    """
    compiled_prefill, compiled_decode = map(compile_part, (model.prefill, model.decode))
    first, steps = model.first_position(*inputs), model.max_new_tokens - 1
    positions = torch.arange(first, first + steps, device=inputs[0].device)
    return FunctionParts(
        lambda: _chosen(*compiled_prefill(*inputs)),
        lambda *arguments: _chosen(*compiled_decode(*arguments)),
        [positions[index : index + 1] for index in range(steps)],
        wait=wait,
        to_host=to_numpy,
    )


def _chosen(logits: torch.Tensor, cache: Any) -> Step:
    return logits.argmax(dim=-1).to(torch.int32), logits, cache


# Lines of `torch.__config__.show()` on math libraries, and on ATen's own kernels.
_LIBRARY = re.compile(r"- (Intel\(R\) |OpenBLAS|CPU capability usage)")
# Inductor's own names for our options. Its mode "reduce-overhead" only sets this option.
_CONFIG = {
    "max-autotune": {"max_autotune": True},
    "freezing": {"freezing": True},
    "cuda-graphs": {"triton.cudagraphs": True},
}


class PtInductor(Backend):
    """Runs the model on resident tensors: eagerly, through `torch.compile`, or as a package."""

    peak_is_of_the_model: ClassVar[bool] = True

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._device = _device(context)
        self._on_gpu = self._device.type == "cuda"
        self._cuda_graphs = "cuda-graphs" in context.options
        if self._cuda_graphs and not self._on_gpu:
            raise UnsupportedError(
                f"CUDA graphs need an NVIDIA GPU, but the device is {context.device.name}: measure "
                "`inductor` without `+cuda-graphs`, or run with --device host-gpu"
            )
        self._inputs: tuple[torch.Tensor, ...] = ()
        self._model: Any = None
        self._run: Any = None
        if type(self) is PtInductor:  # plug-ins that inherit it have other compilers and options
            accept_options(context.options, BACKEND.compiler(context.compiler).options)
        self._recipe = chosen_among(context.options)
        self._applied: dict[str, Any] | None = None
        self._ahead: exports.AotProgram | None = None
        self._inductor: Any = None
        self._types: frozenset[str] = frozenset()
        self._cache_hits = 0
        self._in_compile = False
        self._tracing = ExitStack()
        self._training: TrainingLoop | None = None
        torch.set_num_threads(context.threads)

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Moves modules and inputs to the device; a GPU then computes float32 without TF32."""
        torch.set_grad_enabled(False)  # not earlier: a user's file may have fitted its model
        if self._on_gpu:
            cuda.forbid_tf32()  # here, because a model's own module may have allowed it
        with self.context.phase("load"):
            if self._on_gpu:
                torch.cuda.init()  # otherwise there is no allocator to reset
                torch.cuda.reset_peak_memory_stats(self._device)
            for module in modules.of(model):
                module.to(self._device)
            if self._recipe is not None:
                self._applied = quantization.apply_recipe(model, self._recipe)
            self._wait()
        foreign = isinstance(model, ForeignModel)
        with self.context.phase("h2d"):
            if foreign:
                self._inputs = model.reside(inputs)
            else:
                self._inputs = tuple(as_tensor(value).to(self._device) for value in inputs)
            self._wait()
        self._model = model
        self._types = modules.element_types(model) | {value.dtype.name for value in inputs}
        if foreign:
            self._run = model.timed
        elif self._trains():
            self._run = model.training_step()
        elif self._takes_steps():
            self._start_training()
        else:
            self._run = model if isinstance(model, torch.nn.Module) else model.forward

    def compile(self) -> None:
        """Compiles with Inductor in a first call, or ahead of time; does nothing for eager.

        Dynamo compiles when the function is first called and then runs it, so the first run cannot
        be timed separately. Two phases can: the time until Dynamo passes on its first graph
        (`trace`), and the time that Inductor spends on its graphs (`compile`).
        """
        if self.context.compiler == "eager":
            return
        if self.context.compiler == "aot-inductor":
            self._ahead = exports.AotProgram(self._model, self._inputs, self.context)
            self._model = None  # the package contains its own weights
            self._run = self._ahead.run
            return
        if hasattr(self._model, "exportable") and not self._trains():
            # Dynamo cannot look into TorchScript.
            with self.context.phase("trace"), refusing("torch.export"):
                self._run = self._model.exportable(self._inputs)
        options = [_CONFIG[option] for option in self.context.options if option in _CONFIG]
        config = {key: value for option in options for key, value in option.items()}
        if "freezing" in self.context.options:
            if self._trains() or self._takes_steps():
                raise UnsupportedError(
                    "Inductor freezes weights only for inference: to train, omit `+freezing`"
                )
            torch._inductor.config.freezing = True  # noqa: SLF001  # read by Dynamo, too

        calls = self.compiled_calls = dynamo.DynamoCalls("Inductor")
        cache_was_empty = not any(Path(FxGraphCache._get_tmp_dir()).glob("*/*"))  # noqa: SLF001

        def inductor(graph: Any, example_inputs: Any) -> Any:
            self._tracing.close()
            with self._compiling():
                program = compile_fx(graph, example_inputs, self._compile_inner, config)
            return calls.counted(program)

        self._inductor = inductor
        self._compile_by_calls(partial(torch.compile, backend=inductor), calls)
        # Equal layers, and later recompilations, hit programs that this process has cached.
        self._cache_hits = 0 if cache_was_empty else counters["inductor"]["fxgraph_cache_hit"]
        if not calls.compilations:
            raise UnsupportedError(f"Inductor compiled nothing: {calls.fallback_reason()}")
        if self._cuda_graphs and not isinstance(self._model, ForeignModel):
            cuda.require_graphs(calls.compilations)

    def _compile_by_calls(self, compile_call: Callable[..., Any], calls: CompiledCalls) -> None:
        """Compiles the model, or what its training step calls, by running it."""

        def compile_part(part: Any) -> Any:
            return calls.bounded(compile_call(part))

        if isinstance(self._model, ForeignModel):
            self._compile_foreign(self._model, compile_part)
            return
        if self._trains():
            # As in a training loop: the backward pass of a compiled part is compiled as well, and
            # runs where gradients are taken, outside of the part.
            self._run = self._model.training_step(compile_part)
        elif self._takes_steps():
            self._start_training(compile_part)
        else:
            self._run = compile_call(self._run)
        self._tracing.enter_context(self.context.phase("trace"))
        self._run(*self._inputs)
        self._wait()
        if self._cuda_graphs:
            # The first call warms up, the second records what later ones replay.
            with self.context.phase("compile"):
                self._run(*self._inputs)
                self._wait()

    def _compile_foreign(self, model: ForeignModel, compile_part: Callable[..., Any]) -> None:
        """Compiles foreign code's module with Inductor, by running a first iteration.

        The backward pass of a training step is compiled when it is reached, so phases cannot be
        timed separately.
        """
        # Draw the random numbers of the reference; otherwise dropout could not be verified.
        torch._inductor.config.fallback_random = True  # noqa: SLF001
        model.compile_in_place(compile_part)
        with self._compiling():
            for _ in range(2 if self._cuda_graphs else 1):
                model.timed()
                self._wait()

    def dispatch(self) -> Any:
        """Calls the model, or takes its next training step."""
        return self._run(*self._inputs)

    def synchronize(self, outputs: Any) -> None:
        """Waits for the GPU; on the CPU the call returned completed outputs."""
        if self._on_gpu:
            torch.cuda.synchronize(self._device)

    def fetch(self, outputs: Any) -> list[Any]:
        """Copies the outputs to the host."""
        if isinstance(self._model, ForeignModel):
            outputs = self._judged(self._model, outputs)
        return [to_numpy(value) for value in as_tuple(outputs)]

    def _judged(self, model: ForeignModel, outputs: Any) -> tuple[Any, ...]:
        """Returns foreign code's outputs to verify; a replay must call compiled programs."""
        calls = self.compiled_calls
        before = calls.calls if calls else 0
        judged = model.outputs_of(outputs)
        if calls and model.replayed and calls.calls == before:
            raise UnsupportedError(
                "Inductor's program was not called in the verified steps: "
                f"{calls.fallback_reason()}"
            )
        return judged

    def facts(self) -> BackendFacts:
        """Returns PyTorch's facts about the program."""
        freezing = "freezing" in self.context.options
        facts = BackendFacts(weights="frozen" if freezing else "parameters")
        if self._applied is not None:
            facts.notes["recipe"] = self._applied
        if self.compiled_calls is not None:
            graphs = self.compiled_calls.compilations
            # With several graphs, tracing continues between them.
            facts.not_measurable = ("lower", "first_run", *(["trace"] if graphs != 1 else []))
            facts.notes["graphs"] = graphs
            facts.cache_hits = self._cache_hits
            facts.cache_misses = counters["inductor"]["fxgraph_cache_miss"]
            if code := _generated_code():
                facts.artifact_sha256 = digest_of_set(code)
                facts.artifact_size_bytes = sum(map(len, code))
            if self._cuda_graphs:
                facts.notes["graphs_without_cuda_graph"] = cuda.skipped_graphs()
        if self._ahead is not None:
            self._ahead.describe(facts)
        if isinstance(self._model, ForeignModel):
            facts.notes |= self._model.notes()
            if self.context.compiler == "inductor":
                facts.not_measurable = ("trace", "lower", "first_run")
                facts.notes["fallback_random"] = True
        if self._on_gpu:
            facts.device_memory_peak_bytes = torch.cuda.max_memory_allocated(self._device)
            facts.device_name = torch.cuda.get_device_name(self._device)
        facts.notes["tf32"] = host_settings.note(
            on_gpu=self._on_gpu, types=self._types, allowed=cuda.allows_tf32()
        )
        return facts

    def output_rule(self) -> OutputRule:
        """Returns how outputs are held: new tensors, or recorded addresses for a CUDA graph."""
        if self._cuda_graphs:
            reason = "each replay of a CUDA graph writes to the recorded addresses"
            return OutputRule(modes=("bound",), reason=reason)
        return OutputRule(modes=("allocated",), reason=ALLOCATED_ONLY)

    def host_settings(self) -> HostSettings:
        """Returns PyTorch's own values: threads, and the libraries that it was built with."""
        told = map(str.strip, torch.__config__.show().splitlines())
        libraries = [line.removeprefix("- ") for line in told if _LIBRARY.match(line)]
        return HostSettings(
            threads=torch.get_num_threads(),
            inter_op_threads=torch.get_num_interop_threads(),
            threads_told_by="torch.get_num_threads, get_num_interop_threads",
            blas="; ".join(libraries) or None,
        )

    def replace_inputs(self, inputs: Sequence[Array]) -> bool:
        """Copies them into the existing tensors: a program may know these by address."""
        for resident, value in zip(self._inputs, inputs, strict=True):
            resident.copy_(as_tensor(value))
        if self._training is not None:
            self._training.restart(self._model.batches(self._inputs))
        self._wait()
        return True

    def run_with(self, inputs: Sequence[Array]) -> list[Any] | None:
        """Calls the model itself; programs of Inductor are reused if shapes are the same."""
        if self._ahead is not None:
            return None
        return self.fetch(self._run(*(as_tensor(value).to(self._device) for value in inputs)))

    def generation_parts(self) -> GenerationParts:
        """Returns prefill and decode, called from Python as in the model's own loop."""
        if self._ahead is not None:
            return super().generation_parts()
        if self._cuda_graphs:
            raise UnsupportedError(
                "a CUDA graph for `decode` reads the cache at a fixed address, so each step needs "
                "its own graph, and these graphs are recorded only during a whole generation"
            )

        def compile_part(part: Any) -> Any:
            # The same backend object, so that Dynamo finds what it compiled for the whole model.
            return torch.compile(part, backend=self._inductor) if self._inductor else part

        return parts_of(self._model, self._inputs, compile_part=compile_part, wait=self.synchronize)

    def release(self) -> None:
        """Resets Dynamo, which gives up on a function that it has compiled too often."""
        torch.set_grad_enabled(True)
        torch._dynamo.reset()  # noqa: SLF001  # documented for users
        torch._inductor.config.freezing = False  # noqa: SLF001
        torch._inductor.config.fallback_random = False  # noqa: SLF001
        if self._cuda_graphs:
            cuda.forget_graphs()
        counters.clear()
        clear_compilation_metrics()
        PyCodeCache.cache_clear()  # the digest covers all modules

    def updated(self, draw: Draw, steps: int) -> Mapping[str, Array]:
        """See `Backend.updated`; runs the last call of a step."""
        assert self._training is not None
        run: Any = self._training.run
        run.update_from(draw, steps)
        weights: Mapping[str, Array] = run.weights()
        updated = {name: weights[name] for name in run.updated()}
        self._training.abandon()
        return updated

    @contextmanager
    def step_parts(self) -> Iterator[StepParts]:
        """Yields forward, backward and update: the calls of a step."""
        assert self._training is not None
        run: Any = self._training.run
        batch, loss = self._training.batch(), None

        def forward() -> None:
            nonlocal loss
            loss = run.forward(*batch)

        def backward() -> None:
            nonlocal loss
            run.backward(loss)
            loss = None

        parts = (("forward", forward), ("backward", backward), ("update", run.update))
        yield StepParts(how="calls", parts=parts, wait=self.synchronize)
        self._training.abandon()

    def compiled_shares(self) -> Mapping[str, float]:
        """See `Backend.compiled_shares`; a loop that calls compiled parts has no minimum share."""
        if self.compiled_calls is None:
            return {}
        shares = dynamo.measure_shares(self.compiled_calls, self.iterate, self._wait)
        share = shares["compiled_share"]
        if share < LEAST_COMPILED and not isinstance(self._model, GenerationModel):
            raise UnsupportedError(
                f"Inductor's programs take {share:.0%} of the compiled model's time, but at least "
                f"{LEAST_COMPILED:.0%} is required; Dynamo runs the rest eagerly: "
                f"{self.compiled_calls.fallback_reason()}"
            )
        return shares

    def device_timer(self) -> DeviceTimer | None:
        """Returns a timer with CUDA events on a GPU; None on the CPU."""
        return cuda.CudaEvents() if self._on_gpu else None

    def retain(self, outputs: Any) -> Any:
        """Copies what the next replay of a CUDA graph would overwrite."""
        if self._training is not None:
            return self._training.finish(outputs)
        return cuda.copies(outputs) if self._cuda_graphs else outputs

    def complete(self, outputs: Any) -> Any:
        """Takes the remaining training steps."""
        return outputs if self._training is None else self._training.finish(outputs)

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """Writes a trace and a table of operators, by `torch.profiler`."""
        return profiler.profile(self, directory, iterations)

    def _trains(self) -> bool:
        return isinstance(self._model, in_torch.TrainingModel)

    def _takes_steps(self) -> bool:
        return isinstance(self._model, training.TrainableModel)

    def _start_training(self, compile_part: Callable[..., Any] = lambda part: part) -> None:
        run = self._model.run(compile_part)
        self._training = TrainingLoop(run, self._model.batches(self._inputs), run.outputs)
        dispatch = self._training.dispatch
        self._run = lambda *_: dispatch()
        self.rewind = self._training.rewind

    @contextmanager
    def _compiling(self) -> Iterator[None]:
        """Times the phase `compile`, once if calls of Inductor are nested."""
        if self._in_compile:
            yield
            return
        self._in_compile = True
        try:
            with self.context.phase("compile"):
                yield
        finally:
            self._in_compile = False

    def _compile_inner(self, *args: Any, **kwargs: Any) -> Any:
        # A backward is compiled when gradients are first taken.
        with self._compiling():
            return compile_fx_inner(*args, **kwargs)

    def _wait(self) -> None:
        self.synchronize(None)


def _generated_code() -> list[bytes]:
    """Returns all modules that Inductor has generated in this process.

    A module holds the wrapper and the source of its C++ or Triton kernels, without paths or dates:
    the same source with the same versions gives the same program.
    """
    files = {Path(str(module.__file__)) for module in PyCodeCache.modules}
    return [file.read_bytes() for file in files if file.is_file()]


def _device(context: BackendContext) -> torch.device:
    if context.device.accelerator_type == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise UnsupportedError(
            f"PyTorch {torch.__version__} finds no CUDA device for {context.device.name}: check "
            "`nvidia-smi`, and that torch is a CUDA build (`python -c 'import torch; "
            "print(torch.version.cuda)'`)"
        )
    return torch.device("cuda", 0)
