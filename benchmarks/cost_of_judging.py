"""Measures the cost of strict checks, in race time and in the workers' peak memory.

Races a user's small network, as a PyTorch module and as an ONNX file, and the tiny BERT, each in a
fresh root directory: with all checks, and without the expensive ones. These are: a separate process
for each model, hidden truths, further inputs, limits for parts, runs on unseen inputs, and the
share of compiled code. Both kinds of races alternate.

The truth of an ONNX file is computed a second time in a worker. This script measures its time in
its own process, and prints it.

    python benchmarks/cost_of_judging.py [--rounds 3] [--quick]
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from _timing import print_goal, print_table, ratio

MOST_TIME, MOST_MEMORY = 1.15, 1.02
_NETWORK = '''
"""A network of a user."""
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(256, 1024)
        self.second = torch.nn.Linear(1024, 256)

    def forward(self, x):
        return torch.softmax(self.second(torch.relu(self.first(x))), -1)


def example_inputs():
    return torch.randn(64, 256)
'''
_BERT = "models/BERT_TINY_FP32_PT_32XI32_BATCH4/.+_DEFAULT"


def main() -> int:
    if sys.argv[1:2] == ["--without"]:
        return _without(sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="measure one round with fixed counts")
    options = parser.parse_args()
    rounds = 1 if options.quick else options.rounds
    # The shortest races: longer ones spread the cost over more processes. With a coarse goal, each
    # process has the minimum of rounds, so noise does not affect the length of a race.
    shortest = ("--processes", "3", "--precision", "0.5")
    counts = ("-w", "1", "-iter", "3") if options.quick else shortest
    rows, times, peaks = [], [], []
    with tempfile.TemporaryDirectory(prefix="cbs-judging-") as folder:
        network, file = Path(folder, "net.py"), Path(folder, "net.onnx")
        network.write_text(_NETWORK)
        second_route_s = _write_onnx(file)
        for name, selection, backends in (
            ("a user's module", (str(network),), "pt_inductor:eager,onnxruntime"),
            ("a user's ONNX file", (str(file),), "onnxruntime,openvino"),
            ("tiny BERT", ("-name", _BERT), "pt_inductor:inductor,onnxruntime"),
        ):
            taken: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
            arguments = (*selection, "--backend", backends, *counts)
            for number in range(2 * rounds):
                strictly = number % 4 in (0, 3)
                taken[strictly].append(_race(arguments, Path(folder), number, strictly=strictly))
            strict, loose = ([s for s, _ in taken[way]] for way in (True, False))
            if selection == (str(file),):
                # For the first and the second input.
                loose = [seconds - 2 * second_route_s for seconds in loose]
            memory = [statistics.median(mb for _, mb in taken[way]) for way in (True, False)]
            times.append(ratio(strict, loose))
            peaks.append(memory[0] / memory[1])
            rows.append(
                [
                    name,
                    f"{statistics.median(strict):.1f}",
                    str(times[-1]),
                    f"{memory[0]:.0f}",
                    f"{peaks[-1]:.3f}",
                ]
            )
    print_table(["race", "s", "with / without", "peak MiB", "with / without"], rows)
    print(f"second computation of the ONNX file's truth: {second_route_s:.2f} s")
    worst = max(times, key=lambda item: item.median)
    print_goal("race < 1.15 times as long", met=worst.median <= MOST_TIME, found=str(worst))
    print_goal("no more memory", met=max(peaks) <= MOST_MEMORY, found=f"{max(peaks):.3f}")
    return 0


def _race(
    arguments: tuple[str, ...], folder: Path, number: int, *, strictly: bool
) -> tuple[float, float]:
    """Returns wall seconds and the largest peak memory of a worker in MiB."""
    output = folder / f"{number}-{strictly}.json"
    output.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="cbs-judging-root-") as root:
        start = time.perf_counter()
        done = subprocess.run(
            [
                *(sys.executable, *(("-m", "comparative_benchmark") if strictly else ())),
                *(() if strictly else (__file__, "--without")),
                *("run", *arguments, "--root-dir", root, "-o", str(output)),
            ],
            check=False,
            capture_output=True,
            text=True,
        )
        seconds = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    peaks = [
        metrics["host_memory_peak_mb"]
        for record in json.loads(output.read_text())["benchmarks"]
        for metrics in record["metrics"].values()
    ]
    return seconds, max(peaks)


def _without(arguments: list[str]) -> int:
    """Runs the command without the checks in question."""
    from comparative_benchmark.analysis.verification import verification
    from comparative_benchmark.cli import command as cli
    from comparative_benchmark.engine import checks, preparation, session
    from openxla.benchmark.user_models.programs import programs
    from openxla.benchmark.user_models.python_files import own_modules

    skipped: dict[tuple[Any, str], Any] = {
        (checks.OutputChecks, "_compare_fresh_runs"): lambda *_: None,
        (checks.OutputChecks, "require_compiled"): lambda *_: None,
        (checks.OutputChecks, "verify_update"): lambda *_: None,
        (session.Hidden, "of"): lambda *_: None,
        (verification, "groups_of"): lambda *_: [],
        (preparation, "FURTHER_RULES"): (),
        (preparation.Preparation, "_measure_noise"): lambda *_: None,
    }
    with contextlib.ExitStack() as stack:
        for (place, name), instead in skipped.items():
            stack.enter_context(mock.patch.object(place, name, instead))
        for module in (own_modules, programs):
            stack.enter_context(_sharing(module))
        return cli.main(arguments)


@contextlib.contextmanager
def _sharing(module: Any) -> Iterator[None]:
    """Makes the models of a module share processes while the context is active."""
    make = module.ModelImplementation

    def shared(**fields: Any) -> Any:
        return make(**{**fields, "own_process": False})

    with mock.patch.object(module, "ModelImplementation", shared):
        yield


def _write_onnx(target: Path) -> float:
    """Writes the network as an ONNX file; returns the seconds of the second truth."""
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    from openxla.benchmark.user_models.onnx import in_onnx, onnx_routes
    from openxla.benchmark.user_models.programs.programs import ONNX, digest_of

    random = np.random.default_rng(0)
    weights = [
        random.standard_normal(s).astype(np.float32) / 16 for s in ((256, 1024), (1024, 256))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w1"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"], axis=-1),
    ]
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (64, 256)) for n in ("x", "y")]
    held = [numpy_helper.from_array(value, f"w{index}") for index, value in enumerate(weights)]
    graph = helper.make_graph(nodes, "net", info[:1], info[1:], held)
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(target))
    inputs = [random.standard_normal((64, 256)).astype(np.float32)]

    def seconds() -> float:
        model = in_onnx.create_model(
            source=str(target),
            program=ONNX.name,
            source_sha256=digest_of(target, ONNX),
            data_type="fp32",
        )
        start = time.perf_counter()
        model.truth_and_reference(inputs)
        return time.perf_counter() - start

    both = seconds()
    with (
        mock.patch.object(onnx_routes.NodeRoutes, "_by_runtime", return_value=None),
        mock.patch.object(onnx_routes.NodeRoutes, "_upgraded", return_value=None),
    ):
        return max(both - seconds(), 0.0)


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    raise SystemExit(main())
