"""Exporters and consumers that do right or wrong in all the ways that there are; for workers."""

import ctypes
import os
import time

import numpy as np

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.maintenance.artifacts.job import NotRunError
from openxla.benchmark.artifacts import array_files

FILE = "program.txt"


def export(job):
    """The program of the toy model: a text that names it."""
    (job.directory / FILE).write_text("the program", encoding="utf-8")


def export_nothing(job):
    pass


def export_nothing_in_it(job):
    (job.directory / FILE).touch()


def export_too_much(job):
    export(job)
    (job.directory / "stray.txt").write_text("not announced", encoding="utf-8")


def export_refuses(job):
    raise UnsupportedError(f"no such model, see {job.scratch}/log")


def export_raises(job):
    raise ValueError("the exporter is tired")


def crash(job):
    ctypes.string_at(0)


def hang(job):
    time.sleep(3600)


def hoard(job):
    found = []
    while True:
        found.append(np.ones(1 << 22))


def run(job):
    """The output of a right program: here, the model's output."""
    assert job.find(FILE).read_text(encoding="utf-8") == "the program"
    return [np.asarray(job.model().forward(*job.arrays()))]


def run_text(job):
    """The model's own generated tokens."""
    return list(job.model().forward(*job.arrays()))


def run_text_wrong_at_the_end(job):
    tokens, logits = run_text(job)
    logits[:, -1] = logits[:, -1, ::-1]
    tokens[:, -1] = logits[:, -1].argmax(axis=-1)
    return [tokens, logits]


def run_scaled(job):
    return [value * np.float32(1.01) for value in run(job)]


def run_constant(job):
    return [np.zeros_like(value) for value in run(job)]


def run_not_a_number(job):
    return [np.full_like(value, np.nan) for value in run(job)]


def run_wider(job):
    return [value.astype(np.float64) for value in run(job)]


def run_nothing(job):
    return []


def run_nowhere(job):
    """Reads the program, and finds nothing that could run it."""
    run(job)
    raise NotRunError(f"no such device, see {job.scratch}/log")


def run_nowhere_and_change(job):
    job.find(FILE).write_text("another program", encoding="utf-8")
    raise NotRunError("no such device")


def run_where_gpus_are_seen(job):
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    return run(job)


def run_where_gpus_are_hidden(job):
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    return run(job)


def run_and_change(job):
    found = run(job)
    job.find(FILE).write_text("another program", encoding="utf-8")
    return found


def run_with_companion(job):
    assert [path.name for path in job.companions] == ["files"]
    assert (job.companions[0] / FILE).is_file()
    return run(job)


def read_inputs(job):
    return [array_files.load(path) for path in job.inputs]


def read_other_inputs(job):
    return [array_files.load(path) + 1 for path in job.inputs]


def export_other_file(job):
    (job.directory / "other.txt").write_text("the other half", encoding="utf-8")
