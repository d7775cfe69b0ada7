"""Trials and result tables for a file of torchao's guide."""

import csv
import io
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from msgspec import UNSET

from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import ProfileRecord, Result, Status
from comparative_benchmark.studies.micro.config import BASELINE, TRAINING, Config, ModelEntry
from comparative_benchmark.studies.micro.shapes import Shape
from openxla.benchmark.comparative_suite.operator_cases import cases, model_name
from openxla.benchmark.def_types import BenchmarkCase, ModelFrameworkType
from openxla.benchmark.operators import guide_functions

BACKEND, EAGER = "pt_inductor", "eager"
# Sparsities, and the quantizations with which torchao can combine them.
_PAIRS: Mapping[str, tuple[str, ...]] = {
    "semi-sparse": ("int8dq", "float8dq-row", "float8dq-tensor"),
    "2:4": ("int8dq", "float8dq-row", "float8dq-tensor"),
}
_SHARED = (
    *("name", "quantization", "sparsity", "m", "k", "n", "high_precision_dtype"),
    *("torch_compile_mode", "device", "model_type", "output_dir", "enable_profiler"),
    "enable_memory_profiler",
)
_TIMES = (
    "baseline_model_eager_inference_time_in_ms",
    "quantized_model_eager_inference_time_in_ms",
    "baseline_model_compiled_inference_time_in_ms",
    "quantized_model_compiled_inference_time_in_ms",
)
_SPEEDUPS = ("eager speedup on baseline", "compile speedup on baseline")
COLUMNS = (
    *(*_SHARED, *_TIMES, *_SPEEDUPS, "eager vs compile speedup", "profiler_json_path"),
    *("memory_profile_path", "memory_visualization_path", "memory_stats"),
    # Not in the guide: status, accuracy, size of the weights, and disturbances.
    *("status", "reason", "sqnr_db", "weights_mb", "disturbed"),
)
FIRST_COLUMNS = (
    *(*_SHARED[:7], "use_torch_compile", *_SHARED[7:], "baseline_inference_time_in_ms"),
    *("model_inference_time_in_ms", "speedup", "profiler_json_path", "memory_profile_path"),
    *("memory_visualization_path", "memory_stats", "status", "reason", "sqnr_db", "weights_mb"),
    "disturbed",
)
_NAMES = {"fp32": "torch.float32", "fp16": "torch.float16", "bf16": "torch.bfloat16"}


@attrs.frozen(kw_only=True)
class Row:
    """One recipe at one shape.

    Attributes:
      shape: None for a whole model.
      recipe: as an option of our compilers; None for the baseline.
      refused: why the two recipes cannot be combined; None if they can or need not be.
    """

    model: ModelEntry
    quantization: str
    sparsity: str | None
    shape_set: str
    shape: Shape | None
    recipe: str | None
    refused: str | None

    @property
    def dtype(self) -> str:
        """The recipe's name in dashboards."""
        return "-".join(filter(None, (self.quantization, self.sparsity)))


def rows(config: Config, model: ModelEntry) -> list[Row]:
    """Returns the rows for a model of a file: recipes in order, each over all shapes."""
    rows = []
    for sparsity in config.sparsities:
        for quantization in config.quantizations:
            alone = sparsity is None or quantization == BASELINE
            named = quantization if sparsity is None else sparsity
            rows += [
                Row(
                    model=model,
                    quantization=quantization,
                    sparsity=sparsity,
                    shape_set=shape_set,
                    shape=shape,
                    recipe=None if named == BASELINE or not alone else named,
                    refused=None if alone else _refusal(quantization, str(sparsity)),
                )
                for shape_set, shape in model.shapes
            ]
    return rows


def _refusal(quantization: str, sparsity: str) -> str:
    if quantization in _PAIRS.get(sparsity, ()):
        return f"{quantization} with {sparsity} runs only on NVIDIA GPUs"
    return f"torchao cannot combine {quantization} with {sparsity}"


def competitors(config: Config, model: ModelEntry) -> list[str]:
    """Returns the competitors: the baseline and each recipe, eager and compiled."""
    recipes = [None, *dict.fromkeys(row.recipe for row in rows(config, model) if row.recipe)]
    compilers = [EAGER, *([model.compiler] if model.compiler else [])]
    return [
        f"{BACKEND}:{'+'.join(filter(None, (compiler, recipe)))}"
        for compiler in compilers
        for recipe in recipes
    ]


