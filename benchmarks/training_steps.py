"""Compares our tiny training steps with the usual training loop in each framework.

Network, loss, batches and threads are the same. The plain loop uses the optimizer of the framework:
`torch.optim`, optax, Keras. Both run in one process for each framework, in blocks that alternate in
shuffled order. A step is timed until its results are complete. The ratio is the median over rounds
of our time divided by the plain time, with its quartiles.

    python benchmarks/training_steps.py [--rounds 40] [--quick] [--model bert-tiny]
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _timing import print_goal, print_table, ratio

from comparative_benchmark.analysis.machine.host import usable_cpus
from comparative_benchmark.backends.api import BackendContext, get_backend, load_object, untimed
from comparative_benchmark.engine.worker.sampling import measure_block
from openxla.benchmark import devices

GOAL = 1.05
_STACKS = ("pt_inductor:eager", "pt_inductor:inductor", "jax_xla:xla", "tf_xla:xla")
_MODELS = ("bert-tiny", "gpt2-tiny", "resnet-tiny", "vit-tiny")
_BLOCK_S = 0.25
_WARM_UP = 6
# Runs a training step and waits for its results.
Step = Callable[[], Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=40, help="number of block pairs to measure (default: 40)"
    )
    parser.add_argument("--quick", action="store_true", help="try the script with five rounds")
    parser.add_argument(
        "--model",
        action="append",
        choices=_MODELS,
        help="model to measure; may be repeated (default: all four)",
    )
    parser.add_argument("--in-process", metavar="STACK", choices=_STACKS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    models = options.model or list(_MODELS)
    rounds = 5 if options.quick else options.rounds
    if options.in_process:
        print(json.dumps(_measure(options.in_process, models[0], rounds)))
        return
    rows, worst = [], 0.0
    for model in models:
        for stack in _STACKS:
            ours, plain = _in_a_process(stack, model, rounds)
            found = ratio(ours, plain)
            worst = max(worst, found.median)
            times = (f"{statistics.median(values):.3g}" for values in (ours, plain))
            rows.append([f"{model} {stack}", *times, str(found)])
    print_table(["training step, adamw, batch 4", "ours, ms", "plain, ms", "ours / plain"], rows)
    print_goal(
        f"tiny training steps within {GOAL} x the plain loop of each framework",
        met=worst <= GOAL,
        found=f"{worst:.3f} x",
    )


def _in_a_process(stack: str, model: str, rounds: int) -> tuple[list[float], list[float]]:
    command = [sys.executable, __file__, "--in-process", stack, "--model", model]
    backend = get_backend(stack.partition(":")[0])
    with tempfile.TemporaryDirectory() as cache:
        filled = {"work_dir": cache, "cache_dir": cache, "threads": str(_threads())}
        filled |= {"accelerator": "cpu", "jax_platforms": "cpu"}
        set_by_backend = {key: text.format(**filled) for key, text in backend.environment.items()}
        done = subprocess.run(
            [*command, "--rounds", str(rounds)],
            env={**os.environ, **set_by_backend},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    ours, plain = json.loads(done.stdout.splitlines()[-1])
    return ours, plain


def _measure(stack: str, model_name: str, rounds: int) -> tuple[list[float], list[float]]:
    """Returns the median of each block in milliseconds, for our step and for the plain loop."""
    name, _, compiler = stack.partition(":")
    module = {"pt_inductor": "in_torch", "jax_xla": "in_jax", "tf_xla": "in_tensorflow"}[name]
    create = load_object(f"openxla.benchmark.training.{module}:create_model")
    parameters = {"model_name": model_name, "train": "adamw", "batch_size": 4, "seq_len": 32}
    model = create(**parameters)
    inputs = model.preprocess(model.generate_default_inputs())
    with tempfile.TemporaryDirectory() as work_dir:
        context = BackendContext(
            compiler=compiler,
            options=(),
            device=next(d for d in devices.ALL_DEVICES if d.name == "host-cpu"),
            threads=_threads(),
            work_dir=Path(work_dir),
            phase=untimed,
        )
        backend = load_object(get_backend(name).implementation)(context)
        backend.load(model, inputs)
        backend.compile()
        # A separate network, because the plain loop also changes its weights.
        plain = _PLAIN[name](create(**parameters), inputs, compiler)
        for _ in range(_WARM_UP):
            plain()
            measure_block(backend, 1)
        iterations = max(round(_BLOCK_S / _seconds(plain)), 3)
        ours_ms, plain_ms = [], []
        choose = random.Random(0)
        for _ in range(rounds):
            for turn in choose.sample((True, False), 2):
                if turn:
                    block = measure_block(backend, iterations, refresh=True)
                    ours_ms.append(statistics.median(block.latencies_ms))
                else:
                    plain()
                    times = [1e3 * _seconds(plain) for _ in range(iterations)]
                    plain_ms.append(statistics.median(times))
    return ours_ms, plain_ms


def _plain_torch(model: Any, inputs: Sequence[Any], compiler: str) -> Step:
    import torch

    from openxla.benchmark.models.pt.tensors import as_tensor

    loss_of: Any = model.loss_module()
    weights = [
        weight.requires_grad_()
        for name, weight in model.network.model.named_parameters()
        if name in model.trained
    ]
    if compiler == "inductor":
        loss_of = torch.compile(loss_of)
    optimizer = torch.optim.AdamW(weights, lr=1e-3, weight_decay=0.1)
    batches = _endless([tuple(map(as_tensor, batch)) for batch in model.batches(inputs)])

    def step() -> Any:
        batch = next(batches)
        with torch.enable_grad():
            loss = loss_of(*batch)
            loss.backward()
        norm = torch.nn.utils.get_total_norm([weight.grad for weight in weights])
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach(), norm

    return step


def _plain_jax(model: Any, inputs: Sequence[Any], _: str) -> Step:
    import jax
    import optax

    optimizer = optax.adamw(1e-3, weight_decay=0.1)
    params = model.params
    weights = jax.tree.map(jax.numpy.copy, model.state(params)["weights"])
    state = (weights, optimizer.init(weights))
    batches = _endless([jax.device_put(batch) for batch in model.batches(inputs)])

    def train(state: Any, params: Any, *batch: Any) -> Any:
        weights, kept = state
        loss, gradients = jax.value_and_grad(model.loss)(weights, params, *batch)
        updates, kept = optimizer.update(gradients, kept, weights)
        return (optax.apply_updates(weights, updates), kept), loss, optax.global_norm(gradients)

    compiled = jax.jit(train, donate_argnums=0)

    def step() -> Any:
        nonlocal state
        state, loss, norm = jax.block_until_ready(compiled(state, params, *next(batches)))
        return loss, norm

    return step


def _plain_tensorflow(model: Any, inputs: Sequence[Any], _: str) -> Step:
    import keras
    import tensorflow as tf

    from openxla.benchmark.models.tf.keras_model import variables_of

    names = model.network.weight_names
    weights = [
        variable
        for path, variable in variables_of(model.layer)
        if names["/".join(map(str, path))] in model.trained
    ]
    optimizer = keras.optimizers.AdamW(1e-3, weight_decay=0.1)
    optimizer.build(weights)

    def train(*batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = model.loss(*batch)
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        optimizer.apply(gradients, weights)
        return loss, tf.linalg.global_norm(gradients)

    tensors = [tuple(map(tf.convert_to_tensor, batch)) for batch in model.batches(inputs)]
    compiled = tf.function(train, jit_compile=True)
    program, batches = compiled.get_concrete_function(*tensors[0]), _endless(tensors)
    return lambda: program(*next(batches))


_PLAIN = {"pt_inductor": _plain_torch, "jax_xla": _plain_jax, "tf_xla": _plain_tensorflow}


def _endless(batches: Sequence[tuple[Any, ...]]) -> Any:
    while True:
        yield from batches


def _seconds(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def _threads() -> int:
    return usable_cpus()


if __name__ == "__main__":
    main()
