"""Faults of a fleet: killed processes, damaged and foreign files, full disks, clocks, races.

Files, processes and signals are real; only the scheduler is a folder, and `cbs run` a function.
After each fault, the same commands as ever must end all jobs: each result is there once.
"""

import contextlib
import functools
import gzip
import json
import os
import resource
import shutil
import signal
import tempfile
from pathlib import Path

import pytest
from spool_support import FolderEngine, Process, World, document, killed_at, prepare

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.engines import EngineError, FullError, RefusedError
from comparative_benchmark.fleet.spool import Attempt, End

_EVERY = 4


def sampled(names):
    """Returns parameters; every fourth one is in the default tier."""
    return [
        pytest.param(name, marks=() if number % _EVERY == 0 else pytest.mark.nightly)
        for number, name in enumerate(names)
    ]


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World(tmp_path)
    prepare(monkeypatch, world)
    return world


def mended(world):
    """Asserts that the usual commands end all jobs."""
    world.repair()
    world.check()


# Killed processes: an action in a world after others, and the number of its steps to try.
def _lose_all(world):
    for name in world.engine.pending():
        world.engine.set(name, "lost")
    world.late_s += 7200


def _submit_more(world):
    world.workloads += 2
    world.submit()


def _killed_before_sbatch(world):
    accept = world.engine.submit
    world.engine.submit = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    assert Process(world.submit).wait() == (-signal.SIGKILL, "")
    world.engine.submit = accept


def _claims_left(world):
    _killed_before_sbatch(world)
    long_ago = world.spool.now() - 7200
    claims = list((world.spool.folder / "claims").glob("*/*"))
    assert claims
    for claim in claims:
        os.utime(claim, (long_ago, long_ago))


def _finish(world):
    world.submit()
    world.execute()


def _finish_half(world):
    _finish(world)
    world.collect()
    world.workloads += 2
    world.submit()
    world.execute()


def _nothing(world):
    pass


KILLS = {
    "submit": (_nothing, World.submit, 72),
    "submit after a killed one": (_claims_left, World.submit, 30),
    "resume": (lambda world: (world.submit(), _lose_all(world)), World.resume, 48),
    "node": (World.submit, World.execute, 64),
    "collect": (_finish, World.collect, 28),
    "collect more": (_finish_half, World.collect, 28),
    "cancel": (World.submit, lambda world: world.campaign().cancel(), 24),
}


