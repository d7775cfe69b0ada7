"""Engines for machines without a scheduler: this machine, and hosts that ssh reaches."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.engines import (
    EngineError,
    QueueEntry,
    QueueState,
    RefusedError,
    Submission,
    check_options,
)
from comparative_benchmark.fleet.features import Node, this_node
from comparative_benchmark.fleet.host_queue import HostQueue, HostState, Queued, interpreter
from comparative_benchmark.fleet.spool import Spool, read_batch
from openxla.benchmark.files import write_atomically
from openxla.benchmark.text import one_line

_CONNECTING_S, _ANSWERING_S = 10, 120
_ALREADY_THERE = ("results", "ends")
# Exit code of ssh for its own errors.
_SSH_FAILED = 255
_MOST_CONNECTIONS = 16


class LocalEngine:
    """Runs batches on this machine, one after another."""

    def __init__(self, *, options: Mapping[str, Any], folder: Path, hosts: Sequence[str]) -> None:
        check_options(options, (), "local")
        self._queue = HostQueue(folder)

    def nodes(self) -> list[Node]:
        """Returns this machine."""
        return [this_node()]

    def submit(self, submission: Submission) -> str:
        """Adds a batch to the queue of this machine."""
        python = interpreter(submission.environment)[0]
        if submission.setup is None and not os.access(python, os.X_OK):
            raise RefusedError(f"environment {submission.environment} has no interpreter {python}")
        queued = Queued(
            name=submission.name,
            time_limit_s=submission.time_limit_s,
            python=submission.environment,
            setup=submission.setup,
            log=str(submission.log),
        )
        self._queue.submit(read_batch(submission.file), queued)
        return f"{os.uname().nodename}:{submission.name}"

    def poll(self, prefix: str) -> dict[str, QueueEntry]:
        """Returns the batches of this machine's queue."""
        return _entries(self._queue.states(prefix), os.uname().nodename)

    def cancel(self, names: Sequence[str]) -> None:
        """Removes batches, and ends those that run."""
        self._queue.cancel(names)

    def room(self, queued: int) -> int | None:
        """Returns None: the queue has no limit."""
        return None

    def continue_later(self, command: Sequence[str], name: str) -> bool:
        """Returns False: nothing has to continue."""
        return False

    def collect(self, folder: Path) -> list[str]:
        """Returns nothing: the files are on this machine."""
        return []


