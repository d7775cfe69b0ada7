"""ONNX Runtime: export from PyTorch, runs without the framework, and reproducers."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort

from comparative_benchmark.backends import exported_programs, host_settings
from comparative_benchmark.backends.api import (
    BackendContext,
    BackendFacts,
    OutputRule,
    UnsupportedError,
)
from comparative_benchmark.backends.exported_programs import (
    Exported,
    ExportTask,
    joint_digest,
    write_onnx,
)
from comparative_benchmark.backends.frameworks import torch_export
from comparative_benchmark.backends.host_settings import HostSettings
from comparative_benchmark.backends.recipes import chosen_among
from comparative_benchmark.backends.resident_programs import (
    SYNCHRONOUS,
    GenerationPlan,
    ResidentBackend,
)
from comparative_benchmark.onnxruntime import WIDENED, graph, session

_NOTE = (
    "ONNX Runtime silently uses float32 for operators without a 16-bit kernel; run.py does not "
    "include the suite's check for this."
)


def export_reproducer(task: ExportTask) -> Exported:
    """Writes `model.onnx`; for a model that generates, `prefill.onnx` and `decode.onnx`."""
    context = task.context
    model = task.model()
    if hasattr(model, "write_onnx"):
        names, plan = ["model.onnx"], None
        beside = _copy(model, task)
    else:
        paths, plan = torch_export.write_onnx(model, task.inputs, task.directory, context.phase)
        names = [path.name for path in paths]
        beside = [f"{name}.data" for name in names]
    level = session.options(context.compiler, context.threads).graph_optimization_level
    files = dict.fromkeys(names, "the program to run")
    files |= dict.fromkeys(beside, "its weights")
    return Exported(
        settings={
            "level": level.name,
            "threads": context.threads,
            "call": exported_programs.calls(plan, names),
        },
        packages=("onnxruntime", "numpy", "ml_dtypes"),
        # A model without large weights has no file for them.
        files={name: text for name, text in files.items() if (task.directory / name).exists()},
        modules=exported_programs.modules(plan),
        notes=(_NOTE,),
    )


def _copy(model: Any, task: ExportTask) -> list[str]:
    """Copies a user's file; returns the names of the files with its weights."""
    path, *beside = write_onnx(model, task.context.work_dir, task.inputs)
    shutil.copyfile(path, task.directory / "model.onnx")
    names = [str(file.relative_to(path.parent)) for file in beside]
    for file, name in zip(beside, names, strict=True):
        (task.directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, task.directory / name)
    return names


