"""The queue of one host: its states, and runners and machines that die."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import attrs
import msgspec
import pytest
from tests_support import processes_of, wait_for

from comparative_benchmark.fleet import host_queue
from comparative_benchmark.fleet.engines import hosts
from comparative_benchmark.fleet.host_queue import HostQueue, HostState, Queued, answer
from comparative_benchmark.fleet.spool import Batch, Spool

BATCH = Batch(
    name="",
    fleet="tiny",
    campaign="",
    machine_class="any",
    engine="local",
    share="node",
    host="unknown",
    time_limit_s=60,
    jobs=(),
)
HOST_LOCK = host_queue._HOST_LOCK
# A node that notes its batch, and then does something.
NODE = """\
#!/bin/sh
for last; do :; done
basename "$last" .json >> {folder}/executed
{does}
"""


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """A queue without a runner; returns functions that fill it."""
    monkeypatch.setattr(host_queue, "_HOST_LOCK", tmp_path / "host.lock")
    monkeypatch.setattr(HostQueue, "start_runner", lambda _: None)
    folder = tmp_path / "fleet.v1"
    queue = HostQueue(folder)

    def add(*names, does="exit 0", limit_s=60.0, python=None):
        for name in names:
            node = tmp_path / f"python-{name}"
            node.write_text(NODE.format(folder=tmp_path, does=does))
            node.chmod(0o755)
            batch = attrs.evolve(BATCH, name=name)
            log = str(folder / "logs" / f"{name}.log")
            python = python or str(node)
            queue.submit(batch, Queued(name=name, time_limit_s=limit_s, python=python, log=log))

    queue.add = add
    queue.folder = folder
    queue.executed = lambda: (tmp_path / "executed").read_text().split()
    return queue


@pytest.fixture
def runner(queue, tmp_path):
    """Starts runners as separate processes."""
    code = (
        "import sys, pathlib\n"
        "from comparative_benchmark.fleet import host_queue\n"
        "host_queue._HOST_LOCK = pathlib.Path(sys.argv[2], 'host.lock')\n"
        "host_queue.HostQueue(pathlib.Path(sys.argv[1])).run()\n"
    )
    processes = []

    def start():
        command = [sys.executable, "-c", code, str(queue.folder), str(tmp_path)]
        processes.append(subprocess.Popen(command))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()
    for pid in processes_of(str(tmp_path)):
        os.kill(pid, signal.SIGKILL)


def states(queue, prefix=""):
    return {name: item.state for name, item in queue.states(prefix).items()}


def test_batches_run_in_order(queue):
    queue.add("b", "a.2", "a.1")
    assert states(queue) == dict.fromkeys(("b", "a.2", "a.1"), "pending")
    queue.run()
    assert queue.executed() == ["b", "a.2", "a.1"]
    assert states(queue) == dict.fromkeys(("b", "a.2", "a.1"), "ended")
    assert set(states(queue, "a.")) == {"a.1", "a.2"}
    queue.run()
    assert len(queue.executed()) == 3


def test_exit_codes(queue):
    queue.add("good")
    queue.add("bad", does="exit 3")
    queue.run()
    found = queue.states("")
    assert abs(found["good"].ended_at - time.time()) < 60
    without_time = {name: attrs.evolve(state, ended_at=None) for name, state in found.items()}
    assert without_time == {
        "good": HostState(state="ended", code=0),
        "bad": HostState(state="ended", code=3),
    }


def test_a_batch_knows_its_host_by_the_name_in_the_fleet(queue, tmp_path):
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho $CBS_FLEET_NODE > {tmp_path}/named\n")
    program.chmod(0o755)
    request(
        queue,
        "submit",
        batch=msgspec.to_builtins(attrs.evolve(BATCH, name="a")),
        python=str(program),
        time_limit_s=60,
        setup=None,
        node="user@desk1",
    )
    queue.run()
    assert (tmp_path / "named").read_text() == "user@desk1\n"


def test_an_interpreter_that_does_not_exist_costs_one_batch(queue):
    queue.add("bad", python="/nowhere/python")
    queue.add("good")
    queue.run()
    found = queue.states("")
    assert found["bad"].state == "lost"
    log = found["bad"].reason.removeprefix("interpreter cannot start; see ")
    assert "/nowhere/python" in Path(log).read_text()
    assert found["good"].state == "ended"


def test_a_damaged_entry_costs_one_batch(queue):
    queue.add("bad", "good")
    [entry] = (queue.folder / "queue").glob("*/pending/* bad")
    entry.write_bytes(b"{")
    queue.run()
    assert states(queue) == {"bad": "lost", "good": "ended"}


def test_a_batch_that_ignores_its_time_limit(queue, monkeypatch, tmp_path):
    """Its processes are killed, those in the background as well."""
    monkeypatch.setattr(host_queue, "_LATE_S", 0.0)
    monkeypatch.setattr(host_queue, "_STOPPING_S", 0.2)
    queue.add("long", does="trap '' TERM; sh -c 'sleep 60; :' & wait; sleep 60; :", limit_s=0.5)
    queue.add("next")
    queue.run()
    assert states(queue) == {"long": "timeout", "next": "ended"}
    assert processes_of(str(tmp_path)) == []


def test_a_cancelled_batch_never_starts(queue):
    queue.add("a", "b")
    queue.cancel(["a", "not there"])
    assert states(queue) == {"a": "cancelled", "b": "pending"}
    queue.run()
    assert queue.executed() == ["b"]
    queue.cancel(["b"])
    assert states(queue) == {"a": "cancelled", "b": "ended"}


def test_a_running_batch_is_cancelled(queue, runner):
    queue.add("cbs-v1.2-a", "cbs-v1.2-b", does="sleep 60; :")
    process = runner()
    wait_for(lambda: list((queue.folder / "queue").rglob("cbs-v1.2-a.pid")), "the batch")
    assert states(queue) == {"cbs-v1.2-a": "running", "cbs-v1.2-b": "pending"}
    queue.cancel(["cbs-v1.2-b", "cbs-v1.2-a"])
    assert process.wait(60) == 0
    assert states(queue) == {"cbs-v1.2-a": "cancelled", "cbs-v1.2-b": "cancelled"}


def test_a_cancelled_batch_of_a_dead_runner_kills_no_other_program(queue):
    """Its process id may belong to another program by now."""
    queue.add("a")
    [pending] = (queue.folder / "queue").glob("*/pending/*")
    running = pending.parents[1] / "running" / "a"
    pending.rename(running)
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        running.with_name("a.pid").write_text(str(other.pid))
        assert states(queue) == {"a": "lost"}
        queue.cancel(["a"])
        time.sleep(0.1)
        assert other.poll() is None
        other.kill()
    assert states(queue) == {"a": "cancelled"}


def test_the_lock_stays_with_the_process_of_a_batch(queue, runner, tmp_path):
    """If the runner is killed, the batch continues, and no second one starts."""
    queue.add("a", does=f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done")
    queue.add("b")
    process = runner()
    wait_for(lambda: list((queue.folder / "queue").rglob("a.pid")), "the batch")
    process.kill()
    process.wait()
    assert states(queue) == {"a": "running", "b": "pending"}
    assert runner().wait(60) == 0
    assert queue.executed() == ["a"]
    (tmp_path / "go").touch()
    wait_for(lambda: states(queue)["a"] == "lost", "the end of the batch")
    queue.run()
    assert queue.executed() == ["a", "b"]


def test_a_batch_that_arrives_as_the_runner_ends(queue, monkeypatch):
    """The runner looks once more after it released the lock."""
    real = host_queue._locked
    late = ["b"]

    def locked(path, **options):
        manager = real(path, **options)

        class Late:
            def __enter__(self):
                return manager.__enter__()

            def __exit__(self, *error):
                if path == queue._lock_file and queue._pending() == [] and late:
                    queue.add(late.pop())
                return manager.__exit__(*error)

        return Late()

    queue.add("a")
    monkeypatch.setattr(host_queue, "_locked", locked)
    queue.run()
    assert queue.executed() == ["a", "b"]


def test_all_users_can_lock_the_host(queue):
    """The umask and the temporary folder of the first user do not matter."""
    assert HOST_LOCK.is_absolute()
    queue.add("a")
    umask = os.umask(0o077)
    try:
        queue.run()
    finally:
        os.umask(umask)
    assert stat.S_IMODE(host_queue._HOST_LOCK.stat().st_mode) == 0o666
    queue.add("b")
    queue.run()
    assert queue.executed() == ["a", "b"]


def test_fleets_and_campaigns_have_folders_of_their_own_on_a_host(tmp_path, monkeypatch):
    asked = []

    def run(command, *, input, **_):  # noqa: A002  # as in subprocess
        asked.append(json.loads(input)["folder"])
        return subprocess.CompletedProcess(command, 0, "{}\n", "")

    monkeypatch.setattr(hosts.subprocess, "run", run)
    for place in ("one/zoo", "two/zoo", "one/zoo/night", "one/bert/night"):
        hosts.SshEngine(options={}, folder=tmp_path / place, hosts=["h"]).poll("cbs-")
    assert len(set(asked)) == 4
    assert "/zoo-night-" in asked[2]


def test_only_hosts_with_a_batch_are_asked_to_cancel_it(tmp_path, monkeypatch):
    asked = []

    def run(command, **_):
        asked.append(command[command.index("--") + 1])
        return subprocess.CompletedProcess(command, 0, "{}\n", "")

    monkeypatch.setattr(hosts.subprocess, "run", run)
    (tmp_path / "sent" / "b").mkdir(parents=True)
    (tmp_path / "sent" / "b" / "cbs-1").touch()
    engine = hosts.SshEngine(options={}, folder=tmp_path, hosts=["a", "b"])
    engine.cancel(["cbs-submit", "cbs-2"])
    assert asked == []
    engine.cancel(["cbs-submit", "cbs-1"])
    assert asked == ["b"]


def request(queue, verb, **values):
    return answer({"folder": str(queue.folder), "verb": verb, **values})


def test_the_agent_of_a_host(queue, tmp_path):
    batch = msgspec.to_builtins(attrs.evolve(BATCH, name="a"))
    request(queue, "submit", batch=batch, time_limit_s=60, python=None, setup=None)
    assert request(queue, "poll", prefix="") == {
        "a": {"state": "pending", "code": None, "reason": "", "ended_at": None}
    }
    request(queue, "cancel", names=["a"])
    assert request(queue, "poll", prefix="")["a"]["state"] == "cancelled"
    assert "cpu" in request(queue, "node")["features"]
    with pytest.raises(ValueError, match="unknown verb 'dance'"):
        request(queue, "dance")


def test_files_come_in_portions(queue, monkeypatch):
    monkeypatch.setattr(host_queue, "_MOST_BYTES", 100)
    Spool(queue.folder).create()
    for number in range(5):
        (queue.folder / "results" / f"{number}.json").write_text("x" * 60)
    (queue.folder / "results" / ".unfinished.json").write_text("x")
    have = set()
    while files := request(queue, "fetch", have=sorted(have)):
        assert len(files) == 1
        assert not have & set(files)
        have |= set(files)
    assert have == {f"results/{number}.json" for number in range(5)}
