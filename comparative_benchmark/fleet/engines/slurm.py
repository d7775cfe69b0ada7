"""Slurm, through `sbatch`, `squeue`, `scancel` and `scontrol`; accounting is not needed."""

import getpass
import os
import re
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from comparative_benchmark.fleet.host_queue import interpreter
from openxla.benchmark.text import one_line

_ANSWERING_S = 60
# Administrators ask for at most about one submission a second.
_SECONDS_BETWEEN = 1.0
# When a waiting submitter looks again whether the queue has room.
_LATER = "now+15minutes"
_FORMAT = "%j|%i|%T|%N|%r"
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
_DOWN = ("DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "NOT_RESPONDING", "POWER_DOWN")
# sbatch's messages if the user has as many jobs as allowed, and if it cannot reach the controller.
_FULL = ("submitjob", "submit limit", "maxsubmit", "maximum number of jobs")
_NO_ANSWER = (
    *("unable to contact", "connection refused", "communication connection failure"),
    *("socket timed out", "zero bytes", "connection timed out", "temporarily unable"),
    *("transport endpoint", "slurm backup controller in standby"),
)


class SlurmEngine:
    """Submits each batch as one job for one node.

    Options:
      max_submitted: largest number of batches in the queue (default: no limit).
      seconds_between: time between submissions (default: 1).
    """

    def __init__(self, *, options: Mapping[str, Any], folder: Path, hosts: Sequence[str]) -> None:
        check_options(options, ("max_submitted", "seconds_between"), "slurm")
        self._most: int | None = options.get("max_submitted")
        self._between_s = float(options.get("seconds_between", _SECONDS_BETWEEN))
        self._folder = folder
        self._last_s = 0.0

    def nodes(self) -> list[Node]:
        """Returns the nodes of the cluster."""
        return parse_nodes(_slurm("scontrol", "show", "node", "--oneliner"))

    def submit(self, submission: Submission) -> str:
        """Submits a batch for one of its nodes."""
        time.sleep(max(0.0, self._last_s + self._between_s - time.monotonic()))
        self._last_s = time.monotonic()
        command = [*interpreter(submission.environment), "fleet", "node", str(submission.file)]
        script = f"#!/bin/sh\nexec {shlex.join(command)}\n"
        try:
            printed = _slurm(*sbatch_options(submission), *submission.access, script=script)
        except _RefusedBySlurmError as error:
            reason = str(error)
            if any(word in reason.lower() for word in _FULL):
                raise FullError(reason) from error
            raise RefusedError(reason) from error
        # "123" or "123;cluster"
        return printed.strip().partition(";")[0]

    def poll(self, prefix: str) -> dict[str, QueueEntry]:
        """Returns this user's batches, with one `squeue`."""
        user = getpass.getuser()
        printed = _slurm("squeue", "--noheader", f"--user={user}", "--states=all", f"-o{_FORMAT}")
        return parse_queue(printed, prefix)

    def cancel(self, names: Sequence[str]) -> None:
        """Cancels batches by their names."""
        for name in names:
            _slurm("scancel", f"--user={getpass.getuser()}", f"--name={name}")

    def room(self, queued: int) -> int | None:
        """Returns how many more batches the limits allow."""
        limits = [] if self._most is None else [self._most]
        if match := re.search(r"^MaxJobCount\s*=\s*(\d+)", self._config(), re.MULTILINE):
            limits.append(int(match[1]))
        return max(0, min(limits) - queued) if limits else None

    def continue_later(self, command: Sequence[str], name: str) -> bool:
        """Submits a small job that runs a command in a quarter of an hour.

        Only one such job runs at a time (`--dependency=singleton`).
        """
        _slurm(
            *("sbatch", "--parsable", f"--job-name={name}", "--dependency=singleton"),
            *(f"--begin={_LATER}", "--ntasks=1", "--time=10", "--requeue"),
            f"--output={self._folder / 'logs' / 'submitting.log'}",
            script=f"#!/bin/sh\nexec {shlex.join(command)}\n",
        )
        return True

    def collect(self, folder: Path) -> list[str]:
        """Returns nothing: the spool is on a shared file system."""
        return []

    def _config(self) -> str:
        return _slurm("scontrol", "show", "config")


def sbatch_options(submission: Submission) -> list[str]:
    """Returns the command line of `sbatch` for a batch, without the class's own options."""
    minutes = -(-submission.time_limit_s // 60)
    options = [
        *("sbatch", "--parsable", f"--job-name={submission.name}", "--nodes=1", "--requeue"),
        *(f"--time={minutes}", f"--output={submission.log}", "--open-mode=append"),
    ]
    if submission.share == "node":
        options.append("--exclusive")
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
        states = re.split(r"[+*~#$@^!%-]", values.get("State", ""))
        nodes.append(
            Node(
                name=name,
                features=frozenset(features),
                properties=properties,
                up=not any(state in _DOWN for state in states),
            )
        )
    return nodes


def parse_queue(printed: str, prefix: str) -> dict[str, QueueEntry]:
    """Parses `squeue` with the format `%j|%i|%T|%N|%r`; the first line of a name counts.

    Slurm lists a job that was requeued once, but ids are used again: an old job with the same name
    does not exist, because names of batches are never used twice.
    """
    entries: dict[str, QueueEntry] = {}
    for line in printed.splitlines():
        if not line.startswith(prefix):
            continue
        name, number, state, node, reason = (line.split("|", 4) + [""] * 4)[:5]
        known = _STATES.get(state, QueueState.PENDING)
        entries[name] = QueueEntry(state=known, node=node or None, reason=reason, id=number)
    return entries


def exclusive_use(environment: Mapping[str, str] = os.environ) -> tuple[bool | None, str]:
    """Returns whether this job has its node for itself, and the figures if it has not.

    Compares what the job has with what the node has: a partition's flag `OverSubscribe=NO` allows
    other jobs on the other CPUs.
    """
    job, node = environment.get("SLURM_JOB_ID"), environment.get("SLURMD_NODENAME")
    if not job or not node:
        return None, ""
    try:
        mine = _values(_slurm("scontrol", "show", "job", job, "--oneliner"))
        whole = _values(_slurm("scontrol", "show", "node", node, "--oneliner"))
    except (EngineError, _RefusedBySlurmError):
        return None, ""
    return compare_with_node(mine, whole)


def compare_with_node(job: Mapping[str, str], node: Mapping[str, str]) -> tuple[bool | None, str]:
    """Compares the CPUs and GPUs of a job with those of its node; see `exclusive_use`."""
    if not job.get("NumCPUs", "").isdecimal() or not node.get("CPUTot", "").isdecimal():
        return None, ""
    if int(job["NumCPUs"]) < int(node["CPUTot"]):
        return False, f"{job['NumCPUs']} of {node['CPUTot']} CPUs"
    there = _gpus(node.get("CfgTRES", ""))
    here = _gpus(job.get("AllocTRES") or job.get("TRES", ""))
    if here < there:
        return False, f"{here} of {there} GPUs"
    return True, ""


class _RefusedBySlurmError(Exception):
    """A command of Slurm failed; the message is its own."""


def _gpus(resources: str) -> int:
    match = re.search(r"gres/gpu=(\d+)", resources)
    return int(match[1]) if match else 0


def _values(line: str) -> dict[str, str]:
    """Parses `Name=value Name=value`; only a value at the end may contain spaces."""
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
            input=script if script is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWERING_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise EngineError(
            f"{program} is not installed; engine slurm needs Slurm's client"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{program} has not answered for {_ANSWERING_S} s") from error
    if done.returncode == 0:
        return done.stdout
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    reason = lines[-1] if lines else f"exit code {done.returncode}"
    reason = one_line(re.sub(r"^\w+: (?:error: )?", "", reason), 300)
    if any(word in done.stderr.lower() for word in _NO_ANSWER):
        raise EngineError(f"{program}: {reason}")
    raise _RefusedBySlurmError(f"{program}: {reason}")