class SshEngine:
    """Runs batches on hosts that ssh reaches, one after another on each.

    The hosts need the suite, but no shared file system: batches are sent, finished files fetched.

    Options:
      ssh: arguments of ssh, e.g. `["-p", "2222"]`.
      folder: folder on the hosts (default: in `~/.cache`, named after the fleet and the spool).
      python: interpreter of the suite on the hosts (default: the submitter's).
    """

    def __init__(self, *, options: Mapping[str, Any], folder: Path, hosts: Sequence[str]) -> None:
        check_options(options, ("ssh", "folder", "python"), "ssh")
        if not hosts:
            raise UsageError("engine ssh requires hosts = [...] in each [[class]]")
        self._arguments: list[str] = list(options.get("ssh", ()))
        self._spool = Spool(folder)
        # A campaign is a folder within its fleet's folder.
        name = f"{folder.parent.name}-{folder.name}-{self._spool.place}"
        self._folder = options.get("folder", f"~/.cache/common-benchmark-suite/fleet/{name}")
        self._python = str(options.get("python", sys.executable))
        # Which host has which batch, to know the batches of a host that does not answer.
        self._sent = folder / "sent"
        self._hosts = tuple(dict.fromkeys(hosts))
        self._load: dict[str, int] = dict.fromkeys(self._hosts, 0)

    def nodes(self) -> list[Node]:
        """Returns all hosts; those that do not answer are down."""
        answers = self._ask_all(self._hosts, {"verb": "node"})
        nodes = []
        for host, reply in answers.items():
            if isinstance(reply, EngineError):
                nodes.append(Node(name=host, up=False, problem=str(reply)))
            else:
                features = frozenset(reply["features"])
                nodes.append(Node(name=host, features=features, properties=reply["properties"]))
        if answers and not any(node.up for node in nodes):
            raise next(reply for reply in answers.values() if isinstance(reply, EngineError))
        return nodes

    def submit(self, submission: Submission) -> str:
        """Sends a batch to the allowed host with the fewest batches of this command."""
        host = min(submission.nodes, key=lambda name: self._load.get(name, 0))
        self._load[host] = self._load.get(host, 0) + 1
        request = {
            "verb": "submit",
            "batch": msgspec.to_builtins(read_batch(submission.file)),
            "python": submission.environment,
            "setup": submission.setup,
            "time_limit_s": submission.time_limit_s,
            "node": host,
        }
        self._sent.joinpath(host).mkdir(parents=True, exist_ok=True)
        self._sent.joinpath(host, submission.name).touch()
        self._ask(host, request)
        return f"{host}:{submission.name}"

    def poll(self, prefix: str) -> dict[str, QueueEntry]:
        """Asks all hosts at once; batches of hosts that do not answer stay pending.

        Raises:
          EngineError: no host answers.
        """
        answers = self._ask_all(self._hosts, {"verb": "poll", "prefix": prefix})
        entries: dict[str, QueueEntry] = {}
        failures = [reply for reply in answers.values() if isinstance(reply, EngineError)]
        if len(failures) == len(answers):
            raise failures[0]
        for host, reply in answers.items():
            if isinstance(reply, EngineError):
                entries |= {
                    path.name: QueueEntry(state=QueueState.PENDING, node=host, reason=str(reply))
                    for path in self._sent.joinpath(host).glob(f"{prefix}*")
                }
                continue
            states = {name: msgspec.convert(item, HostState) for name, item in reply.items()}
            entries |= _entries(states, host)
        return entries

    def cancel(self, names: Sequence[str]) -> None:
        """Removes batches from the queues of the hosts that have them."""
        hosts = [h for h in self._hosts if any((self._sent / h / name).exists() for name in names)]
        answers = self._ask_all(hosts, {"verb": "cancel", "names": list(names)})
        for reply in answers.values():
            if isinstance(reply, EngineError):
                raise reply

    def room(self, queued: int) -> int | None:
        """Returns None: the queues have no limit."""
        return None

    def continue_later(self, command: Sequence[str], name: str) -> bool:
        """Returns False: nothing has to continue."""
        return False

    def collect(self, folder: Path) -> list[str]:
        """Fetches finished files of all hosts; returns a line for each that does not answer."""
        complaints = []
        waiting = list(self._hosts)
        while waiting:
            # A damaged file that was set aside is not fetched again.
            have = [
                f"{kind}/{path.name.removesuffix('.damaged')}"
                for kind in _ALREADY_THERE
                for path in (folder / kind).glob("*")
            ]
            answers = self._ask_all(waiting, {"verb": "fetch", "have": have})
            waiting = []
            for host, reply in answers.items():
                if isinstance(reply, EngineError):
                    complaints.append(str(reply))
                    continue
                # An answer has room for some files only.
                waiting += [host] if reply else []
                for name, content in reply.items():
                    kind, _, file = name.partition("/")
                    if kind in _ALREADY_THERE and "/" not in file:
                        write_atomically(folder / kind / file, content)
        return complaints

    def _ask_all(self, hosts: Sequence[str], request: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer of each host, or its `EngineError`."""

        def ask(host: str) -> Any:
            try:
                return self._ask(host, request)
            except EngineError as error:
                return error

        with ThreadPoolExecutor(_MOST_CONNECTIONS) as pool:
            return dict(zip(hosts, pool.map(ask, hosts), strict=True))

    def _ask(self, host: str, request: dict[str, Any]) -> Any:
        command = [
            *("ssh", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={_CONNECTING_S}"),
            *(*self._arguments, "--", host),
            # The host's shell splits it; and expands a tilde.
            re.sub(r"^'~/", "~/'", shlex.quote(self._python)),
            *("-P", "-m", "comparative_benchmark", "fleet", "agent"),
        ]
        try:
            done = subprocess.run(
                command,
                input=json.dumps({"folder": self._folder, **request}),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_ANSWERING_S,
                check=False,
            )
        except FileNotFoundError as error:
            raise EngineError("ssh is not installed") from error
        except subprocess.TimeoutExpired as error:
            raise EngineError(f"{host}: no response within {_ANSWERING_S} s") from error
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        if done.returncode:
            who = "ssh" if done.returncode == _SSH_FAILED else "the agent"
            last = _reason(lines) or f"exit code {done.returncode}"
            raise EngineError(one_line(f"{host}: {who}: {last}", 300))
        try:
            return json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError) as error:
            raise EngineError(f"{host}: the agent did not send a valid response") from error


def _reason(lines: Sequence[str]) -> str:
    """Returns the line of ssh's output with the reason; a changed key has a long text around it."""
    for line in lines:
        if "HOST IDENTIFICATION HAS CHANGED" in line:
            return "the host key has changed; verify it, then remove the old key with ssh-keygen -R"
    return lines[-1] if lines else ""


def _entries(states: Mapping[str, HostState], host: str) -> dict[str, QueueEntry]:
    return {
        name: QueueEntry(
            state=QueueState(state.state),
            node=None if state.state == "pending" else host,
            reason=state.reason or (f"exit code {state.code}" if state.code else ""),
            ended_at=state.ended_at,
        )
        for name, state in states.items()
    }