@functools.cache
def _steps(name):
    """Returns the number of steps of an action."""
    prepared, action, _ = KILLS[name]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        world = World(Path(folder, "world"))
        prepare(patch, world)
        prepared(world)
        return killed_at(lambda: action(world), None, world.folder)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        pytest.param(name, number, marks=() if number % 8 == 0 else pytest.mark.nightly)
        for name, (_, _, count) in KILLS.items()
        for number in range(count)
    ],
)
def test_a_process_that_is_killed(world, name, number):
    prepared, action, count = KILLS[name]
    prepared(world)
    steps = _steps(name)
    assert steps >= count * 0.8, "the steps of an action are fewer than its faults"
    killed_at(lambda: action(world), number * steps // count, world.folder)
    mended(world)


# Results files that are not a job's results.
def _changed(change):
    def content(good):
        plain = json.loads(good)
        change(plain)
        return json.dumps(plain).encode()

    return content


def _set_all_jobs(plain):
    for run in plain["runs"]:
        run["allocation"]["job"] = "f" * 32


def _text(old, new):
    def content(good):
        assert old in good
        return good.replace(old, new)

    return content


RESULTS = {
    "empty": lambda good: b"",
    "one byte": lambda good: good[:1],
    "a tenth": lambda good: good[: len(good) // 10],
    "half": lambda good: good[: len(good) // 2],
    "all but the last byte": lambda good: good.rstrip()[:-1],
    "zeros": lambda good: bytes(len(good)),
    "zeros at the end": lambda good: good[:4096] + bytes(len(good) - 4096),
    "zeros in the middle": lambda good: good[:500] + bytes(500) + good[1000:],
    "twice in a file": lambda good: good + good,
    "a rest of an older file": lambda good: good + b'"}]}',
    "NaN": _text(b'"wall_s": ', b'"wall_s": NaN, "x": '),
    "infinity": _text(b'"wall_s": ', b'"wall_s": Infinity, "x": '),
    "beyond all numbers": _text(b'"wall_s": ', b'"wall_s": 1e999, "x": '),
    "negative time": _text(b'"wall_s": ', b'"wall_s": -1, "x": '),
    "unknown status": _text(b'"status": "ok"', b'"status": "fine"'),
    "not JSON": lambda good: b"Killed\n",
    "HTML": lambda good: b"<!doctype html><html></html>",
    "null": lambda good: b"null",
    "a list": lambda good: b"[]",
    "a number": lambda good: b"7",
    "a text": lambda good: b'"results"',
    "deep": lambda good: b"[" * 100_000,
    "deep in a field": lambda good: b'{"runs": ' + b"[" * 100_000,
    "not UTF-8": lambda good: good.replace(b"run_id", b"run\xffid"),
    "half a surrogate pair": lambda good: good.replace(b'"fp32"', b'"\\ud800"'),
    "UTF-16": lambda good: good.decode().encode("utf-16"),
    "compressed": gzip.compress,
    "Git LFS pointer": lambda good: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    "no runs": _changed(lambda plain: plain.update(runs=[])),
    "no results": _changed(lambda plain: plain.update(benchmarks=[])),
    "a trial missing": _changed(lambda plain: plain["benchmarks"].pop()),
    "a trial twice": _changed(lambda plain: plain["benchmarks"].append(plain["benchmarks"][0])),
    "a run twice": _changed(lambda plain: plain["runs"].append(plain["runs"][0])),
    "a result without a run": _changed(lambda plain: plain["benchmarks"][0].update(run_id="none")),
    "runs of another job": _changed(_set_all_jobs),
    "runs of no job": _changed(lambda plain: plain["runs"][0].pop("allocation")),
    "a newer schema": _changed(lambda plain: plain.update(schema_version=2)),
    "no schema": _changed(lambda plain: plain.pop("schema_version")),
}


@pytest.mark.parametrize("name", sampled(RESULTS))
def test_a_result_that_is_damaged(world, name):
    _finish(world)
    path = world.spool.result_file(world.attempts()[1])
    path.write_bytes(RESULTS[name](path.read_bytes()))
    done = world.collect()
    assert list(done.damaged) == [f"results/{path.name}"]
    assert "\n" not in done.damaged[f"results/{path.name}"]
    assert len(done.jobs) == 2
    assert world.collect().damaged == {}
    assert world.view().foreign == []
    mended(world)


def _fifo(path):
    path.unlink()
    os.mkfifo(path)


def _sparse(path):
    with path.open("r+b") as file:
        file.truncate(2**41)


def _link_nowhere(path):
    path.unlink()
    path.symlink_to("nowhere")


def _link_to_itself(path):
    path.unlink()
    path.symlink_to(path.name)


def _folder(path):
    path.unlink()
    path.mkdir()


SPECIAL = {
    "a pipe": _fifo,
    "two terabytes": _sparse,
    "a link to nowhere": _link_nowhere,
    "a link to itself": _link_to_itself,
    "a folder": _folder,
    "removed": Path.unlink,
}


@pytest.mark.parametrize("name", sampled(SPECIAL))
def test_a_result_that_is_no_file(world, name):
    _finish(world)
    path = world.spool.result_file(world.attempts()[1])
    SPECIAL[name](path)
    done = world.collect()
    assert len(done.jobs) == 2
    assert all("\n" not in reason for reason in done.damaged.values())
    mended(world)


def _copy_of_another(world, path):
    shutil.copy(world.spool.result_file(world.attempts()[0]), path)


def _second_attempt(world, path):
    """Another attempt that measured the job, too."""
    plain = json.loads(path.read_bytes())
    where = {**plain["runs"][0]["allocation"], "attempt": 1}
    content = json.dumps(document("another run", where))
    path.with_name(path.name.replace(".0.", ".1.")).write_text(content)


def _same_attempt_again(world, path):
    shutil.copy(path, path.with_name(path.name.replace(".0.", ".1.")))


def _foreign(name):
    def put(world, path):
        target = world.spool.folder / name.format(path.name)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())

    return put


DUPLICATES = {
    "two attempts measured a job": _second_attempt,
    "an attempt that is there twice": _same_attempt_again,
    "a copy of another job's results": _copy_of_another,
    "a copy by hand": _foreign("results/copy of {}"),
    "a job of another plan": _foreign(f"results/{'e' * 32}.0.json"),
    "an upper-case name": _foreign(f"results/{'E' * 32}.0.json"),
    "a name that is not UTF-8": _foreign("results/\udcff.json"),
    "an unfinished file": _foreign("results/.unfinished-x"),
    "a file of an editor": _foreign("results/{}~"),
    "a swap file": _foreign("ends/.{}.swp"),
    "an end of another plan": _foreign(f"ends/{'e' * 32}.0.json"),
    "a file among the claims": _foreign("claims/{}"),
    "a file among the submissions": _foreign("submitted/{}"),
    "results among the submissions": _foreign("submitted/x.jsonl"),
    "results among the batches": _foreign("batches/{}"),
    "a snapshot folder of a file server": _foreign(".snapshot/{}"),
}


@pytest.mark.parametrize("name", sampled(DUPLICATES))
@pytest.mark.parametrize("collected", [False, True])
def test_a_file_that_is_there_twice_or_foreign(world, name, collected):
    _finish(world)
    if collected:
        world.collect()
    DUPLICATES[name](world, world.spool.result_file(world.attempts()[1]))
    world.collect()
    mended(world)


# Other files of the spool, damaged after all jobs are submitted or after they have ended.
CONTENTS = {
    "empty": b"",
    "torn": b'{"a": ["b',
    "another type": b"[1, null]",
    "binary": bytes(range(256)),
    "deep": b"[" * 100_000,
    "zeros": bytes(4096),
}
FILES = {
    "batches": "batches/*.json",
    "ends": "ends/*.json",
    "durations": "durations.json",
    "unsupported": "unsupported.json",
    "queue": "queue.json",
    "submissions": "submitted/*.jsonl",
    "owners": "claims/*/*/owner.json",
}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        pytest.param(
            file, content, marks=() if (row + column) % _EVERY == 0 else pytest.mark.nightly
        )
        for row, file in enumerate(FILES)
        for column, content in enumerate(CONTENTS)
    ],
)
@pytest.mark.parametrize("ended", [False, True])
def test_a_file_of_the_spool_that_is_damaged(world, file, content, ended):
    world.submit()
    if ended:
        world.execute()
        world.collect()
        world.workloads += 1
        world.submit()
    for path in world.spool.folder.glob(FILES[file]):
        path.write_bytes(CONTENTS[content])
    mended(world)


