"""OpenVINO: convert from the framework, compile, then run without the framework.

Requests have resident buffers for inputs and outputs, and performance counters for profiles.
"""

import functools
import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.backends.api import (
    Array,
    BackendContext,
    BackendFacts,
    OutputRule,
    UnsupportedError,
)
from comparative_benchmark.backends.exported_programs import joint_digest
from comparative_benchmark.backends.host_settings import HostSettings
from comparative_benchmark.backends.operator_profile import (
    Operator,
    OperatorProfile,
    longest_first,
    time_table,
    write,
)
from comparative_benchmark.backends.recipes import chosen_among
from comparative_benchmark.backends.resident_programs import (
    SYNCHRONOUS,
    ResidentBackend,
    SingleProgram,
)
from comparative_benchmark.openvino import (
    CACHE_DIR_VARIABLE,
    DEFAULT_PRECISION,
    WIDENED,
    front_ends,
    program,
)
from comparative_benchmark.openvino.front_ends import INPUT, OUTPUT
from comparative_benchmark.openvino.program import DEVICE, VERSION, dtype_of, ov


class Buffer:
    """Memory of one input or output, allocated by OpenVINO."""

    def __init__(self, port: Any) -> None:
        """Allocates the value of an input or output of a compiled model.

        Raises:
          UnsupportedError: its shape is not fixed.
        """
        if port.get_partial_shape().is_dynamic:
            name = min(port.get_names())
            raise UnsupportedError(f"the shape of {name} depends on values; return fixed shapes")
        self.tensor = ov.Tensor(port.get_element_type(), port.get_shape())
        self.dtype = dtype_of(port.get_element_type())
        # OpenVINO returns bfloat16 as another type of the same size.
        data: Array = self.tensor.data
        self._array = data if data.dtype == self.dtype else data.view(self.dtype)
        self.shape: tuple[int, ...] = tuple(port.get_shape())

    def write(self, values: Array) -> None:
        """Copies values in."""
        self._array[...] = values

    def copy_to(self, target: Array) -> None:
        """Copies the content to an array."""
        target[...] = self._array


class CompiledProgram:
    """A compiled model with the interface that `resident_programs` expects.

    Attributes:
      requests: one for each binding; they hold performance counters, if these are on.
    """

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self.requests: list[Any] = []
        self._inputs = [compiled.input(INPUT.format(i)) for i in range(len(compiled.inputs))]
        self._outputs = [compiled.output(OUTPUT.format(i)) for i in range(len(compiled.outputs))]

    def inputs(self) -> list[Buffer]:
        """Makes a buffer for each input."""
        return [Buffer(port) for port in self._inputs]

    def outputs(self) -> list[Buffer]:
        """Makes a buffer for each output."""
        return [Buffer(port) for port in self._outputs]

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> Callable[[], object]:
        """Returns a function that infers; it returns when the outputs are complete."""
        request = self._request(inputs)
        for port, buffer in zip(self._outputs, outputs, strict=True):
            request.set_tensor(port, buffer.tensor)
        # Shared: otherwise each output would be copied to a new array in every iteration.
        return functools.partial(request.infer, share_outputs=True)

    def bind_inputs(self, inputs: Sequence[Buffer]) -> Callable[[], Any]:
        """Returns a function that infers into new tensors and returns these."""
        request = self._request(inputs)
        kinds = [(port, port.get_element_type(), port.get_shape()) for port in self._outputs]

        def infer() -> list[Any]:
            made = []
            for port, element_type, shape in kinds:
                made.append(ov.Tensor(element_type, shape))
                request.set_tensor(port, made[-1])
            request.infer(share_outputs=True)
            return made

        return infer

    def take(self, allocated: Sequence[Any], outputs: Sequence[Buffer]) -> None:
        """Copies tensors of a run to buffers."""
        for tensor, buffer in zip(allocated, outputs, strict=True):
            tensor.copy_to(buffer.tensor)

    def _request(self, inputs: Sequence[Buffer]) -> Any:
        request = self._compiled.create_infer_request()
        for port, buffer in zip(self._inputs, inputs, strict=True):
            request.set_tensor(port, buffer.tensor)
        self.requests.append(request)
        return request


