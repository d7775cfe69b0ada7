"""A fleet of made-up workloads, whose queue is a folder and whose nodes run in this process."""

import contextlib
import json
import os
import signal
import sys
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
from results_support import plain_document

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet import collecting, node
from comparative_benchmark.fleet.campaign import Campaign
from comparative_benchmark.fleet.description import Fleet, MachineClass
from comparative_benchmark.fleet.engines import QueueEntry, QueueState, Submission
from comparative_benchmark.fleet.features import Node
from comparative_benchmark.fleet.planning import Plan, Unit, plan_jobs
from comparative_benchmark.fleet.spool import Spool, View, read_batch
from comparative_benchmark.fleet.standing import State
from comparative_benchmark.request import RunRequest
from comparative_benchmark.results.results_file import read_document

TRIALS = 2


def fleet_of(folder: Path, **changes: Any) -> Fleet:
    """Returns a fleet with one class, whose spool is in a folder."""
    path = folder / "FLEET.toml"
    if not path.exists():
        path.write_text("# a test's\n")
    usual = {
        "path": path,
        "name": "tested",
        "spool": folder / "spool",
        "runs": (RunRequest(name="models/.+"),),
        "classes": (MachineClass(name="any", time_limit_s=240),),
        "canaries": False,
    }
    return Fleet(**{**usual, **changes})


def units(number: int, device: str = "host-cpu") -> list[Unit]:
    """Returns units of made-up workloads."""
    return [
        Unit(
            run=0,
            digest=f"{index:064x}",
            label=f"workload {index}",
            cases=(f"models/M{index}/inputs/X",),
            competitors=("a", "b"),
            trials=TRIALS,
            device=device,
        )
        for index in range(number)
    ]