class OnnxRuntime(ResidentBackend):
    """Exports a model, and runs its graphs in sessions with bound inputs and outputs."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        self._device = _device(context)
        self._types: frozenset[str] = frozenset()
        self._data_files: Sequence[Path] = ()
        self._sessions: list[ort.InferenceSession] = []
        self._metadata: Mapping[str, str] = {}
        self._graphs: list[graph.OptimizedGraph] = []
        self._recipe = chosen_among(context.options)
        self._applied: dict[str, Any] | None = None

    def compile(self) -> None:
        """Exports (`trace`), translates to ONNX (`lower`), and opens sessions (`compile`).

        Raises:
          UnsupportedError: the model cannot be exported, or ONNX Runtime would compute it in
            another type than its own.
        """
        plan = self._export()
        with self.context.phase("compile"):
            self._sessions = [
                session.open_session(path, self._device, self._options()) for path in self._paths
            ]
        self._metadata = self._sessions[0].get_modelmeta().custom_metadata_map
        self._bind([session.SessionProgram(item, self._device) for item in self._sessions], plan)
        if self._device == "cpu":
            self._graphs = [
                graph.examine(path, self.context.compiler, self.context.work_dir)
                for path in self._paths
            ]
            self._check_types()

    def fetch(self, outputs: Any) -> list[Any]:
        """Copies the outputs to the host; pairs become complex numbers if the model's are."""
        return torch_export.with_complex_outputs(super().fetch(outputs), self._metadata)

    def facts(self) -> BackendFacts:
        """Returns identity and size of the optimized graphs, and their operators by type."""
        facts = BackendFacts(weights="frozen")
        facts.notes = {
            "weights": "initializers: constants that a session folds and packs",
            "dispatch": SYNCHRONOUS,
            "provider": session.PROVIDERS[self._device],
            "graphs": len(self._paths),
            "intra_op_spinning": True,  # ONNX Runtime's default
        }
        facts.notes["tf32"] = host_settings.note(
            on_gpu=self._device == "cuda", types=self._types, allowed=False
        )
        if self._applied is not None:
            facts.notes["recipe"] = self._applied
        if self.context.kept:
            facts.notes["export"] = "from the first process"
        elif self.context.exported:
            facts.notes["starts_from"] = sorted(self.context.exported)
        if self._graphs:
            facts.artifact_sha256 = joint_digest([summary.sha256 for summary in self._graphs])
            facts.artifact_size_bytes = sum(summary.size_bytes for summary in self._graphs)
            facts.notes["parameters_size_bytes"] = sum(
                summary.weights_size_bytes for summary in self._graphs
            )
            for path, summary in zip(self._paths, self._graphs, strict=True):
                facts.notes[path.stem] = {
                    "nodes": summary.optimized.nodes,
                    "operators": summary.optimized.operators,
                    "inserted_casts": summary.optimized.inserted_casts,
                    "widened": graph.widened(summary.exported, summary.optimized),
                }
        return facts

    def output_rule(self) -> OutputRule:
        """Outputs are bound by an `IOBinding`; without one a run returns new values on the host."""
        if self._device == "cpu":
            return OutputRule(modes=("bound", "allocated"))
        reason = "ONNX Runtime's `run` copies outputs to the host, inside the timed region"
        return OutputRule(modes=("bound",), reason=reason)

    def host_settings(self) -> HostSettings:
        """Returns the options of the session, as the session reports them."""
        chosen = self._sessions[0].get_session_options()
        return HostSettings(
            threads=chosen.intra_op_num_threads,
            inter_op_threads=chosen.inter_op_num_threads,
            threads_told_by="InferenceSession.get_session_options",
        )

    def release(self) -> None:
        """Releases the sessions."""
        super().release()
        self._sessions = []

    def exports(self) -> Mapping[str, Sequence[Path]]:
        """Returns the ONNX file and its weights; empty for the two files of a generating model."""
        # On a GPU the model's types are needed, see `facts`; for a recipe, a summary of its
        # changes.
        if self._recipe is None and self._paths and len(self._paths) == 1 and self._device == "cpu":
            beside = self._data_files or [self._paths[0].with_suffix(".onnx.data")]
            return {"onnx": [*self._paths, *(path for path in beside if path.is_file())]}
        return {}

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """Writes a trace and a table of nodes, by ONNX Runtime's own profiler.

        Raises:
          UnsupportedError: the model generates.
        """
        return session.profile_model(
            self._only_path("ONNX Runtime"),
            self._arrays,
            directory,
            iterations,
            device=self._device,
            chosen=self._options(),
            work_dir=self.context.work_dir,
        )

    def _export(self) -> GenerationPlan | None:
        """Writes the ONNX files; returns how to call the graphs, if there are two."""
        is_file = hasattr(self._model, "write_onnx")
        if self._recipe is not None and (is_file or self.context.exported):
            raise UnsupportedError(
                "recipes apply to models, not to exported programs: omit the recipe"
            )
        if self.context.exported:
            # The weights are in a second file.
            self._paths = [p for p in self.context.exported["onnx"] if p.suffix == ".onnx"]
            return None
        if is_file:
            self._take_file()
            return None
        # Imports PyTorch, which only this branch needs.
        from comparative_benchmark.backends.frameworks import torch_modules as modules

        held = {value.dtype.name for value in self._arrays}
        self._types = modules.element_types(self._model) | held
        self._paths, plan = torch_export.write_onnx(
            self._take_model(), self._arrays, self.context.work_dir, self.context.phase
        )
        if self._recipe is not None:
            self._paths, self._applied = graph.apply_recipe(
                self._paths, self._recipe, self.context.phase
            )
        return plan

    def _take_file(self) -> None:
        """Takes a user's ONNX file, with shapes for the inputs."""
        with self.context.phase("load"):
            written = write_onnx(self._take_model(), self.context.work_dir, self._arrays)
            self._paths, self._data_files = written[:1], written[1:]
            self._types = frozenset(value.dtype.name for value in self._arrays)

    def _options(self) -> ort.SessionOptions:
        return session.options(self.context.compiler, self.context.threads)

    def _check_types(self) -> None:
        """Raises UnsupportedError if 16-bit products would run in float32 without `widened`."""
        if WIDENED in self.context.options:
            return
        for summary in self._graphs:
            if graph.has_widened_products(summary.exported, summary.optimized):
                wide = graph.widened(summary.exported, summary.optimized)
                products = [f"{n} {name}" for name, n in wide.items() if name in graph.PRODUCTS]
                raise UnsupportedError(
                    f"ONNX Runtime {ort.__version__} has no 16-bit kernels on this CPU for "
                    f"{', '.join(products)} and would compute them in float32: measure the fp32 "
                    f"model, or choose onnxruntime:{self.context.compiler}+{WIDENED}, which "
                    "allows this"
                )


def _device(context: BackendContext) -> str:
    wanted = "cuda" if context.compiler == "cuda" else "cpu"
    if session.PROVIDERS[wanted] not in ort.get_available_providers():
        raise UnsupportedError(
            f"ONNX Runtime {ort.__version__} was built without {session.PROVIDERS[wanted]}: check "
            "`nvidia-smi`, and install onnxruntime-gpu instead of onnxruntime"
        )
    return wanted
