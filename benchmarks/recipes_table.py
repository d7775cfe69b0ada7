"""Writes docs/concepts/recipes.md: which recipes work in each backend, and why others do not.

Runs tiny BERT once with every recipe in every compiler that supports recipes. Each cell shows the
number of changed layers, the relative size of the weights, the signal-to-quantisation-noise ratio,
and the accuracy. The script requires the recipe packages.

    PYTHONPATH=.recipes.venv .venv/bin/python benchmarks/recipes_table.py \
        [--table docs/concepts/recipes.md]
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from comparative_benchmark import load
from comparative_benchmark.backends import recipes
from comparative_benchmark.backends.api import backends
from comparative_benchmark.cli.command import main as cbs
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Status
from openxla.benchmark.models import trained

CASES = {
    "fp32": "models/BERT_TRAINED_FP32_(PT|JAX)_32XI32_BATCH4/.+_DEFAULT",
    "bf16": "models/BERT_TRAINED_BF16_(PT|JAX)_32XI32_BATCH4/.+_DEFAULT",
}
# In LiteRT, each converter precision is a separate compiler.
CONVERTED = "models/BERT_TRAINED_FP32_(JAX|TF)_32XI32_BATCH4/.+_DEFAULT"
# Example values for recipe parameters.
SAMPLES = {"bits": "4", "group": "32", "size": "64"}
HEAD = """# Recipes by backend

A *recipe* is a way to compute with fewer bits or fewer weights, for example with int8 weights. This
page shows which recipes each backend can apply, and how much accuracy they cost. To run a recipe,
see [Quantised programs](../guides/measure.md#quantised-programs).

## How to read the tables

`benchmarks/recipes_table.py --table docs/concepts/recipes.md` generates this page. It runs tiny
BERT with trained weights, at batch size 4. Each recipe runs once with each compiler that supports
recipes.

Each column is a [competitor](../reference/glossary.md): a backend with a compiler. The *fp32* and
*bf16* tables are named after the model's data type. Each cell contains, in this order:

1. The number of linear layers that the recipe changed. Embeddings are not quantised.
2. The size of the weights (for ONNX Runtime, the file), relative to the original size.
3. The signal-to-quantisation-noise ratio, relative to the unquantised float64 run.
4. The share of 400 sentences whose language the model identifies correctly: {reference} in float64.

`-` means that the recipe does not exist for this backend. Any other text explains a missing result.

A recipe name stands for the same arithmetic in every backend. If a backend computes differently,
its recipe has a different name. For example, `int8dq` uses one scale for each row of the
activations. ONNX Runtime's `int8dq-tensor` uses one scale for the whole tensor.

The following details still differ between backends:

- Each backend chooses the range that the bits represent, which affects the signal-to-noise ratio.
- JAX stores each 4-bit number in a whole byte.
- If OpenVINO computes in bf16, it widens the quantised weights in each run. The size in the table
  does not show this.
"""
LITERT = """
## LiteRT

LiteRT has no recipes. Its converter quantises the model. Each precision that the converter supports
is a separate compiler:

- `tflite:fp16` stores weights in 16 bits and computes in fp32.
- `tflite:dynamic-range` uses int8 weights, with a scale per output channel. It converts activations
  to int8 at run time. Layers without int8 kernels stay unchanged. The nearest recipe is `int8dq`.
- `tflite:int8` uses int8 weights and activations. The activation scales are calibrated on inputs
  that are not measured.

The table gives the file size relative to the fp32 file, and the signal-to-quantisation-noise ratio.

| compiler | from JAX | from TensorFlow |
|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--table", type=Path, help="document to write the table to")
    options = parser.parse_args()
    task = trained.task_of({"model_name": "bert-tiny", "checkpoint": "trained"})
    assert task
    head = HEAD.format(reference=f"{task.reference:.1%}")
    text = "\n".join([head, *_tables(), LITERT, *_converted()]) + "\n"
    print(text)
    if options.table:
        options.table.write_text(text, encoding="utf-8")


def _tables() -> Iterator[str]:
    columns = [
        (info.name, compiler.name)
        for info in backends().values()
        for compiler in info.compilers
        if compiler.takes_recipes and compiler.default and compiler.accelerator != "gpu"
    ]
    for data_type, name in CASES.items():
        yield f"\n## {data_type}\n"
        yield "| recipe | " + " | ".join(":".join(column) for column in columns) + " |"
        yield "|---" * (1 + len(columns)) + "|"
        found = _found(name, columns)
        for label, recipe in _labels():
            cells = [
                found.get(f"{backend}:{compiler}+{label}", "")
                if backend in recipe.by_backend
                else recipe.lacking.get(backend, "-")
                for backend, compiler in columns
            ]
            yield f"| `{label}` | " + " | ".join(cells) + " |"


def _converted() -> Iterator[str]:
    """Yields the rows for the precisions of LiteRT's converter."""
    precisions = ("native", "fp16", "dynamic-range", "int8")
    found = {
        (case.framework, case.competitor): case
        for case in _cases(CONVERTED, [f"tflite:{precision}" for precision in precisions])
    }
    for precision in precisions[1:]:
        cells = []
        for framework in ("jax", "tf_v2"):
            case, whole = (found[framework, f"tflite:{p}"] for p in (precision, "native"))
            if case.status is not Status.OK:
                cells.append(_ending(case))
                continue
            size, native = (c.metrics.program.artifact_size_bytes for c in (case, whole))
            assert size is not None
            assert native is not None
            cells.append(f"{size / native:.2f} of the size, {_noise(case)}")
        yield f"| `tflite:{precision}` | " + " | ".join(cells) + " |"


def _labels() -> Iterator[tuple[str, recipes.Recipe]]:
    for recipe in recipes.recipes().values():
        yield "-".join([recipe.name, *(SAMPLES[p.name] for p in recipe.parameters)]), recipe


def _found(name: str, columns: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Returns the cell of each competitor."""
    competitors = [
        f"{backend}:{compiler}+{label}"
        for backend, compiler in columns
        for label, recipe in _labels()
        if backend in recipe.by_backend
    ]
    return {case.competitor: _cell(case) for case in _cases(name, competitors)}


def _cases(name: str, competitors: Sequence[str]) -> list[Case]:
    """Returns the results of competitors that support the framework of a case."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "results.json"
        arguments = ["-name", name, "-device", "host-cpu", "-w", "0", "-iter", "1"]
        cbs(["run", "--backend", ",".join(competitors), *arguments, "-o", str(output)])
        return list(load(output))


def _cell(case: Case) -> str:
    if case.status is not Status.OK:
        return _ending(case)
    applied = case.metrics.program.notes["recipe"]
    left = applied["bytes_after"] / applied["bytes_before"]
    layers = f"{applied['layers']} of {applied['linear']} layers"
    return f"{layers}, {left:.2f} of the size, {_noise(case)}, {case.metrics.accuracy}"


def _ending(case: Case) -> str:
    reason = " ".join(str(case.result.reason).split()).removeprefix("UnsupportedError: ")
    return f"{case.status.value}: {reason[:160]}"


def _noise(case: Case) -> str:
    found = case.metrics.verification
    return f"{found.sqnr_db:.0f} dB" if found and found.sqnr_db else "?"


if __name__ == "__main__":
    main()