class FolderEngine:
    """A queue of files: the name of a batch, with its state as content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.names = ["one", "two"]

    def nodes(self) -> list[Node]:
        return [Node(name=name) for name in self.names]

    def submit(self, submission: Submission) -> str:
        self.set(submission.name, "pending")
        return "7"

    def poll(self, prefix: str) -> dict[str, QueueEntry]:
        return {
            path.name: QueueEntry(state=QueueState(path.read_text()), node="one")
            for path in self.folder.iterdir()
            if path.name.startswith(prefix)
        }

    def cancel(self, names: Sequence[str]) -> None:
        for name in names:
            self.set(name, "cancelled")

    def room(self, queued: int) -> int | None:
        return None

    def continue_later(self, command: Sequence[str], name: str) -> bool:
        return False

    def collect(self, folder: Path) -> list[str]:
        return []

    def set(self, name: str, state: str) -> None:
        temporary = self.folder / f".{uuid.uuid4().hex}"
        temporary.write_text(state)
        temporary.rename(self.folder / name)

    def pending(self) -> list[str]:
        return sorted(
            path.name
            for path in self.folder.iterdir()
            if path.name[0] != "." and path.read_text() == "pending"
        )


@attrs.define
class MadeUpCampaign(Campaign):
    """A campaign of `workloads` made-up workloads."""

    workloads: int = attrs.field(default=3, kw_only=True)

    def make_plan(self, campaign: str) -> Plan:
        """Plans without the catalogue."""
        return plan_jobs(
            self.fleet,
            units(self.workloads),
            revision="r",
            campaign=campaign,
            durations_s=self.spool.durations_s(),
        )


class World:
    """A campaign, its nodes and its results file.

    Attributes:
      lines: lines that the campaign reported.
      late_s: seconds by which the clock of the file system is ahead of the real one.
    """

    def __init__(self, folder: Path, workloads: int = 3) -> None:
        self.folder = folder
        self.output = folder / "results" / "all.json"
        self.lines: list[str] = []
        self.late_s = 0.0
        self.engine = FolderEngine(folder / "queue")
        self.workloads = workloads
        self.fleet = fleet_of(folder)
        self.spool = Spool(self.fleet.folder)

    def campaign(self) -> MadeUpCampaign:
        """Returns the campaign as a new process sees it."""
        spool = Spool(self.fleet.folder)
        return MadeUpCampaign(
            self.fleet, spool, self.engine, self.lines.append, workloads=self.workloads
        )

    def submit(self) -> None:
        self.campaign().submit("")

    def resume(self) -> None:
        self.campaign().resume("", longer=True)

    def execute(self) -> None:
        """Runs all batches in the queue on a node."""
        for name in self.engine.pending():
            self.execute_batch(name)

    def execute_batch(self, name: str) -> None:
        path = self.spool.batch_file(name)
        if path.is_file():
            with contextlib.suppress(UsageError):
                node.run_batch(self.spool, read_batch(path))
        self.engine.set(name, "ended")

    def collect(self) -> collecting.Collected:
        campaign = self.campaign()
        return collecting.collect(campaign.stored_plan(), campaign.spool, self.output)

    def attempts(self) -> list[str]:
        """Returns the names of finished attempts."""
        return sorted(self.view().finished)

    def view(self) -> View:
        return self.spool.view()

    def repair(self) -> None:
        """Resumes, executes and collects until all jobs are done."""
        for _ in range(6):
            self.late_s += 7200
            if self.spool.plan_file.exists():
                self.resume()
            else:
                self.submit()
            self.execute()
            self.collect()
            _, found = self.campaign().status()
            if all(item.state is State.DONE for item in found.values()):
                return

    def check(self) -> None:
        """Asserts that each trial of each job has one result, and that nothing else is left."""
        document = read_document(self.output)
        owners = {run.run_id: run.allocation.job for run in document.runs}
        times = Counter((owners[item.run_id], item.key) for item in document.benchmarks)
        jobs = [job.key for job in self.campaign().stored_plan().jobs]
        assert len(jobs) >= self.workloads
        assert sorted(job for job, _ in times) == sorted(jobs * TRIALS), "a result is lost"
        assert set(times.values()) == {1}, "a result is there twice"
        assert [path.name for path in self.output.parent.glob(".*.collecting")] == []
        assert all("\n" not in line for line in self.lines)


def prepare(monkeypatch: Any, world: World) -> None:
    """Replaces the slow parts of a node, and moves the clock of the file system by `late_s`."""
    real_now = Spool.now
    monkeypatch.setattr(Spool, "now", lambda spool: real_now(spool) + world.late_s)
    monkeypatch.setattr(node, "python_environment", list)
    monkeypatch.setattr(node, "exclusive_use", lambda: (True, ""))
    monkeypatch.setattr(node, "subprocess", SimpleNamespace(run=fake_cbs, DEVNULL=-3))


def fake_cbs(command: Sequence[str], **_: Any) -> SimpleNamespace:
    """Writes the results of a `cbs run --resume`."""
    output = Path(command[command.index("-o") + 1])
    if not output.exists():
        content = json.dumps(document(uuid.uuid4().hex))
        temporary = output.with_name(f".{uuid.uuid4().hex}")
        temporary.write_text(content)
        temporary.rename(output)
    return SimpleNamespace(returncode=0)


def document(run_id: str, allocation: dict[str, Any] | None = None) -> dict[str, Any]:
    """Returns a results document with one run of two trials."""
    plain = plain_document("first-fixed")
    for run in plain["runs"]:
        run["run_id"] = run_id
        run["execution_environment"]["python_environment"] = []
        if allocation is not None:
            run["allocation"] = allocation
    for result in plain["benchmarks"]:
        result["run_id"] = run_id
    plain["execution_environment"]["python_environment"] = []
    return plain


class Process:
    """A forked process; it ends with 0, 1 after an error that it reports, or by a signal."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._read, write = os.pipe()
        with warnings.catch_warnings():
            # Threads of NumPy's libraries, and of JAX if another test uses it; not of the child.
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", RuntimeWarning)
            self._pid = os.fork()
        if self._pid == 0:
            code = 9
            try:
                os.close(self._read)
                try:
                    action()
                    code = 0
                except Exception as error:
                    os.write(write, f"{type(error).__name__}: {error}".encode())
                    code = 1
            finally:
                os._exit(code)
        os.close(write)

    def wait(self) -> tuple[int, str]:
        """Returns the exit code, negative for a signal, and the error."""
        text = b""
        while part := os.read(self._read, 65536):
            text += part
        os.close(self._read)
        _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status), text.decode(errors="replace")


# Steps that change or read a folder or a file.
_STEPS = (
    *("open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.utime"),
    *("os.chmod", "os.scandir", "os.listdir", "shutil.rmtree"),
)


def killed_at(action: Callable[[], object], step: int | None, folder: Path) -> int:
    """Runs an action in a process that is killed before a step in a folder.

    Args:
      step: number of the step; None to count the steps.

    Returns:
      The number of steps.
    """
    counter = folder.parent / f"steps-{folder.name}"
    descriptor = os.open(counter, os.O_CREAT | os.O_RDWR | os.O_TRUNC)

    def run() -> None:
        count = 0

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal count
            if event not in _STEPS or str(folder) not in str(arguments[0]):
                return
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            os.pwrite(descriptor, f"{count:9d}".encode(), 0)

        sys.addaudithook(hook)
        action()

    try:
        code, text = Process(run).wait()
        count = int(os.pread(descriptor, 9, 0) or 0)
    finally:
        os.close(descriptor)
        counter.unlink()
    assert code in (0, -signal.SIGKILL), text
    return count
