"""Workers that do not fit onto a GPU together, with made-up readings of its memory."""

from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from comparative_benchmark.analysis.machine import gpu_state
from comparative_benchmark.analysis.machine.gpu_state import UNKNOWN, GpuMemory
from comparative_benchmark.analysis.stats.planning import SamplingRule
from comparative_benchmark.engine import race
from comparative_benchmark.engine.race import Race
from comparative_benchmark.engine.settings import RunSettings
from openxla.benchmark.devices import HOST_CPU, HOST_GPU

GPU = attrs.evolve(UNKNOWN, used=True, memory_used_bytes=0, memory_total_bytes=80)


def readings(*used):
    answers = iter(used)

    def read():
        taken = next(answers)
        return () if taken is None else (UNKNOWN, attrs.evolve(GPU, memory_used_bytes=taken))

    return read


@pytest.mark.parametrize(
    ("used", "room"),
    [
        ((5, 25), True),  # took 20, 55 are free
        ((5, 45), False),  # took 40, 35 are free
        ((5, 40), False),  # took 35, 40 are free: it may grow
        ((5, 35, 45), False),  # took 30 and 10, 35 are free: the next may be like the larger
        ((5, 25, 30), True),
        ((0, None), True),
        ((None, 70), True),
        ((None, 40, 70), False),
    ],
)
def test_one_more_worker_as_large_as_the_largest_must_fit(used, room):
    memory = GpuMemory(readings(*used))
    found = [memory.has_room(1.3) for _ in used[1:]]
    assert found[-1] is room


@pytest.mark.parametrize(
    ("device", "each", "groups"),
    [(HOST_GPU, 50, [1, 1, 1]), (HOST_GPU, 26, [2, 1]), (HOST_GPU, 5, [3]), (HOST_CPU, 50, [3])],
)
def test_a_race_goes_in_turns_where_workers_do_not_fit_onto_the_gpu(
    device, each, groups, make_trial, monkeypatch, tmp_path
):
    """Each worker takes `each` of 80 bytes, and gives them back when it is closed."""
    alive, measured, said = [], [], []

    class Worker:
        def __init__(self, trial, *_, **__):
            self.trial = trial
            self.record = SimpleNamespace()
            self.plan = SimpleNamespace(cold=True, compiles_anew=False)
            self.loaded = False

        def load(self):
            self.loaded = True
            alive.append(self)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            alive.remove(self)

        def resident_bytes(self):
            return 1

        def finish(self):
            measured.append(len(alive))

        def __getattr__(self, name):
            return lambda *_, **__: None

    monkeypatch.setattr(race, "Participant", Worker)
    monkeypatch.setattr(Race, "_rounds", lambda *_: None)
    monkeypatch.setattr(Race, "_keep", lambda *_: None)
    monkeypatch.setattr(
        gpu_state, "read_gpus", lambda: (attrs.evolve(GPU, memory_used_bytes=each * len(alive)),)
    )
    trials = [make_trial(competitor=name) for name in ("jax_xla", "xla_hlo", "iree:llvm-cpu")]
    settings = RunSettings(device=device)
    made = Race(
        trials,
        SimpleNamespace(
            digests={},
            directory=tmp_path,
            origin=None,
            cost=None,
            without_float64=None,
            truth_source=None,
            truth_check=None,
            not_ranked=None,
        ),
        settings,
        log_file=lambda *_: Path("log"),
        say=said.append,
    )
    made._replicate(SamplingRule(), 0, trials, tmp_path)
    assert measured == [size for size in groups for _ in range(size)]
    assert made._interleaved is (len(groups) == 1)
    text = "the competitors do not all fit into GPU memory, so some are not interleaved"
    assert said == ([] if len(groups) == 1 else [text])
