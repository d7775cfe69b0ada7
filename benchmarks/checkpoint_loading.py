"""Compares the time to load a checkpoint in each framework with reading and copying the file.

The checkpoint is BERT-base, float32, 438 MB, in a temporary directory. To load a model, a framework
also builds its modules, which takes the same time for all widths. So the yardstick is the sum of
two parts, each timed in the same rounds as the model:
- the file read into memory, and copied once;
- the same network at a thirty-second of the width, loaded in the same way: nearly no bytes.
Each framework first loads a model of another kind, to exclude its imports. The file is in the
system's cache. Peak memory (`VmHWM`) is measured in a fresh process for each, above the memory that
the process used before.

    python benchmarks/checkpoint_loading.py [--rounds 9] [--framework jax] [--quick]
"""

import argparse
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import _race
import attrs
import numpy as np
from _timing import Ratio, interleave, print_goal, print_table, ratio

from comparative_benchmark.engine.worker.phases import peak_memory_bytes
from openxla.benchmark.installation import ROOT_DIR_VARIABLE
from openxla.benchmark.models import checkpoints
from openxla.benchmark.models.architectures import bert

# Allowance beyond the yardstick, for noise in the times and rounding in the allocator.
GOAL = 1.05
_PACKAGES = {
    "jax": ("jax", "flax", "numpy"),
    "pt": ("torch", "transformers", "safetensors", "numpy"),
    "tf": ("tensorflow", "keras", "numpy"),
}
_LARGE = {False: "bert-base-uncased", True: "bert-tiny"}
_NARROW, _WARM_UP = "bert-narrow", "bert-warm-up"
_MODEL, _READ, _MODULES = "model", "file read and copied", "narrow model"


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(_CHILDREN[sys.argv[2]](*sys.argv[3:])))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--rounds", type=int, default=9, help="number of loads per framework (default: 9)")
    add(
        "--framework",
        choices=tuple(_PACKAGES),
        action="append",
        help="framework to measure; may be repeated (default: all)",
    )
    add("--quick", action="store_true", help="try the script with BERT-tiny, without recording")
    add("--output", type=Path, default=Path(__file__).parent / "recorded/checkpoint_loading.jsonl")
    chosen = parser.parse_args()
    frameworks = chosen.framework or tuple(_PACKAGES)
    with tempfile.TemporaryDirectory(prefix="cbs-loading-") as directory:
        os.environ[ROOT_DIR_VARIABLE] = directory
        _add_sizes()
        name = _LARGE[chosen.quick]
        file = checkpoints.seeded(bert.ARCHITECTURE, name) / checkpoints.WEIGHTS_FILE
        size = file.stat().st_size
        print(f"{name}: {size / 1e6:.0f} MB")
        found = [_measured(framework, name, file, chosen.rounds) for framework in frameworks]
    _print(found, size)
    if not chosen.quick:
        for loaded in found:
            facts = {
                **attrs.asdict(loaded),
                "model": name,
                "size_bytes": size,
                "conditions": _race.conditions(_PACKAGES[loaded.framework]),
            }
            _race.keep(chosen.output, facts, ("framework", "model"))
    met = all(loaded.time.median <= GOAL and loaded.memory <= GOAL for loaded in found)
    what = "a tiny model, not covered by the goal: no" if chosen.quick else "no"
    print_goal(
        f"{what} more than {GOAL} x reading, one copy and the modules; memory no more than "
        f"{GOAL} x file and copy",
        met=met,
        found=", ".join(f"{f.framework} {f.time.median:.2f} and {f.memory:.2f}" for f in found),
    )


@attrs.frozen(kw_only=True)
class Loaded:
    """Figures of one framework.

    Attributes:
      time: time of the model divided by the time of the whole yardstick.
      memory: peak of the model divided by the peak of reading and copying.
      seconds: seconds of each round, by contestant.
      peaks: peak bytes, by contestant.
    """

    framework: str
    time: Ratio
    memory: float
    seconds: Mapping[str, list[float]]
    peaks: Mapping[str, int]


def _measured(framework: str, name: str, file: Path, rounds: int) -> Loaded:
    seconds = _child("time", framework, name, str(file), str(rounds))
    yardstick = [sum(pair) for pair in zip(seconds[_READ], seconds[_MODULES], strict=True)]
    peaks = {
        what: _child("peak", framework, name, str(file), what) for what in (_MODEL, _READ, _MODULES)
    }
    return Loaded(
        framework=framework,
        time=ratio(seconds[_MODEL], yardstick),
        memory=peaks[_MODEL] / (peaks[_READ] + peaks[_MODULES]),
        seconds=seconds,
        peaks=peaks,
    )


def _print(found: list[Loaded], size: int) -> None:
    rows = []
    for loaded in found:
        for what, values in loaded.seconds.items():
            peak = loaded.peaks[what]
            rows.append(
                [
                    f"{loaded.framework}: {what}",
                    f"{1e3 * sorted(values)[len(values) // 2]:.0f}",
                    f"{peak / 1e6:.0f}",
                    f"{peak / size:.2f}",
                    str(loaded.time) if what == _MODEL else "",
                    f"{loaded.memory:.2f}" if what == _MODEL else "",
                ]
            )
    header = ["loaded", "median ms", "peak, MB", "peak / file", "time ratio", "memory ratio"]
    print_table(header, rows)


def _child(*arguments: str) -> Any:
    """Runs this script as a child and returns its output."""
    command = [sys.executable, __file__, "--child", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def _time(framework: str, name: str, file: str, rounds: str) -> dict[str, list[float]]:
    calls = _calls(framework, name, Path(file))
    return interleave(calls, rounds=int(rounds), iterations=1)


def _peak(framework: str, name: str, file: str, what: str) -> int:
    call = _calls(framework, name, Path(file))[what]
    before = _resident_bytes()
    # Reset the peak, which includes the imports.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    kept = call()
    peak = peak_memory_bytes()
    assert kept is not None
    assert peak is not None, "this system does not report the peak memory of a process"
    return max(0, peak - before)


_CHILDREN: Mapping[str, Callable[..., Any]] = {"time": _time, "peak": _peak}


def _calls(framework: str, name: str, file: Path) -> dict[str, Callable[[], Any]]:
    """Returns the timed calls, after a first load of another model."""
    _add_sizes()
    path = f"openxla.benchmark.models.{framework}.bert"
    create_model: Callable[..., Any] = importlib.import_module(path).create_model

    def load(model_name: str) -> Any:
        model = create_model(seq_len=32, model_name=model_name)
        if framework == "jax":
            importlib.import_module("jax").block_until_ready(model.params)
        return model

    load(_WARM_UP)
    load(_NARROW)
    gc.collect()
    return {
        _MODEL: lambda: load(name),
        _READ: lambda: _read_and_copied(file),
        _MODULES: lambda: load(_NARROW),
    }


def _read_and_copied(file: Path) -> Any:
    content = np.fromfile(file, np.uint8)
    return content, content.copy()


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _add_sizes() -> None:
    kind, wide = type(bert.ARCHITECTURE), bert.ARCHITECTURE.config("bert-base-uncased")
    changes = {"hidden_size": 24, "intermediate_size": 96, "vocab_size": 1024}
    narrow = {**wide, **changes}
    warm_up = {**narrow, "num_hidden_layers": 1}
    kind.configs = {**kind.configs, _NARROW: narrow, _WARM_UP: warm_up}


if __name__ == "__main__":
    main()