def profile_of(
    layers: Mapping[str, Mapping[str, Any]], iterations: int, *, stack: str, left_out: int
) -> OperatorProfile:
    """Returns the layers as operators.

    Args:
      layers: by name, their type (`layer`), `kernel` and times in us (`times_us`).
      iterations: number of executions that the times cover.
      stack: the profiled stack, with its version.
      left_out: number of layers that were never executed.
    """
    operators = [
        Operator(
            name=name,
            does=layer["layer"],
            calls=len(layer["times_us"]) / iterations,
            us=sum(layer["times_us"]) / iterations,
            provider=layer["kernel"],
        )
        for name, layer in layers.items()
    ]
    plain = Counter(layer["layer"] for layer in layers.values() if "ref" in layer["kernel"])
    return OperatorProfile(
        stack=stack,
        iterations=iterations,
        operators=longest_first(operators),
        fallbacks=tuple(
            f"{count} {kind} in a reference kernel" for kind, count in plain.most_common()
        ),
        fusions=(f"layers fused into others, folded or shorter than 1 us: {left_out}",)
        if left_out
        else (),
    )


def profile_model(
    path: Path,
    properties: dict[str, Any],
    inputs: Sequence[Array],
    directory: Path,
    iterations: int,
) -> list[Path]:
    """Profiles iterations; returns the layers with their times, and a table of them.

    Counters are switched on when a model is compiled, so this is another compilation of the same
    file with the same properties. They have durations, but no start times, so there is no trace.

    Args:
      path: the model's file.
      properties: properties that it was compiled with.
      inputs: one array for each of its inputs.
      directory: directory for the files.
      iterations: number of executions, after one that is not counted.
    """
    counting = {name: value for name, value in properties.items() if name != "CACHE_DIR"}
    compiled = ov.Core().compile_model(path, DEVICE, {**counting, "PERF_COUNT": True})
    counted = CompiledProgram(compiled)
    bound = SingleProgram(counted, inputs)
    bound.run()
    layers: dict[str, dict[str, Any]] = {}
    spans: list[tuple[str, str, float]] = []
    seen: set[str] = set()
    for _ in range(iterations):
        bound.run()
        for info in counted.requests[0].get_profiling_info():
            # OpenVINO reports layers below a microsecond as not executed.
            seen.add(info.node_name)
            if info.status == info.Status.EXECUTED:
                time_us = info.real_time.total_seconds() * 1e6
                kind = {"layer": info.node_type, "kernel": info.exec_type, "times_us": []}
                layers.setdefault(info.node_name, kind)["times_us"].append(time_us)
                spans.append((f"{info.node_type} {info.exec_type}", info.node_name, time_us))
    times, table = directory / "layers.json", directory / "layers.txt"
    times.write_text(json.dumps({"iterations": iterations, "layers": layers}), encoding="utf-8")
    text = time_table(f"OpenVINO {VERSION}", ("layer and kernel", "layer"), spans, iterations)
    table.write_text(text, encoding="utf-8")
    stack, left_out = f"OpenVINO {VERSION}", len(seen - layers.keys())
    profile = profile_of(layers, iterations, stack=stack, left_out=left_out)
    return [times, table, write(profile, directory)]


