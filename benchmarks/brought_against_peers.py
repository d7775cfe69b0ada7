"""Compares `cbs run MODEL` with each runtime's own tools, on the same files.

The files are a convolutional network as `.onnx` and as `.tflite`, and a Hugging Face directory. The
peers are `onnxruntime_test` (in ONNX Runtime's package; a mean over the same number of iterations),
OpenVINO's `benchmark_app`, `iree-benchmark-module` on the program that `cbs repro` writes,
`litert-benchmark`, and `optimum-benchmark` in an interpreter that has it. Fresh processes alternate
in shuffled order, on one CPU with one thread. See `_peers.compared` for ratio, interval and goal.
`onnxruntime_test` has no option for the number of threads, and binds threads to CPUs outside its
CPU mask. So both sides use all CPUs there.

    python benchmarks/brought_against_peers.py [--rounds 8] [--peer NAME] [--optimum PYTHON]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
from _peers import (
    GOAL,
    compared,
    interleaved,
    iree_time,
    iree_tool,
    metrics_of,
    results_of,
    run,
    use_one_cpu,
)
from _timing import print_goal, print_table

_ITERATIONS = 200
_COUNTS = ("-w", "20", "-iter", str(_ITERATIONS), "-device", "host-cpu")
_ONE_THREAD = ("--threads", "1")
_ONNX = """
import sys, torch
torch.manual_seed(0)
def block(width, wider, stride):
    return torch.nn.Conv2d(width, wider, 3, stride=stride, padding=1), torch.nn.ReLU()
layers = [*block(3, 32, 2), *block(32, 64, 2), *block(64, 128, 2), *block(128, 128, 1)]
net = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(128 * 14 * 14, 100)).eval()
exported = torch.export.export(net, (torch.randn(1, 3, 112, 112),))
torch.onnx.export(exported, (), dynamo=True, verbose=False).save(sys.argv[1])
"""
_TFLITE = """
import sys, tensorflow as tf
tf.keras.utils.set_random_seed(0)
def block(wider, stride):
    return tf.keras.layers.Conv2D(wider, 3, stride, padding="same", activation="relu")
net = tf.keras.Sequential([
    tf.keras.Input((112, 112, 3), batch_size=1), block(32, 2), block(64, 2), block(128, 2),
    block(128, 1), tf.keras.layers.Flatten(), tf.keras.layers.Dense(100),
])
open(sys.argv[1], "wb").write(tf.lite.TFLiteConverter.from_keras_model(net).convert())
"""
_DIRECTORY = """
import sys, transformers
config = transformers.BertConfig(
    vocab_size=1000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4,
    intermediate_size=1024)
transformers.BertModel(config).save_pretrained(sys.argv[1])
"""
_OPTIMUM = """
import json, sys
from optimum_benchmark import (
    Benchmark, BenchmarkConfig, InferenceConfig, InlineConfig, PyTorchConfig)
where, iterations = sys.argv[1], int(sys.argv[2])
scenario = InferenceConfig(
    input_shapes={"batch_size": 1, "sequence_length": 128}, iterations=iterations, duration=0,
    warmup_runs=20, latency=True)
backend = PyTorchConfig(
    model=where, task="feature-extraction", library="transformers", device="cpu",
    intra_op_num_threads=1, inter_op_num_threads=1)
report = Benchmark.launch(BenchmarkConfig(
    name="peer", launcher=InlineConfig(), scenario=scenario, backend=backend))
