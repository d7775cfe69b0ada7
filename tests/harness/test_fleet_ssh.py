"""Fleets of hosts that ssh reaches: an sshd of this machine, with its own keys."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from fleet_support import TinyFleet
from tests_support import processes_of, wait_for

pytestmark = pytest.mark.nightly
# sshd listens on the first only.
HOST, UNREACHABLE = "127.0.0.1", "127.0.0.2"
# sshd requires it, even if it is not used.
PRIVILEGES = Path("/run/sshd")


def make_key(path):
    """Makes a key, and returns its public part."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path.with_suffix(".pub").read_text()


@pytest.fixture
def ssh_options(tmp_path):
    """Starts an sshd; returns the arguments of ssh."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if sshd is None:
        pytest.skip("sshd is not installed: .ci/run lists its package")
    if os.getuid() == 0:
        PRIVILEGES.mkdir(exist_ok=True)
    folder = tmp_path / "sshd"
    folder.mkdir(mode=0o700)
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    host_key = make_key(folder / "host")
    (folder / "authorized").write_text(make_key(folder / "user"))
    (folder / "known").write_text(
        "".join(f"[{host}]:{port} {host_key}" for host in (HOST, UNREACHABLE))
    )
    (folder / "config").write_text(
        f"Port {port}\nListenAddress {HOST}\nHostKey {folder}/host\nPidFile none\n"
        f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\n"
    )
    command = [sshd, "-D", "-e", "-f", str(folder / "config")]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as daemon:
        try:
            wait_for(lambda: "listening" in (folder / "log").read_text(), "sshd")
            yield [
                *("-F", "none", "-p", str(port), "-i", str(folder / "user")),
                *("-l", getpass.getuser(), "-o", f"UserKnownHostsFile={folder}/known"),
            ]
        finally:
            daemon.terminate()


@pytest.fixture
def fleet(tmp_path, ssh_options):
    """Makes fleets whose files on the host are in a separate folder."""

    def make(*hosts, **options):
        folder = tmp_path / "submitter"
        folder.mkdir()
        python = folder / "environment" / "bin" / "python"
        return TinyFleet(
            folder,
            "ssh",
            options=f'ssh = {ssh_options}\nfolder = "{tmp_path}/host"\npython = "{python}"',
            classes=f'[[class]]\nname = "any"\nENVIRONMENT\nhosts = {list(hosts)}\n',
            **options,
        )

    yield make
    for pid in processes_of(f"{tmp_path}/host"):
        os.kill(pid, signal.SIGKILL)


def keys(runs):
    """Keys of the jobs of these runs."""
    return [run["allocation"]["job"] for run in runs]


def test_the_submitter_and_the_runner_die(fleet, tmp_path):
    """Twelve jobs are in one file, none twice, and the lost one shows its second attempt."""
    tiny = fleet(HOST, jobs=12, seconds=60)
    submitter = tiny.start("submit")
    wait_for(lambda: len(list(tiny.spool.glob("batches/*"))) > 2 and tiny.started, "some batches")
    submitter.kill()
    submitter.communicate()
    assert len(list(tiny.spool.glob("batches/*"))) < 12, "the submitter died in the middle"
    for pid in processes_of(f"{tmp_path}/host"):
        os.kill(pid, signal.SIGKILL)
    tiny.take(all=0)
    first = tiny.started[0]
    tiny.forget_queue()
    assert tiny.states()[first]["state"] == "lost"
    tiny.expire_claims()
    tiny.cbs("resume")
    finished = tmp_path / "host" / "results"
    wait_for(lambda: len(list(finished.glob("*.json"))) == 12, "results on the host")
    runs = tiny.results()
    assert len(set(keys(runs))) == len(runs) == 12
    attempts = {run["allocation"]["job"]: run["allocation"]["attempt"] for run in runs}
    assert {key for key in attempts if attempts[key]} == {first}
    assert tiny.results() == runs
    assert tiny.cbs("status").code == 0


def test_a_host_that_does_not_answer(fleet, tmp_path):
    """One line; its class uses the other hosts, and the fleet continues without it."""
    tiny = fleet(HOST, UNREACHABLE, jobs=2)
    done = tiny.cbs("submit")
    assert done.code == 0
    assert done.out == "submitted: 2 jobs in 2 batches\n"
    [line] = done.err.splitlines()
    assert line.startswith(f"cbs: excluded: {UNREACHABLE}: ssh: ")
    assert "Connection refused" in line
    finished = tmp_path / "host" / "results"
    wait_for(lambda: len(list(finished.glob("*.json"))) == 2, "results on the host")
    assert len(tiny.results()) == 2


def test_a_host_key_that_changed(fleet, tmp_path):
    """One line, and nothing is lost: the jobs are there when the key is accepted."""
    tiny = fleet(HOST, jobs=1)
    known = tmp_path / "sshd" / "known"
    right = known.read_text()
    wrong = make_key(tmp_path / "other").split()[1]
    known.write_text("".join(f"{line.split()[0]} ssh-ed25519 {wrong}\n"
                             for line in right.splitlines()))  # fmt: skip
    done = tiny.cbs("submit")
    assert done.code == 1
    [line] = done.lines
    assert line == (
        f"cbs: {HOST}: ssh: the host key has changed; verify it, then remove the old key with "
        "ssh-keygen -R"
    )
    assert not tiny.claims
    known.write_text("")
    [line] = tiny.cbs("submit").lines
    assert line == f"cbs: {HOST}: ssh: Host key verification failed."
    known.write_text(right)
    assert tiny.cbs("submit").out == "submitted: 1 job in 1 batch\n"