def cases_of(model: ModelEntry) -> list[BenchmarkCase]:
    """Returns the PyTorch cases of a model."""
    if model.case is not None:
        return [model.case]
    if model.own:
        shapes = dict.fromkeys(shape for _, shape in model.shapes if shape)
        return [guide_functions.case(model.model_type, s, model.data_type) for s in shapes]
    return cases(
        [model.model_type],
        [shape for _, shape in model.shapes if shape],
        [model.data_type],
        [ModelFrameworkType.PYTORCH],
        backward=model.training,
    )


@attrs.frozen
class Table:
    """Rows with measurements; a row has numbers only if it is `ok`."""

    config: Config
    rows: Sequence[Row]
    results: Sequence[Result]
    _by_place: dict[tuple[str, frozenset[str]], Result] = attrs.field(init=False, repr=False)

    @_by_place.default
    def _results_by_place(self) -> dict[tuple[str, frozenset[str]], Result]:
        return {(r.definition.model, _parts(Case(result=r).competitor)): r for r in self.results}

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yields each row with the columns of both generations."""
        # The option `-device` overrides the file's device.
        device = next((result.definition.device for result in self.results), None)
        for row in self.rows:
            results = [self._result(row, *of) for of in self._places(row)]
            times = [_median(result) for result in results]
            ended = next((result for result in results if result and not _is_ok(result)), None)
            sqnr = [
                result.measured.verification.sqnr_db
                for result in results[1::2]
                if result and result.measured.verification
            ]
            yield {
                **_described(row, self.config.output_dir, device or row.model.device),
                "mode": self.config.mode,
                **dict(zip(_TIMES, times, strict=True)),
                "eager speedup on baseline": _ratio(times[0], times[1]),
                "compile speedup on baseline": _ratio(times[2], times[3]),
                "eager vs compile speedup": _ratio(times[1], times[3]),
                "use_torch_compile": row.model.compiler is not None,
                "baseline_inference_time_in_ms": times[2] if row.model.compiler else times[0],
                "model_inference_time_in_ms": times[3] if row.model.compiler else times[1],
                "speedup": _ratio(*(times[2:] if row.model.compiler else times[:2])),
                **_ending(row, results, ended),
                "disturbed": _disturbed(results),
                "sqnr_db": next((value for value in sqnr if value is not None), None),
                "memory_stats": _peak_mb(results[3] or results[1]),
                "weights_mb": _held_mb(results[1] or results[3]),
                **_profiles(results[3] or results[1], row.model),
            }

    def _places(self, row: Row) -> list[tuple[str, str | None]]:
        compiled = row.model.compiler or ""
        return [(EAGER, None), (EAGER, row.recipe), (compiled, None), (compiled, row.recipe)]

    def _result(self, row: Row, compiler: str, recipe: str | None) -> Result | None:
        if row.refused or not compiler:
            return None
        label = "+".join(filter(None, (compiler, recipe)))
        return self._by_place.get((_model_name(row), _parts(f"{BACKEND}:{label}")))


def _parts(competitor: str) -> frozenset[str]:
    """Returns compiler and options of a competitor, ignoring their order."""
    return frozenset(competitor.split("+"))


def csv_text(config: Config, lines: Sequence[Mapping[str, Any]]) -> str:
    """Returns the guide's table, with the columns of the file's generation."""
    columns = FIRST_COLUMNS if config.first_generation else COLUMNS
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def json_text(lines: Sequence[Mapping[str, Any]], *, arch: str) -> str:
    """Returns records for PyTorch's benchmark database, several for each row with numbers.

    Args:
      lines: see `Table.lines`.
      arch: name of the processor.
    """
    return json.dumps([record for line in lines for record in _records(line, arch)], indent=2)


def _ending(
    row: Row, results: Sequence[Result | None], ended: Result | None
) -> dict[str, str | None]:
    """Returns the status of a row, with a reason if it has no numbers."""
    if row.refused:
        return {"status": "unsupported", "reason": row.refused}
    if ended:
        return {"status": ended.status.value, "reason": ended.reason or ""}
    wanted = results if row.model.compiler else results[:2]
    measured = [result for result in wanted if result]
    if len(measured) < len(wanted):
        return {"status": "left_out", "reason": "the budget was too short; continue with --resume"}
    words = [result.word for result in measured]
    return {"status": next((word for word in words if word != Status.OK.value), "ok"), "reason": ""}


def _disturbed(results: Sequence[Result | None]) -> str:
    """Returns the disturbances of the trials behind a row's numbers, or an empty string."""
    contentions = (result.measured.contention for result in results if result and _is_ok(result))
    reasons = [c.reasons[0] for c in contentions if c and c.contended and c.reasons]
    return "; ".join(dict.fromkeys(reasons))


