"""Writes docs/concepts/int8.md: int8 in five stacks, each compared with the same stack in fp32.

Races tiny BERT, GPT-2 and ResNet with trained weights, in fp32 and in each stack's int8. The races
are interleaved, with three processes per competitor. The table shows the speed relative to fp32
(with interval and verdict), the relative size, the signal-to-quantisation-noise ratio, and the
accuracy on a task. It also shows the number of changed layers, because some stacks do not support
int8 convolutions. The script requires the recipe packages, and takes 20 minutes on two idle cores.

    PYTHONPATH=.recipes.venv .venv/bin/python benchmarks/int8_table.py \
        [--table docs/concepts/int8.md]
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

import comparative_benchmark as cb
from comparative_benchmark.results.case import Case
from comparative_benchmark.results.comparing.compare_remarks import change_text
from comparative_benchmark.results.record import Status

MODELS = {
    "BERT": "models/BERT_TRAINED_FP32_(PT|JAX|TF)_32XI32_BATCH4/.+_DEFAULT",
    "GPT-2": "models/GPT2LMHEAD_TRAINED_FP32_(PT|JAX|TF)_32XI32_BATCH4/.+_DEFAULT",
    "ResNet": "models/RESNET_TRAINED_FP32_(PT|JAX|TF)_(3X32X32|32X32X3)XF32_BATCH4/.+_DEFAULT",
}
# Each stack, and its int8 variants.
STACKS = {
    "pt_inductor:inductor": ("+int8dq", "+int8wo"),
    "jax_xla:xla": ("+int8dq", "+int8wo"),
    "onnxruntime:default": ("+int8dq-tensor",),
    "openvino:latency": ("+int8wo",),
    "tflite:native": (":dynamic-range", ":int8"),
}
_SECONDS_EACH = 12.0
HEAD = """# int8, stack by stack

Stacks implement int8 in different ways. This page compares each stack's int8 results with its fp32
results: speed, size, and accuracy on a task. [Recipes](recipes.md) explains the recipe names.

The models on this page have tiny layers, which favour stacks that quantise activations cheaply.
Before you choose a stack, measure your own model.

## How it was measured

`benchmarks/int8_table.py --table docs/concepts/int8.md` generates this page. It races tiny models
with trained weights at batch size 4. All competitors race together, in three processes each.

## Columns

- *stack* and *from*: the stack, and the model's framework.
- *fp32, ms*: the stack's median latency in fp32.
- *int8*: the [recipe](recipes.md), or the LiteRT compiler.
- *speed*: the speed-up over the same stack in fp32 with the same weights, its 98 % interval, and
  the verdict.
- *relative size*: the size of the weights (for ONNX Runtime and LiteRT, the file) relative to fp32.
- *signal*: the signal-to-quantisation-noise ratio of the outputs, measured against the unquantised
  float64 run.
- *accuracy*: the accuracy in fp32 and int8, and the difference between int8 and float64.
- *layers changed*: the number of layers that the recipe changed, out of all layers with weights.
  Convolutions are included only for stacks that quantise them.

### Accuracy

Each model was trained for a task (`scripts/train_tiny.py`). Accuracy on this task is
measured with the executable that is timed. There are two measures:

- *top-1* is the share of examples that are classified correctly. For example, `7 (-2 +3)` means
  that int8 and float64 predict different classes for 7 examples. For 2 of them, only float64 is
  correct. For 3, only int8 is correct.
- *perplexity* shows how well a model predicts the next token. Lower is better. The ratio to the
  float64 model's perplexity has a 95 % interval over texts.

An accuracy loss that exceeds the task's limit is in bold.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--table", type=Path, help="document to write the table to")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path("int8-results"),
        help="directory for results; existing results are reused",
    )
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument(
        "--seconds",
        type=float,
        default=_SECONDS_EACH,
        help="time limit in seconds for each trial; lower it for a quick look",
    )
    options = parser.parse_args()
    sections = [
        line
        for model in options.models
        for line in _section(model, options.results, options.seconds)
    ]
    text = "\n".join([HEAD, *sections]) + "\n"
    print(text)
    if options.table:
        options.table.write_text(text, encoding="utf-8")