class OpenVino(ResidentBackend):
    """Converts a model, compiles it for the CPU, and runs it on resident buffers."""

    def __init__(self, context: BackendContext) -> None:
        super().__init__(context)
        if {WIDENED, DEFAULT_PRECISION} <= set(context.options):
            raise UnsupportedError(
                f"{WIDENED} requests float32, but {DEFAULT_PRECISION} requests OpenVINO's "
                "preferred precision: choose one"
            )
        self._recipe = chosen_among(context.options)
        self._applied: dict[str, Any] | None = None
        self._compiled: list[Any] = []
        self._properties: dict[str, Any] = {}
        self._element_type = ""
        self._digest: str | None = None

    def compile(self) -> None:
        """Traces (`trace`), converts (`lower`), and compiles (`compile`).

        Raises:
          UnsupportedError: the model cannot be converted, or OpenVINO would compute it in another
            type than its own.
        """
        self._paths, self._element_type, plan = front_ends.write(
            self._take_model(), self._arrays, self.context.work_dir, self.context.phase
        )
        core = ov.Core()
        self._properties = program.configuration(
            threads=self.context.threads,
            precision=program.chosen_precision(self.context.options, self._element_type),
            cache_dir=os.environ.get(CACHE_DIR_VARIABLE),
        )
        if self._recipe is not None:
            self._paths, self._applied = program.apply_recipe(
                self._paths, self._recipe, self.context.phase
            )
            self._properties |= self._applied["properties"]
        with self.context.phase("load"):
            read = [core.read_model(path) for path in self._paths]
        with self.context.phase("compile"):
            self._compiled = [
                core.compile_model(model, program.DEVICE, self._properties) for model in read
            ]
        self._check_precision()
        self._bind([CompiledProgram(compiled) for compiled in self._compiled], plan)

    def facts(self) -> BackendFacts:
        """Returns the plug-in's facts: precision, layers, cache."""
        compiled_from = list(zip(self._compiled, self._paths, strict=True))
        if self._digest is None:
            self._digest = joint_digest([program.fingerprint(*pair) for pair in compiled_from])
        cached = [bool(item.get_property("LOADED_FROM_CACHE")) for item in self._compiled]
        has_cache = "CACHE_DIR" in self._properties
        first = self._compiled[0]
        applied = {} if self._applied is None else {"recipe": self._applied}
        return BackendFacts(
            weights="frozen",
            device_name=ov.Core().get_property(program.DEVICE, "FULL_DEVICE_NAME"),
            artifact_sha256=self._digest,
            artifact_size_bytes=sum(path.stat().st_size for path in self._paths),
            cache_hits=cached.count(True) if has_cache else None,
            cache_misses=cached.count(False) if has_cache else None,
            notes={
                **applied,
                "weights": "constants that the plug-in folds and packs",
                "parameters_size_bytes": sum(
                    program.weights_of(path).stat().st_size for path in self._paths
                ),
                "dispatch": SYNCHRONOUS,
                "graphs": len(self._paths),
                "model_precision": self._element_type,
                "inference_precision": program.precision_of(first),
                "num_streams": first.get_property("NUM_STREAMS"),
                "layers": {
                    path.stem: program.executed(compiled) for compiled, path in compiled_from
                },
            },
        )

    def output_rule(self) -> OutputRule:
        """Returns both modes: a request can write to the same tensors or to new ones."""
        return OutputRule(modes=("bound", "allocated"))

    def host_settings(self) -> HostSettings:
        """Returns the properties of the compiled model, as it reports them."""
        first = self._compiled[0]
        return HostSettings(
            threads=int(first.get_property("INFERENCE_NUM_THREADS")),
            inter_op_threads=int(first.get_property("NUM_STREAMS")),
            threads_told_by="CompiledModel.get_property",
        )

    def release(self) -> None:
        """Releases the compiled models."""
        super().release()
        self._compiled = []

    def profile(self, directory: Path, iterations: int) -> list[Path]:
        """Writes times of the layers, from OpenVINO's performance counters.

        Raises:
          UnsupportedError: the model generates.
        """
        path = self._only_path("OpenVINO")
        return profile_model(path, self._properties, self._arrays, directory, iterations)

    def _check_precision(self) -> None:
        """Raises UnsupportedError if the model is computed in another type without an option."""
        if {WIDENED, DEFAULT_PRECISION} & set(self.context.options):
            return
        wanted = self._element_type
        for compiled in self._compiled:
            got = program.precision_of(compiled)
            # A recipe gives products other types.
            is_plain = got == wanted and self._recipe is None
            if is_plain and not program.runs_products_in(program.executed(compiled), wanted):
                got = "f32"
            if got != wanted:
                options = "+".join((self.context.compiler, *self.context.options, WIDENED))
                raise UnsupportedError(
                    f"OpenVINO {VERSION} has no {wanted} kernels for this CPU and would "
                    f"compute this model in {got}: measure the fp32 model, or choose "
                    f"openvino:{options}, which allows this"
                )
