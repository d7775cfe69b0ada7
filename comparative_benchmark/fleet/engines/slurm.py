"""Slurm, through `sbatch`, `squeue`, `scancel` and `scontrol`; accounting is not needed."""

import contextlib
import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from comparative_benchmark.errors import UsageError
from comparative_benchmark.fleet.engines import (
    EngineError,
    FullError,
    QueueEntry,
    QueueState,
    RefusedError,
    Submission,
    check_options,
)
from comparative_benchmark.fleet.features import Node
from comparative_benchmark.fleet.host_queue import batch_script
from openxla.benchmark.text import one_line

_ANSWERING_S = 60
# Administrators ask for at most about one submission a second.
_SECONDS_BETWEEN = 1.0
# When a waiting submitter looks again whether the queue has room.
_LATER_S = 900
# How often a job asks a silent controller whether it has its node for itself.
_TRIES, _BETWEEN_TRIES_S = 3, 10.0
# Most arguments of one `scancel`.
_MOST_IDS = 500
_FORMAT = "%j|%i|%T|%N|%e|%r"
_STATES = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD"), QueueState.PENDING),
    **dict.fromkeys(("RESV_DEL_HOLD", "SPECIAL_EXIT", "REQUEUE_FED"), QueueState.PENDING),
    **dict.fromkeys(("RUNNING", "COMPLETING", "SUSPENDED"), QueueState.RUNNING),
    **dict.fromkeys(("RESIZING", "SIGNALING", "STAGE_OUT", "STOPPED"), QueueState.RUNNING),
    **dict.fromkeys(("TIMEOUT", "DEADLINE"), QueueState.TIMEOUT),
    **dict.fromkeys(("NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "REVOKED"), QueueState.LOST),
    "CANCELLED": QueueState.CANCELLED,
    **dict.fromkeys(("COMPLETED", "FAILED", "OUT_OF_MEMORY"), QueueState.ENDED),
}
_DOWN = {
    *("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "NOT_RESPONDING"),
    *("NO_RESPOND", "UNKNOWN", "FUTURE", "INVAL", "INVALID_REG"),
}
# Reasons of every pending job; all others need an action by a person.
_USUAL = ("None", "Priority", "Resources", "BeginTime", "Dependency", "JobArrayTaskLimit")
# Slurm holds a job that it could not start; without an administrator, it never starts again.
_NEVER_STARTED = ("launch failed", "JobLaunchFailure", "JobHoldMaxRequeue", "job requeued in held")
# sbatch's messages if the user has as many jobs as allowed, and if it cannot reach the controller.
# The first names the limit that was exceeded, or all limits that there are.
_FULL = re.compile(
    r"submit_?jobs?(?:per\w+)?limit|temporarily unable to accept|maximum number of jobs"
    r"|resource temporarily unavailable",
    re.IGNORECASE,
)
_ANY_LIMIT = "job submit limit"
_NO_ANSWER = (
    *("unable to contact", "connection refused", "communication connection failure"),
    *("socket timed out", "zero bytes", "connection timed out", "transport endpoint"),
    "slurm backup controller in standby",
)


class SlurmEngine:
    """Submits each batch as one job for one node.

    Options:
      max_submitted: largest number of batches in the queue (default: no limit).
      seconds_between: time between submissions (default: 1).
      seconds_until_retry: time until a full queue is tried again (default: 900).
      access: options of `sbatch` for the job that tries again, e.g. an account.
    """

    def __init__(self, *, options: Mapping[str, Any], folder: Path, hosts: Sequence[str]) -> None:
        known = ("max_submitted", "seconds_between", "seconds_until_retry", "access")
        check_options(options, known, "slurm")
        self._most = _number(options, "max_submitted", None)
        self._between_s = _number(options, "seconds_between", _SECONDS_BETWEEN) or 0.0
        self._later_s = _number(options, "seconds_until_retry", _LATER_S) or 0.0
        self._access = options.get("access", [])
        if not isinstance(self._access, list) or not all(type(i) is str for i in self._access):
            raise UsageError("[options] for engine slurm: access must be a list of strings")
        self._folder = folder
        self._last_s = 0.0

    def nodes(self) -> list[Node]:
        """Returns the nodes of the cluster."""
        return parse_nodes(_slurm("scontrol", "show", "node", "--oneliner"))

    def submit(self, submission: Submission) -> str:
        """Submits a batch for one of its nodes."""
        time.sleep(max(0.0, self._last_s + self._between_s - time.monotonic()))
        self._last_s = time.monotonic()
        try:
            printed = _slurm(
                *sbatch_options(submission),
                *submission.access,
                script=batch_script(submission.environment, submission.setup, submission.file),
            )
        except _RefusedBySlurmError as error:
            reason = str(error)
            if is_full(reason):
                raise FullError(reason) from error
            raise RefusedError(reason) from error
        # "123" or "123;cluster"
        return printed.strip().partition(";")[0]

    def poll(self, prefix: str) -> dict[str, QueueEntry]:
        """Returns the batches of all submitters, with one `squeue`."""
        return parse_queue(self._listed(), prefix)

    def cancel(self, names: Sequence[str]) -> None:
        """Cancels batches."""
        wanted = set(names)
        # A submitting job has the name of former ones: all are cancelled.
        rows = (line.split("|") for line in self._listed().splitlines())
        ids = [row[1] for row in rows if row[0] in wanted]
        for start in range(0, len(ids), _MOST_IDS):
            # It is quiet about jobs that have ended.
            _slurm("scancel", "--quiet", *ids[start : start + _MOST_IDS])

    def room(self, queued: int) -> int | None:
        """Returns how many more batches the limits allow."""
        limits = [] if self._most is None else [int(self._most)]
        config = _slurm("scontrol", "show", "config")
        if match := re.search(r"^MaxJobCount\s*=\s*(\d+)", config, re.MULTILINE):
            limits.append(int(match[1]))
        return max(0, min(limits) - queued) if limits else None

    def continue_later(self, command: Sequence[str], name: str) -> bool:
        """Submits a small job that runs a command later.

        Only one such job runs at a time (`--dependency=singleton`), and only one waits.
        """
        waiting = ("--noheader", self._users(), "--states=PENDING", f"--name={name}")
        if _slurm("squeue", *waiting).strip():
            return True
        try:
            _slurm(
                *("sbatch", "--parsable", f"--job-name={name}", "--dependency=singleton"),
                *(f"--begin=now+{round(self._later_s)}", "--ntasks=1", "--time=10", "--requeue"),
                *(f"--output={self._folder / 'logs' / 'submitting.log'}", "--open-mode=append"),
                *self._access,
                script=f"#!/bin/sh\nexec {shlex.join(command)}\n",
            )
        except _RefusedBySlurmError:
            return False
        return True

    def collect(self, folder: Path) -> list[str]:
        """Returns nothing: the spool is on a shared file system."""
        return []

    def _listed(self) -> str:
        return _slurm("squeue", "--noheader", self._users(), "--states=all", f"-o{_FORMAT}")

    def _users(self) -> str:
        """Returns the option that selects the jobs of everybody who submitted to this spool."""
        users = {os.getuid()}
        with contextlib.suppress(OSError):
            users |= {path.stat().st_uid for path in (self._folder / "submitted").iterdir()}
        return "--user=" + ",".join(map(str, sorted(users)))


def is_full(reason: str) -> bool:
    """Returns whether sbatch refuses a batch because of the number of jobs in the queue.

    Its last message names all limits, such as time and size; versions since 2018 print the
    exceeded one before it.
    """
    if _FULL.search(reason):
        return True
    return _ANY_LIMIT in reason and not re.search(r"\b\w+Limit\b", reason)


def sbatch_options(submission: Submission) -> list[str]:
    """Returns the command line of `sbatch` for a batch, without the class's own options."""
    minutes = -(-submission.time_limit_s // 60)
    options = [
        *("sbatch", "--parsable", f"--job-name={submission.name}", "--nodes=1", "--requeue"),
        *(f"--time={minutes}", f"--output={submission.log}", "--open-mode=append"),
    ]
    if submission.share == "node":
        # Without --mem, some clusters give a job the memory of one CPU.
        options += ["--exclusive", "--mem=0"]
    if submission.others:
        options.append(f"--exclude={','.join(submission.others)}")
    return options


def parse_nodes(printed: str) -> list[Node]:
    """Parses `scontrol show node --oneliner`."""
    nodes = []
    for line in printed.splitlines():
        values = _values(line)
        name = values.get("NodeName")
        if not name:
            continue
        features = {item for item in values.get("AvailableFeatures", "").split(",") if item}
        features.discard("(null)")
        features.add("cpu")
        if values.get("ThreadsPerCore", "1") != "1":
            features.add("smt")
        properties = {"arch": values.get("Arch", "")}
        gres = values.get("Gres", "")
        if match := re.search(r"\bgpu(?::([\w.-]+))?:\d+", gres):
            features.add("gpu")
            if match[1]:
                properties["device"] = match[1]
        state = values.get("State", "")
        states = {*re.split(r"[+*~#$@^!%-]", state), *(["NOT_RESPONDING"] if "*" in state else [])}
        nodes.append(
            Node(
                name=name,
                features=frozenset(features),
                properties=properties,
                partitions=frozenset(values.get("Partitions", "").split(",")),
                up=not states & _DOWN,
            )
        )
    return nodes


def parse_queue(printed: str, prefix: str) -> dict[str, QueueEntry]:
    """Parses `squeue` with the format `_FORMAT`; the first line of a name counts.

    Slurm lists a job that was requeued once, but ids are used again: an old job with the same name
    does not exist, because names of batches are never used twice.
    """
    entries: dict[str, QueueEntry] = {}
    for line in printed.splitlines():
        if not line.startswith(prefix):
            continue
        name, number, state, node, end, reason = (line.split("|", 5) + [""] * 5)[:6]
        known = _STATES.get(state, QueueState.PENDING)
        if known is QueueState.PENDING and reason.startswith(_NEVER_STARTED):
            known = QueueState.LOST
        entries.setdefault(
            name,
            QueueEntry(
                state=known,
                node=node or None,
                reason="" if reason in _USUAL else reason,
                id=number,
                # The planned end of a batch that runs.
                ended_at=float(end) if known is QueueState.ENDED and end.isdecimal() else None,
            ),
        )
    return entries


def exclusive_use(environment: Mapping[str, str] = os.environ) -> tuple[bool | None, str]:
    """Returns whether this job has its node for itself, and the figures if it has not.

    Compares what the job has with what the node has: a partition's flag `OverSubscribe=NO` allows
    other jobs on the other CPUs.
    """
    job, node = environment.get("SLURM_JOB_ID"), environment.get("SLURMD_NODENAME")
    if not job or not node:
        return None, ""
    for tries_left in reversed(range(_TRIES)):
        try:
            mine = _values(_slurm("scontrol", "show", "job", job, "--oneliner"))
            whole = _values(_slurm("scontrol", "show", "node", node, "--oneliner"))
            return compare_with_node(mine, whole)
        except EngineError:
            time.sleep(_BETWEEN_TRIES_S if tries_left else 0)
    return None, ""


def compare_with_node(job: Mapping[str, str], node: Mapping[str, str]) -> tuple[bool | None, str]:
    """Compares the CPUs and GPUs of a job with its node; see `exclusive_use`."""
    mine = job.get("NumCPUs", "")
    # CPUs that Slurm keeps for its daemons belong to no job.
    whole = node.get("CPUEfctv") or node.get("CPUTot", "")
    if not mine.isdecimal() or not whole.isdecimal() or job.get("NumNodes", "1") != "1":
        return None, ""
    if int(mine) < int(whole):
        return False, f"{mine} of {whole} CPUs"
    there = _gpus(node.get("CfgTRES", ""))
    here = _gpus(job.get("AllocTRES") or job.get("TRES", ""))
    if here < there:
        return False, f"{here} of {there} GPUs"
    return True, ""


class _RefusedBySlurmError(EngineError):
    """A command of Slurm failed, though the controller answers; the message is its own."""


def _number(options: Mapping[str, Any], name: str, default: float | None) -> float | None:
    value: float | None = options.get(name, default)
    if value is not None and (type(value) not in (int, float) or not 0 <= value <= 10**6):
        raise UsageError(
            f"[options] for engine slurm: {name} must be a number from 0 to 1000000, got {value!r}"
        )
    return value


def _gpus(resources: str) -> int:
    """Returns the number of GPUs in a list of resources, which may count only each type."""
    if match := re.search(r"gres/gpu=(\d+)", resources):
        return int(match[1])
    return sum(map(int, re.findall(r"gres/gpu:[^,=]+=(\d+)", resources)))


def _values(line: str) -> dict[str, str]:
    """Parses `Name=value Name=value`; a value that contains spaces ends at the first one."""
    return {
        name: value for name, _, value in (word.partition("=") for word in line.split()) if value
    }


def _slurm(program: str, *arguments: str, script: str | None = None) -> str:
    """Runs a command of Slurm and returns its output.

    Raises:
      EngineError: it is not installed, or the controller does not answer.
      _RefusedBySlurmError: another failure.
    """
    try:
        done = subprocess.run(
            [program, *arguments],
            env={**os.environ, "SLURM_TIME_FORMAT": "%s"},
            input=script if script is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWERING_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise EngineError(f"{program} is not installed; engine slurm requires it") from error
    except subprocess.TimeoutExpired as error:
        # Bytes even in text mode, but not in all versions of Python.
        printed: Any = error.stderr or b""
        waits = _reason(printed if isinstance(printed, str) else printed.decode(errors="replace"))
        # sbatch waits for minutes if the controller has as many jobs as it can manage.
        if is_full(waits):
            raise _RefusedBySlurmError(f"{program}: {waits}") from error
        raise EngineError(f"{program} did not respond within {_ANSWERING_S} s") from error
    if done.returncode == 0:
        return done.stdout
    reason = f"{program}: {_reason(done.stderr) or f'exit code {done.returncode}'}"
    if any(word in reason.lower() for word in _NO_ANSWER):
        raise EngineError(reason)
    raise _RefusedBySlurmError(reason)


def _reason(printed: str) -> str:
    """Returns the messages of a command of Slurm, in one line; the first is the most precise."""
    lines = [re.sub(r"^\w+: (?:error: |fatal: )?", "", line) for line in printed.splitlines()]
    messages = [line for line in lines if line.strip() and not line.startswith("Try ")]
    return one_line("; ".join(dict.fromkeys(messages)), 300)