def _section(model: str, folder: Path, seconds: float) -> Iterator[str]:
    competitors = [name for base in STACKS for name in (base, *_quantized(base))]
    results = cb.run(
        MODELS[model],
        backends=",".join(competitors),
        trial_budget=seconds,
        output=folder / f"{model}.json",
        resume=True,
        progress=lambda event: print(event.text, flush=True),
    )
    cases = {(case.framework, case.competitor): case for case in results}
    yield f"\n## {model}\n"
    task = next(case.metrics.accuracy for case in cases.values() if case.metrics.accuracy)
    yield (
        f"Task: {task.task}. Metric: {task.metric} over {task.examples} predictions. The float64 "
        f"model reaches {attrs.evolve(task, value=task.reference)}. Allowed loss in "
        f"{'percentage points' if task.metric == 'top-1' else '% of perplexity'}: "
        f"{100 * (task.most_lost or 0):g}.\n"
    )
    yield (
        "| stack | from | fp32, ms | int8 | speed | relative size | signal | accuracy "
        "| layers changed |"
    )
    yield "|---" * 9 + "|"
    for base in STACKS:
        found = {(v.framework, v.competitor): v for v in results.verdicts(baseline=base)}
        for (framework, competitor), whole in cases.items():
            if competitor != base or whole.status is Status.UNSUPPORTED:
                continue
            if whole.status is not Status.OK:
                why = " ".join(whole.why.split())[:160]
                yield f"| {' | '.join([f'`{base}`', framework, '-', '-', why, '', '', '', ''])} |"
                continue
            for name in _quantized(base):
                key = (framework, name)
                yield _row(whole, cases[key], found.get(key))


def _quantized(base: str) -> list[str]:
    backend = base.partition(":")[0]
    return [f"{backend}{kind}" if kind[0] == ":" else base + kind for kind in STACKS[base]]


def _row(whole: Case, case: Case, verdict: Any) -> str:
    median = whole.metrics.median_latency_ms
    cells = [f"`{whole.competitor}`", case.framework, f"{median:.3g}"]
    cells.append(f"`{case.competitor.removeprefix(whole.competitor)}`")
    if case.status is not Status.OK:
        why = " ".join(case.why.split()).replace(" in compile: UnsupportedError", "")
        return f"| {' | '.join([*cells, why[:160], '', '', '', ''])} |"
    speed = "no verdict"
    if verdict and (ratio := verdict.ratio):
        # The verdict has a ratio of times; the speed-up is its inverse.
        low, high = 1 / ratio.high, 1 / ratio.low
        speed = f"{1 / ratio.estimate:.2f} ({low:.2f}-{high:.2f}), {verdict.verdict.value}"
    applied = case.metrics.program.notes.get("recipe")
    if isinstance(applied, Mapping):
        left = applied["bytes_after"] / applied["bytes_before"]
        changed = f"{applied['layers']} of {applied['linear']}"
    else:
        sizes = [c.metrics.program.artifact_size_bytes or 0 for c in (case, whole)]
        left, changed = sizes[0] / sizes[1], "chosen by the converter"
    check = case.metrics.verification
    noise = f"{check.sqnr_db:.0f} dB" if check and check.sqnr_db else "?"
    accuracy = f"{whole.metrics.accuracy} to {_accuracy(case)}"
    return f"| {' | '.join([*cells, speed, f'{left:.2f}', noise, accuracy, changed])} |"


def _accuracy(case: Case) -> str:
    """Returns the accuracy and its change, in bold if the loss exceeds the task's limit."""
    found = case.metrics.accuracy
    assert found
    text = f"{found}, {change_text(found)}"
    return f"**{text}**" if found.loses_too_much else text


if __name__ == "__main__":
    main()
