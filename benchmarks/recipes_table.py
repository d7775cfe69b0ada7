"""Which recipes work in which backend, and why not where they do not; for docs/recipes.md.

Runs tiny BERT with every recipe through every compiler that takes some, once each, and writes what
came of it: layers changed, share of the bytes left, signal-to-quantisation-noise ratio. Recipes of
PyTorch need torchao in the environment.

    python benchmarks/recipes_table.py [--table docs/recipes.md]
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from comparative_benchmark import load, recipes
from comparative_benchmark.backends.api import backends
from comparative_benchmark.cli.command import main as cbs
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.record import Status

CASES = {
    "fp32": "models/BERT_TINY_FP32_PT_32XI32_BATCH4/.+_DEFAULT",
    "bf16": "models/BERT_TINY_BF16_PT_32XI32_BATCH4/.+_DEFAULT",
}
# What stands for the parameters of a recipe.
SAMPLES = {"bits": "4", "group": "32", "size": "64"}
HEAD = """# Recipes by backend

Made by `benchmarks/recipes_table.py --table docs/recipes.md`: tiny BERT (batch 4), each recipe once
in each compiler that takes recipes; layers that it changed, share of the weights' bytes that is
left (embeddings stay), and signal to quantisation noise against the unquantised float64 run. `-`
is no way to apply it. One name is one arithmetic in all backends; what a backend does otherwise has
a name of its own. LiteRT's own precisions are compilers: `tflite:fp16`, `dynamic-range`, `int8`.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--table", type=Path, help="the document to be written")
    options = parser.parse_args()
    text = "\n".join([HEAD, *_tables()]) + "\n"
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


def _labels() -> Iterator[tuple[str, recipes.Recipe]]:
    for recipe in recipes.recipes().values():
        yield "-".join([recipe.name, *(SAMPLES[p.name] for p in recipe.parameters)]), recipe


def _found(name: str, columns: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Returns what came of each competitor."""
    competitors = [
        f"{backend}:{compiler}+{label}"
        for backend, compiler in columns
        for label, recipe in _labels()
        if backend in recipe.by_backend
    ]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "results.json"
        arguments = ["-name", name, "-device", "host-cpu", "-w", "0", "-iter", "1"]
        cbs(["run", "--backend", ",".join(competitors), *arguments, "-o", str(output)])
        return {case.competitor: _cell(case) for case in load(output)}


def _cell(case: Case) -> str:
    if case.status is not Status.OK:
        return f"{case.status.value}: {' '.join(str(case.result.reason).split())[:160]}"
    notes, verification = case.metrics.program.notes, case.metrics.verification
    applied = notes["recipe"]
    left = applied["bytes_after"] / applied["bytes_before"]
    noise = f"{verification.sqnr_db:.0f} dB" if verification and verification.sqnr_db else "?"
    return f"{applied['layers']} of {applied['linear']} layers, {left:.2f} of the bytes, {noise}"


if __name__ == "__main__":
    main()
