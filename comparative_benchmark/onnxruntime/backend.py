"""ONNX Runtime: export from PyTorch, then run the graph without the framework."""

import gc
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from comparative_benchmark.backends import onnx_export, tf32, torch_export
from comparative_benchmark.backends.api import (
    Array,
    Backend,
    BackendContext,
    BackendFacts,
    GenerationParts,
    UnsupportedError,
)
from comparative_benchmark.backends.resident_programs import (
    GenerationLoop,
    GenerationPlan,
    LoopParts,
    SingleProgram,
)
from comparative_benchmark.onnxruntime import WIDENED, graph, optimized, profiler, session

_ONE, _TWO = ("model",), ("prefill", "decode")


class OnnxRuntime(Backend):
    """Exports a model, and runs it in sessions with bound inputs and outputs.

    A model that generates is two graphs, prefill and decode; any other is one.
    """

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._device = _device(context)
        self._work_dir = Path(context.work_dir)
        self._model: Any = None
        self._arrays: tuple[Array, ...] = ()
        self._paths: tuple[Path, ...] = ()
        self._bound: SingleProgram | GenerationLoop | None = None
        self._run: Any = None
        self._types: frozenset[str] = frozenset()
        self._graphs: list[optimized.OptimizedGraph] = []

    def load(self, model: Any, inputs: Sequence[Array]) -> None:
        """Keeps model and inputs for `compile`: there is no device before there is a session."""
        self._model, self._arrays = model, tuple(inputs)

    def compile(self) -> None:
        """Exports (`trace`), translates to ONNX (`lower`), and opens sessions (`compile`).

        Raises:
          UnsupportedError: the model can not be exported, or ONNX Runtime would compute it in
            another type than its own.
        """
        plan = self._export()
        with self.context.phase("compile"):
            opened = [
                session.open_session(path, self._device, self._options()) for path in self._paths
            ]
        programs = [session.SessionProgram(item, self._device) for item in opened]
        with self.context.phase("h2d"):
            if plan is None:
                self._bound = SingleProgram(programs[0], self._arrays)
            else:
                self._bound = GenerationLoop(programs[0], programs[1], plan, self._arrays)
        self._run = self._bound.run
        if self._device == "cpu":
            self._graphs = [
                optimized.examine(path, self.context.compiler, self._work_dir)
                for path in self._paths
            ]
            self._check_types()

    def dispatch(self) -> Any:
        """Runs the graph, which returns when its outputs are complete."""
        return self._run()

    def synchronize(self, outputs: Any) -> None:
        """The call was synchronous."""

    def fetch(self, outputs: Any) -> list[Any]:
        """Copies the outputs to the host."""
        if self._bound is None:
            raise RuntimeError("compile must come first")
        return list(self._bound.fetch())

    def facts(self) -> BackendFacts:
        """Identity and size of the optimized graphs, and what they compute in which type."""
        facts = BackendFacts(weights="frozen")
        facts.notes = {
            "weights": "initializers: constants, which a session folds and packs",
            "dispatch": "synchronous: the host waits inside the call",
            "provider": session.PROVIDERS[self._device],
            "graphs": len(self._paths),
            "intra_op_num_threads": self.context.threads,
            "inter_op_num_threads": 1,
            "intra_op_spinning": True,  # ONNX Runtime's default
        }
        facts.notes["tf32"] = tf32.note(
            on_gpu=self._device == "cuda", types=self._types, allowed=False
        )
        if self.context.kept:
            facts.notes["export"] = "of the first process"
        elif self.context.exported:
            facts.notes["starts_from"] = sorted(self.context.exported)
        if self._graphs:
            facts.artifact_sha256 = _joint([found.sha256 for found in self._graphs])
            facts.artifact_size_bytes = sum(found.size_bytes for found in self._graphs)
            facts.notes["parameters_size_bytes"] = sum(
                found.weights_size_bytes for found in self._graphs
            )
            for path, found in zip(self._paths, self._graphs, strict=True):
                facts.notes[path.stem] = {
                    "nodes": found.optimized.nodes,
                    "operators": found.optimized.operators,
                    "inserted_casts": found.optimized.inserted_casts,
                    "widened": graph.widened(found.exported, found.optimized),
                }
        return facts

    def exports(self) -> Mapping[str, Sequence[Path]]:
        """The ONNX file and its weights; nothing of a model that generates, which is two."""
        # On a GPU the types of the model are needed, see `facts`.
        if self._paths and len(self._paths) == 1 and self._device == "cpu":
            return {"onnx": [*self._paths, self._paths[0].with_suffix(".onnx.data")]}
        return {}

    def run_with(self, inputs: Sequence[Array]) -> list[Any] | None:
        """Generates along given tokens; None for a model that does not generate."""
        if not isinstance(self._bound, GenerationLoop):
            return None
        return list(self._bound.run_with(inputs))

    def generation_parts(self) -> GenerationParts:
        """Returns the two graphs of a model that generates.

        Raises:
          UnsupportedError: it does not generate.
        """
        if not isinstance(self._bound, GenerationLoop):
            return super().generation_parts()
        return LoopParts(self._bound)

    def release(self) -> None:
        """Closes the sessions."""
        self._bound = None
        self._run = None

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """A trace and a table of nodes, by ONNX Runtime's own profiler.

        Raises:
          UnsupportedError: the model generates: its graphs run in turns, from one another's state.
        """
        if len(self._paths) != 1:
            raise UnsupportedError(
                "a model that generates is two graphs here, which ONNX Runtime profiles apart: "
                "profile a case that scores its input"
            )
        return profiler.profile_model(
            self._paths[0],
            self._arrays,
            directory,
            iterations,
            device=self._device,
            chosen=self._options(),
            work_dir=self._work_dir,
        )

    def _export(self) -> GenerationPlan | None:
        """Writes the ONNX files; returns how to call the graphs, if there are two."""
        model, self._model = self._model, None
        if self.context.exported:
            # The weights are in a file beside it.
            self._paths = tuple(p for p in self.context.exported["onnx"] if p.suffix == ".onnx")
            return None
        # These import PyTorch, which nothing else here needs.
        from comparative_benchmark.backends import generation_export
        from comparative_benchmark.backends import torch_modules as modules

        self._types = modules.element_types(model) | {value.dtype.name for value in self._arrays}
        plan: GenerationPlan | None = None
        if generation_export.is_generator(model):
            exported, plan = generation_export.export(model, self._arrays, self.context.phase)
        else:
            exported = [torch_export.export(model, self._arrays, self.context.phase)]
        with self.context.phase("lower"):
            translated = [onnx_export.to_onnx(program) for program in exported]
        names = _TWO if plan else _ONE
        self._paths = tuple(self._work_dir / f"{name}.onnx" for name in names)
        with self.context.phase("load"):
            for program, path in zip(translated, self._paths, strict=True):
                onnx_export.save(program, path)
            # The framework's copy of the weights would count towards the program's memory.
            del model, exported, translated
            gc.collect()
        return plan

    def _options(self) -> ort.SessionOptions:
        return session.options(self.context.compiler, self.context.threads)

    def _check_types(self) -> None:
        """Raises where 16-bit products would be done in float32 and nobody asked for that."""
        if WIDENED in self.context.options:
            return
        for found in self._graphs:
            if graph.has_widened_products(found.exported, found.optimized):
                wide = graph.widened(found.exported, found.optimized)
                products = [f"{n} {name}" for name, n in wide.items() if name in graph.PRODUCTS]
                raise UnsupportedError(
                    f"ONNX Runtime {ort.__version__} has no 16-bit kernels for products on this "
                    f"CPU and would compute them in float32 ({', '.join(products)}): measure the "
                    f"fp32 model, or choose onnxruntime:{self.context.compiler}+{WIDENED}, which "
                    "says so"
                )


def _joint(digests: Sequence[str]) -> str:
    """Returns the digest of several programs, or that of the only one."""
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _device(context: BackendContext) -> str:
    wanted = "cuda" if context.device.accelerator_type == "gpu" else "cpu"
    if (context.compiler == "cuda") != (wanted == "cuda"):
        raise UnsupportedError(
            f"the compiler {context.compiler} makes no program for {context.device.name}"
        )
    if session.PROVIDERS[wanted] not in ort.get_available_providers():
        raise UnsupportedError(
            f"ONNX Runtime {ort.__version__} was built without {session.PROVIDERS[wanted]}: check "
            "`nvidia-smi`, and install onnxruntime-gpu in place of onnxruntime"
        )
    return wanted
