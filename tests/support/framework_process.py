"""Runs scripts of tests in persistent processes, so that a framework is imported only once.

Frameworks set global state, so each has its own process; `cbs run` prepares the workloads of a
framework one after the other in one process, too.
"""

import atexit
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

import psutil

_LARGEST_BYTES = 2 * 2**30
_SERVER = """
import json, sys, traceback
answers = sys.stdout
sys.stdout = sys.stderr  # what scripts print is not an answer
for line in sys.stdin:
    request = json.loads(line)
    sys.argv = ["-c", *request["arguments"]]
    try:
        exec(compile(request["script"], "<script>", "exec"), {"__name__": "__main__"})
        answer = None
    except BaseException:
        answer = traceback.format_exc()
    answers.write(json.dumps(answer) + "\\n")
    answers.flush()
"""
_processes: dict[str, subprocess.Popen[str]] = {}


def run_script(
    script: str, arguments: Sequence[str], environment: Mapping[str, str], *, framework: str
) -> None:
    """Runs a script with these arguments where that framework's scripts run.

    The environment comes from the first script of the framework.

    Raises:
      RuntimeError: the script failed; the message is its traceback.
    """
    process = _processes.get(framework)
    if process is None or process.poll() is not None:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVER],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        _processes[framework] = process
        atexit.register(process.kill)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"script": script, "arguments": list(arguments)}) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(f"the process of {framework} ended with {process.wait()}")
    if psutil.Process(process.pid).memory_info().rss > _LARGEST_BYTES:
        # Compiled programs pile up; another process starts with none.
        process.kill()
        process.wait()
    if (failure := json.loads(answer)) is not None:
        raise RuntimeError(failure)