print("latencies:", json.dumps(report.forward.latency.values))
"""


@attrs.frozen
class Pair:
    """A competitor, its file or directory, the compared figure, and a function for the peer's."""

    competitor: str
    model: Path
    figure: str
    measured: Callable[[], float]
    more: tuple[str, ...] = _ONE_THREAD


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--quick", action="store_true", help="measure only three rounds")
    parser.add_argument(
        "--peer",
        action="append",
        help="peer to compare with; may be repeated (default: all installed)",
    )
    parser.add_argument(
        "--optimum",
        metavar="PYTHON",
        help="Python interpreter with optimum-benchmark and transformers",
    )
    options = parser.parse_args()
    rounds = 3 if options.quick else options.rounds
    rows, missed = [], 0
    all_cpus = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for peer, pair in _pairs(folder, options.optimum).items():
            if options.peer and peer not in options.peer:
                continue
            if _ONE_THREAD[0] in pair.more:
                use_one_cpu()
            else:
                os.sched_setaffinity(0, all_cpus)
            found = interleaved(partial(_ours, pair, folder), pair.measured, rounds)
            row, met = compared(found)
            rows.append([f"{pair.competitor} / {peer}", *row, "met" if met else "missed"])
            print(*rows[-1], flush=True)
            missed += not met
    print_table(["ours over the peer's", "ms", "ratio", "95 % interval", f"within {GOAL}"], rows)
    print_goal(
        "cbs run MODEL agrees with each runtime's own tool (interval holds 1 or is within 2 %)",
        met=not missed,
        found=f"{len(rows) - missed} of {len(rows)}",
    )


def _pairs(folder: Path, with_optimum: str | None) -> dict[str, Pair]:
    onnx, tflite, directory = folder / "net.onnx", folder / "net.tflite", folder / "bert"
    for program, path in ((_ONNX, onnx), (_TFLITE, tflite), (_DIRECTORY, directory)):
        _python(program, str(path))
    results = folder / "iree.json"
    results_of(results, "run", str(onnx), "--backend", "iree:llvm-cpu", *_ONE_THREAD, *_COUNTS)
    tool = iree_tool(results, ".+", folder / "repro")
    median = "median_latency_ms"
    found = {
        "onnxruntime_test": Pair("onnxruntime", onnx, "mean_latency_ms", lambda: _ort(onnx), ()),
        "benchmark_app": Pair("openvino", onnx, median, lambda: _openvino(onnx)),
        "iree-benchmark-module": Pair("iree:llvm-cpu", onnx, median, lambda: iree_time(tool)),
        "litert-benchmark": Pair("tflite", tflite, median, lambda: _litert(tflite)),
    }
    if with_optimum:
        shape = ("--batch", "1", "--seq-len", "128", *_ONE_THREAD)
        found["optimum-benchmark"] = Pair(
            "pt_inductor:eager", directory, median, lambda: _optimum(with_optimum, directory), shape
        )
    return found


def _ours(pair: Pair, folder: Path) -> float:
    what = ["run", str(pair.model), "--backend", pair.competitor, *pair.more, *_COUNTS]
    (result,) = results_of(folder / "ours.json", *what)
    return float(metrics_of(result)[pair.figure])


def _ort(model: Path) -> float:
    printed = run(["onnxruntime_test", str(model), str(_ITERATIONS)], model.parent)
    return float(printed.partition("avg latency: ")[2].split()[0])


def _openvino(model: Path) -> float:
    command = ["benchmark_app", "-m", str(model), "-d", "CPU", "-hint", "none", "-api", "sync"]
    command += [
        "-nstreams",
        "1",
        "-nthreads",
        "1",
        "-infer_precision",
        "f32",
        "-niter",
        str(_ITERATIONS),
    ]
    return float(run(command, model.parent).partition("Median:")[2].split()[0])


def _litert(model: Path) -> float:
    written = model.with_suffix(".json")
    command = ["litert-benchmark", "--model", str(model), "--num_threads", "1", "--warmup_runs"]
    run(
        [*command, "20", "--num_runs", str(_ITERATIONS), "--result_json", str(written)],
        model.parent,
    )
    return float(json.loads(written.read_text())["latency"]["median_ms"])


def _optimum(python: str, directory: Path) -> float:
    printed = _python(_OPTIMUM, str(directory), str(_ITERATIONS), python=python)
    seconds = sorted(json.loads(printed.partition("latencies: ")[2].splitlines()[0]))
    return float(seconds[len(seconds) // 2]) * 1e3


def _python(program: str, *arguments: str, python: str = sys.executable) -> str:
    command = [python, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
