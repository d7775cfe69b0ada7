"""Doubles for tests of fleets: a description, its units, a scheduler, and `cbs run` on a node."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

from report_support import document, record

from comparative_benchmark.fleet.engines import FullError, QueueEntry, QueueState
from comparative_benchmark.fleet.features import Node
from comparative_benchmark.fleet.planning import Unit

DESCRIPTION = """
name = "zoo"
canaries = false
[[run]]
name = "models/.+"
[[class]]
name = "small"
requires = "+cpu"
[[class]]
name = "big"
requires = ["+cpu +avx512 -smt", "+gpu %arch=x86_64"]
time_limit = "2h"
repeats = 2
"""


def units(*names):
    """Workloads without a catalogue, one competitor each."""
    return [
        Unit(
            run=0,
            digest=name,
            label=name,
            cases=(f"models/{name}",),
            competitors=("jax_xla:xla",),
            trials=1,
        )
        for name in names or ("w1", "w2")
    ]


class Scheduler:
    """An engine in memory; a test sets its nodes, and the states of batches.

    Attributes:
      most: largest number of batches that it accepts.
      error: raised by every command.
      refuses: raised for each batch.
      submitted: the submissions.
      states: state of each batch.
      continued: commands that shall run later; None if the engine cannot do that.
    """

    def __init__(self):
        self.machines = [Node(name=name, features=frozenset({"cpu"})) for name in ("n1", "n2")]
        self.machines[1] = Node(name="n2", features=frozenset({"cpu", "avx512"}))
        self.most = self.error = self.refuses = self.continued = None
        self.submitted, self.states = [], {}

    def nodes(self):
        self._answer()
        return self.machines

    def submit(self, submission):
        self._answer()
        if self.refuses:
            raise self.refuses
        if self.most is not None and len(self.submitted) >= self.most:
            raise FullError("full")
        self.submitted.append(submission)
        self.states[submission.name] = QueueEntry(state=QueueState.PENDING, id="7")
        return "7"

    def poll(self, prefix):
        self._answer()
        return {name: state for name, state in self.states.items() if name.startswith(prefix)}

    def cancel(self, names):
        self._answer()
        for name in names:
            self.states[name] = QueueEntry(state=QueueState.CANCELLED)

    def room(self, queued):
        return self.most

    def continue_later(self, command, name):
        if self.continued is None:
            return False
        self.continued.append(command)
        return True

    def collect(self, folder):
        return []

    def _answer(self):
        if self.error:
            raise self.error


def fake_run(monkeypatch, module, *, fails=()):
    """Replaces `cbs run` on a node: writes one result, or fails for the named workloads."""

    def run(command, **_):
        words = list(map(str, command))
        output = Path(words[words.index("-o") + 1])
        name = words[words.index("-name") + 1].rpartition("/")[2] if "-name" in words else "w1"
        if name in fails:
            return subprocess.CompletedProcess(command, 1)
        content = document(record(name))
        for item in (*content["runs"], *content["benchmarks"]):
            item["run_id"] = output.parent.name
        output.write_text(json.dumps(content))
        return subprocess.CompletedProcess(command, 0)

    double = SimpleNamespace(run=run, DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr(module, "subprocess", double)