def _is_ok(result: Result) -> bool:
    return result.status is Status.OK


def _median(result: Result | None) -> float | None:
    if result is None or not _is_ok(result):
        return None
    value = result.measured.median_latency_ms
    return float(value) if isinstance(value, int | float) else None


def _held_mb(result: Result | None) -> float | None:
    """Returns the size of the weights with a recipe."""
    notes = result.measured.program.notes if result else {}
    applied = notes.get("recipe") if isinstance(notes, Mapping) else None
    return applied["bytes_after"] / 1e6 if isinstance(applied, Mapping) else None


def _peak_mb(result: Result | None) -> float | None:
    """Returns a trial's peak memory on the GPU, or the increase of its process's memory.

    It covers loading to the end; with a recipe it includes the replaced weights and compiler
    memory.
    """
    if result is None or not _is_ok(result):
        return None
    if result.measured.device_memory_peak_mb:
        return float(result.measured.device_memory_peak_mb)
    taken = [
        process.host_memory_peak_mb - process.host_memory_base_mb
        for process in result.measured.processes or ()
        if process.host_memory_peak_mb is not None and process.host_memory_base_mb is not None
    ]
    return statistics.median(taken) if taken else None


def _profiles(result: Result | None, model: ModelEntry) -> dict[str, str]:
    """Returns the paths of the requested profiles, by column."""
    taken = result.profile if result else UNSET
    if not isinstance(taken, ProfileRecord) or taken.error:
        return {}
    folder = Path(taken.directory)
    asked = {"profiler_json_path": model.profiler, "memory_profile_path": model.memory_profiler}
    files = {"profiler_json_path": "trace.json", "memory_profile_path": "memory.txt"}
    return {
        column: str(folder / files[column])
        for column, wanted in asked.items()
        if wanted and files[column] in taken.files
    }


def _ratio(before: float | None, after: float | None) -> float | None:
    return before / after if before and after else None


def _model_name(row: Row) -> str:
    if row.shape is None:
        assert row.model.case is not None
        return row.model.case.model.name
    model, pytorch = row.model, ModelFrameworkType.PYTORCH
    if model.own:
        return guide_functions.model_name(model.model_type, row.shape, model.data_type)
    return model_name(
        model.model_type, model.data_type, pytorch, row.shape, backward=model.training
    )


def _described(row: Row, output_dir: str, device: str) -> dict[str, Any]:
    model, shape = row.model, row.shape
    return {
        "name": "_".join(filter(None, (model.name, row.shape_set))),
        "quantization": row.quantization,
        "sparsity": row.sparsity,
        "m": shape.m if shape else None,
        "k": shape.k if shape else None,
        "n": shape.n if shape else None,
        "high_precision_dtype": _NAMES[model.data_type],
        "torch_compile_mode": model.compile_mode,
        "device": "cpu" if device == "host-cpu" else "cuda",
        "model_type": model.model_type,
        "output_dir": output_dir,
        "enable_profiler": model.profiler,
        "enable_memory_profiler": model.memory_profiler,
    }


def _records(line: Mapping[str, Any], arch: str) -> Iterator[dict[str, Any]]:
    """Yields the guide's record, and the four in later files."""
    baseline, quantized = (line[f"{kind}_inference_time_in_ms"] for kind in ("baseline", "model"))
    ways = "Fwd+Bwd" if line["mode"] == TRAINING else "Fwd"
    metrics = {
        "speedup(wrt bf16)": _ratio(baseline, quantized),
        f"{ways} Speedup (x)": _ratio(baseline, quantized),
        f"Bfloat16 {ways} Time (ms)": baseline,
        f"Quantized {ways} Time (ms)": quantized,
        "Allocated Memory (MB)": line["memory_stats"],
    }
    for name, value in metrics.items():
        if value is None:
            continue
        yield {
            "benchmark": {
                "name": "micro-benchmark api",
                "mode": line["mode"],
                "dtype": "-".join(filter(None, (line["quantization"], line["sparsity"]))),
                "extra_info": {
                    "device": line["device"],
                    "arch": arch,
                    # Not in the guide, as in the other table.
                    "status": line["status"],
                    "disturbed": line["disturbed"],
                },
            },
            "model": {
                # A whole model has the name given in the file.
                "name": f"{line['m']}-{line['k']}-{line['n']}" if line["m"] else line["name"],
                "type": "micro-benchmark custom layer" if line["m"] else "model",
                "origins": ["torchao"],
            },
            "metric": {"name": name, "benchmark_values": [value], "target_value": 0.0},
            "runners": [],
            "dependencies": {},
        }