@pytest.mark.parametrize("content", sampled(CONTENTS))
def test_a_plan_that_is_damaged(world, content):
    world.submit()
    world.execute()
    world.spool.plan_file.write_bytes(CONTENTS[content])
    for command in (world.submit, world.resume, world.collect):
        with pytest.raises(UsageError, match="remove it and submit again") as raised:
            command()
        assert "\n" not in str(raised.value)
    world.spool.plan_file.unlink()
    world.submit()
    mended(world)


FOLDERS = ("claims", "batches", "submitted", "results", "ends", "work", "logs")


@pytest.mark.parametrize("name", sampled(FOLDERS))
def test_a_folder_of_the_spool_that_is_removed(world, name):
    _finish(world)
    shutil.rmtree(world.spool.folder / name, ignore_errors=True)
    mended(world)


@pytest.mark.parametrize("line", sampled(["half", "twice", "unknown fields", "two in a line"]))
def test_a_line_of_submissions(world, line):
    world.submit()
    [path] = (world.spool.folder / "submitted").iterdir()
    content = path.read_bytes()
    changed = {
        "half": content[: len(content) // 2],
        "twice": content + content,
        "unknown fields": content.replace(b"{", b'{"later": 1, '),
        "two in a line": content.rstrip() + content,
    }
    path.write_bytes(changed[line])
    world.execute()
    mended(world)


# Races: actions that processes begin at the same time.
RACES = {
    "two submitters": (_nothing, [World.submit] * 2),
    "four submitters": (_nothing, [World.submit] * 4),
    "submitters of two plans": (_nothing, [World.submit, _submit_more]),
    "two that resume": (lambda world: (world.submit(), _lose_all(world)), [World.resume] * 2),
    "three that take over": (_claims_left, [World.submit] * 3),
    "submit and resume": (_claims_left, [World.submit, World.resume]),
    "two collectors": (_finish, [World.collect] * 2),
    "three collectors": (_finish_half, [World.collect] * 3),
    "collector and node": (World.submit, [World.execute, World.collect, World.collect]),
    "one batch on two nodes": (World.submit, [World.execute] * 2),
    "submitter and node": (World.submit, [World.submit, World.execute]),
    "cancelled while it runs": (
        World.submit,
        [World.execute, lambda world: world.campaign().cancel()],
    ),
}


@pytest.mark.parametrize("name", sampled(RACES))
@pytest.mark.parametrize(
    "turn", [0, *(pytest.param(turn, marks=pytest.mark.nightly) for turn in (1, 2, 3))]
)
def test_processes_at_the_same_time(world, name, turn):
    prepared, actions = RACES[name]
    prepared(world)
    read, write = os.pipe()

    def start(action):
        def run():
            os.close(write)
            os.read(read, 1)  # returns when the parent closes the pipe
            action(world)

        return run

    processes = [Process(start(action)) for action in actions]
    os.close(read)
    os.close(write)
    for process in processes:
        assert process.wait() == (0, "")
    if name == "submitters of two plans":
        assert len(world.campaign().stored_plan().jobs) == 5
    if "submit" in name or "take" in name:
        # A submitter may record the batch of another one, too.
        batches = {record.batch: record.attempts for record in world.spool.submissions()}
        submitted = [attempt for attempts in batches.values() for attempt in attempts]
        assert len(submitted) == len(set(submitted)), "an attempt was submitted twice"
    mended(world)


# Limits of the file system or of a process, while a command runs.
LIMITS = {
    "no bytes": (resource.RLIMIT_FSIZE, 0),
    "50 bytes": (resource.RLIMIT_FSIZE, 50),
    "300 bytes": (resource.RLIMIT_FSIZE, 300),
    "1,000 bytes": (resource.RLIMIT_FSIZE, 1000),
    "10,000 bytes": (resource.RLIMIT_FSIZE, 10_000),
    "30,000 bytes": (resource.RLIMIT_FSIZE, 30_000),
    "no open files": (resource.RLIMIT_NOFILE, 3),
}
LIMITED = {
    "submit": (_nothing, World.submit),
    "resume": (lambda world: (world.submit(), _lose_all(world)), World.resume),
    "node": (World.submit, World.execute),
    "collect": (_finish, World.collect),
    "collect more": (_finish_half, World.collect),
}


@pytest.mark.parametrize(
    ("limit", "command"),
    [
        pytest.param(
            limit, command, marks=() if (row + column) % _EVERY == 0 else pytest.mark.nightly
        )
        for row, limit in enumerate(LIMITS)
        for column, command in enumerate(LIMITED)
    ],
)
def test_a_disk_that_is_full(world, limit, command):
    prepared, action = LIMITED[command]
    prepared(world)
    before = world.output.read_bytes() if world.output.exists() else None

    def limited():
        kind, value = LIMITS[limit]
        resource.setrlimit(kind, (value, value))
        action(world)

    code, error = Process(limited).wait()
    assert code in (0, 1)
    assert "\n" not in error
    if code and "collect" in command:
        assert (world.output.read_bytes() if world.output.exists() else None) == before
    mended(world)


def _status(world):
    world.campaign().status()


def _collect_elsewhere(world):
    world.output = world.folder / "elsewhere" / "all.json"
    world.collect()


READERS = {
    "submit": World.submit,
    "resume": World.resume,
    "status": _status,
    "collect": World.collect,
    "cancel": lambda world: world.campaign().cancel(),
    "collect into another folder": _collect_elsewhere,
}


@pytest.mark.parametrize("name", sampled(READERS))
def test_a_spool_that_is_read_only(monkeypatch, name):
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        world = World(Path(place, "world"))
        prepare(monkeypatch, world)
        _finish(world)
        elsewhere = world.folder / "elsewhere"
        elsewhere.mkdir()
        elsewhere.chmod(0o777)
        folders = [p for p in world.folder.rglob("*") if p.is_dir() and p != elsewhere]
        for folder in (world.folder, *folders):
            folder.chmod(0o555)

        def as_another_user():
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            READERS[name](world)

        code, error = Process(as_another_user).wait()
        assert "\n" not in error
        assert code == (0 if name == "collect into another folder" else 1), error
        for folder in (world.folder, *folders):
            folder.chmod(0o755)
        shutil.rmtree(elsewhere)
        mended(world)


CLOCKS_S = (-10.0, -3600.0, -86400.0, -(10.0**8), 3600.0, 10.0**8)
MOMENTS = {
    "after claims": _killed_before_sbatch,
    "after submission": World.submit,
    "after a failure": lambda world: (world.submit(), _lose_all(world), world.resume()),
    "after the end": _finish,
}


@pytest.mark.parametrize(
    ("clock_s", "moment"),
    [
        pytest.param(clock, name, marks=() if (row + column) % 3 == 0 else pytest.mark.nightly)
        for row, clock in enumerate(CLOCKS_S)
        for column, name in enumerate(MOMENTS)
    ],
)
def test_a_clock_that_is_changed(world, clock_s, moment):
    world.late_s = 10.0**8
    MOMENTS[moment](world)
    world.late_s += clock_s
    mended(world)


# The scheduler.
class _Faulty(FolderEngine):
    """A queue that raises an error, before or after it accepts the second batch."""

    def __init__(self, folder, error, *, accepts):
        super().__init__(folder)
        self._error = error
        self._accepts = accepts
        self.is_faulty = True
        self._count = 0

    def submit(self, submission):
        self._count += 1
        if self.is_faulty and self._count > 1:
            if self._accepts:
                super().submit(submission)
            raise self._error
        return super().submit(submission)


def _silent():
    return EngineError("no answer")


SCHEDULERS = {
    "it does not answer": (_silent, False),
    "it accepts, and does not answer": (_silent, True),
    "it is full": (FullError, False),
    "it refuses": (lambda: RefusedError("no such partition"), False),
    "ssh is cut": (lambda: EngineError("one: ssh: connection closed"), True),
}


@pytest.mark.parametrize("name", sampled(SCHEDULERS))
@pytest.mark.parametrize("executed", [False, True])
def test_a_scheduler(world, name, executed):
    make, accepts = SCHEDULERS[name]
    world.engine = _Faulty(world.engine.folder, make(), accepts=accepts)
    with contextlib.suppress(EngineError):
        world.submit()
    world.engine.is_faulty = False
    if executed:
        world.execute()
    with contextlib.suppress(EngineError):
        world.submit()
    mended(world)


def _forget(world):
    for path in world.engine.folder.iterdir():
        path.unlink()


def _state(state):
    return lambda world: [world.engine.set(name, state) for name in world.engine.pending()]


def _stays(world):
    """A batch whose node is gone, and that the queue shows as running for hours."""
    _state("running")(world)
    world.late_s += 86400
    world.campaign().cancel()


def _again(world):
    """The scheduler starts batches again that have ended."""
    world.execute()
    for path in world.engine.folder.iterdir():
        world.engine.set(path.name, "pending")
    world.execute()


def _unknown(world):
    world.engine.set(f"{world.campaign().prefix}{'0' * 12}", "ended")


def _killed_node(world):
    """A node that dies after its first results."""
    killed_at(world.execute, 30, world.folder)
    _state("lost")(world)


def _fails(world):
    for name in world.view().batches:
        key, _, number = name.partition(".")
        world.spool.end(Attempt(key, int(number)), End(ending="failed", reason="x", node="one"))


QUEUES = {
    "forgotten before the start": _forget,
    "forgotten after the end": lambda world: (world.execute(), _forget(world)),
    "ended without files": _state("ended"),
    "lost": _state("lost"),
    "cancelled by hand": _state("cancelled"),
    "time limit": _state("timeout"),
    "running for ever": _stays,
    "started again": _again,
    "an unknown batch": _unknown,
    "a node that dies": _killed_node,
    "all jobs fail on one node": _fails,
    "a batch that ends twice": lambda world: (world.execute(), _fails(world)),
    "cancelled twice": lambda world: (world.campaign().cancel(), world.campaign().cancel()),
    "the output is removed": lambda world: (
        world.execute(),
        world.collect(),
        world.output.unlink(),
    ),
}


@pytest.mark.parametrize("name", sampled(QUEUES))
def test_a_queue(world, name):
    world.submit()
    QUEUES[name](world)
    mended(world)


OUTPUTS = {
    "empty": b"",
    "torn": b'{"schema_version": 1, "runs": [',
    "not UTF-8": b"\xff\xfe",
    "a list": b"[]",
    "deep": b"[" * 100_000,
    "another kind": b'{"a": 1}',
}


@pytest.mark.parametrize("name", sampled(OUTPUTS))
def test_an_output_that_is_no_results_file(world, name):
    _finish(world)
    world.output.parent.mkdir()
    world.output.write_bytes(OUTPUTS[name])
    with pytest.raises(UsageError, match="is not a results file") as raised:
        world.collect()
    assert "\n" not in str(raised.value)
    assert world.output.read_bytes() == OUTPUTS[name]
    world.output.unlink()
    mended(world)


def test_a_spool_without_names_is_not_empty(world):
    _finish(world)
    results = world.spool.folder / "results"
    results.rename(results.with_name("elsewhere"))
    results.symlink_to("results")
    with pytest.raises(UsageError, match="cannot be read"):
        world.resume()
    results.unlink()
    results.with_name("elsewhere").rename(results)
    mended(world)
