"""Measures the time to create checkpoints, inputs, truth and reference for all tiny models.

The harness prepares the workloads of all cases with the tag `tiny`, in all installed frameworks, in
an empty root directory, with a worker for each framework. The yardstick in the same run is a bare
process for each framework. It imports the framework, creates the same models, and runs each once,
without float64, reference, digests and files.

    python benchmarks/tiny_artifacts.py [--name 'models/BERT_TINY.+'] [--quick]
"""

import argparse
import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import _race
import attrs
from _timing import print_goal, print_table

from comparative_benchmark.engine import runner
from comparative_benchmark.engine.messages import A, Prepared
from comparative_benchmark.engine.preparation import Preparation
from comparative_benchmark.engine.session import Session
from comparative_benchmark.engine.settings import RunSettings
from comparative_benchmark.engine.trial import Trial, installed_competitors
from openxla.benchmark import devices
from openxla.benchmark.comparative_suite import catalog
from openxla.benchmark.installation import ROOT_DIR_VARIABLE
from openxla.benchmark.models.shared_model import as_tuple

GOAL_S = 180.0
_QUICK = "models/(BERT|RESNET)_TINY_FP32_.+_BATCH1/.+"
_MOST_COSTLY = 15


@attrs.frozen(kw_only=True)
class Made:
    """A request to a worker: the definition of a model, and the times of its phases."""

    module_path: str
    parameters: Mapping[str, Any]
    seconds: float
    phases: Mapping[str, float]

    @property
    def framework(self) -> str:
        """The framework of the model, from the path of its module."""
        return self.module_path.split(".")[3]

    @property
    def label(self) -> str:
        """A name that distinguishes the model from others."""
        new = self.parameters.get("max_new_tokens")
        return " ".join(
            [
                self.framework,
                self.module_path.split(".")[4],
                str(self.parameters.get("data_type", "")),
                f"batch {self.parameters.get('batch_size', 1)}",
                *([f"{new} new tokens"] if new else []),
            ]
        )


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        _run_once(json.loads(sys.stdin.read()))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add(
        "--name",
        help="regular expression for case names, as in `cbs run` (default: all tiny cases)",
    )
    add("--quick", action="store_true", help="try the script with two models, without recording")
    add("--output", type=Path, default=Path(__file__).parent / "recorded" / "tiny_artifacts.jsonl")
    chosen = parser.parse_args()
    name = _QUICK if chosen.quick else chosen.name
    cases = catalog.select(catalog.all_benchmarks(), name=name, tags=["tiny"])
    competitors, absent = installed_competitors("cpu")
    for backend, absence in absent.items():
        print(f"omitted {backend}: {absence.sentence}")
    trials = runner.plan(cases, competitors, devices.HOST_CPU).trials
    with tempfile.TemporaryDirectory(prefix="cbs-tiny-") as directory:
        os.environ[ROOT_DIR_VARIABLE] = directory
        # In an empty directory without downloads, all artifacts must be created.
        seconds, made, failures = _prepared(trials, Path(directory) / "logs")
        for case, reason in failures.items():
            print(f"{case}: {reason}")
        yardstick = _yardstick(made)
    _print(made, seconds)
    print(f"{len(made)} workloads in {seconds:.1f} s; the same models once, by hand: ", end="")
    print(f"{yardstick:.1f} s; ratio {seconds / yardstick:.2f}")
    whole = not chosen.quick and chosen.name is None
    if whole:
        found = {
            "model": "all tiny",
            "workloads": len(made),
            "seconds": seconds,
            "yardstick_seconds": yardstick,
            "made": [attrs.asdict(item) for item in made],
            "failures": failures,
            "conditions": _race.conditions(("numpy",)),
        }
        _race.keep(chosen.output, found, ("model",))
    what = "all tiny artifacts" if whole else "some artifacts, not covered by the goal:"
    print_goal(
        f"{what} in less than {GOAL_S:.0f} s",
        met=seconds < GOAL_S and not failures,
        found=f"{seconds:.0f} s, {len(failures)} failed",
    )


def _prepared(trials: Sequence[Trial], log_dir: Path) -> tuple[float, list[Made], dict[str, str]]:
    """Prepares trials; returns the seconds, the workloads, and the failures."""
    settings = RunSettings(device=devices.HOST_CPU, log_dir=log_dir, generate_artifacts=True)
    preparation = Preparation(settings, lambda _: None)
    with _watched() as made:
        start = time.perf_counter()
        preparation.run(trials)
        seconds = time.perf_counter() - start
    failures = {case: str(ended) for case, ended in preparation.failures.items()}
    return seconds, made, failures


@contextlib.contextmanager
def _watched() -> Iterator[list[Made]]:
    """Yields a list to which each workload that a worker creates is added."""
    made: list[Made] = []
    original = Session.call

    def call(session: Session, kind: type[A], **arguments: Any) -> A:
        start = time.perf_counter()
        answer = original(session, kind, **arguments)
        if isinstance(answer, Prepared):
            phases = answer.phases or {}
            made.append(
                Made(
                    module_path=arguments["module_path"],
                    parameters=arguments["parameters"],
                    seconds=time.perf_counter() - start,
                    phases={name: phase.ms / 1e3 for name, phase in phases.items()},
                )
            )
        return answer

    setattr(Session, "call", call)  # noqa: B010  # mypy: a method is not a variable
    try:
        yield made
    finally:
        setattr(Session, "call", original)  # noqa: B010


def _yardstick(made: Sequence[Made]) -> float:
    """Returns the seconds that bare processes take to run the same models once."""
    by_framework: defaultdict[str, list[Made]] = defaultdict(list)
    for item in made:
        by_framework[item.framework].append(item)
    start = time.perf_counter()
    for items in by_framework.values():
        models = [[item.module_path, dict(item.parameters)] for item in items]
        subprocess.run(
            [sys.executable, str(Path(__file__)), "--child"],
            check=True,
            input=json.dumps(models),
            stdout=subprocess.DEVNULL,
            text=True,
        )
    return time.perf_counter() - start


def _run_once(models: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """Creates models and runs each once, with outputs on the host."""
    import numpy as np

    for module_path, parameters in models:
        model = importlib.import_module(module_path).create_model(**parameters)
        inputs = as_tuple(model.preprocess(model.generate_default_inputs()))
        for output in as_tuple(model.forward(*inputs)):
            # torch's bfloat16 has no counterpart in numpy.
            np.asarray(output.float() if hasattr(output, "float") else output)


def _print(made: Sequence[Made], seconds: float) -> None:
    phases: defaultdict[tuple[str, str], float] = defaultdict(float)
    for item in made:
        for name, spent in item.phases.items():
            phases[item.framework, name] += spent
        phases[item.framework, "files, digests and messages"] += item.seconds - sum(
            item.phases.values()
        )
    phases["", "workers and everything else"] = seconds - sum(item.seconds for item in made)
    rows = [
        [f"{framework} {name}".strip(), f"{spent:.1f}", f"{spent / seconds:.0%}"]
        for (framework, name), spent in sorted(phases.items(), key=lambda pair: -pair[1])
    ]
    print_table(["where the time goes", "s", "share"], rows)
    print()
    costly = sorted(made, key=lambda item: -item.seconds)[:_MOST_COSTLY]
    print_table(
        ["the most costly workloads", "s", "reference, s"],
        [
            [item.label, f"{item.seconds:.2f}", f"{item.phases.get('reference', 0):.2f}"]
            for item in costly
        ],
    )


if __name__ == "__main__":
    main()
