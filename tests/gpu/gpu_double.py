"""A double of the suite and of a GPU: it writes the files that the steps of the check write.

`python gpu_double.py ARGUMENTS OF A STEP`. `$GPU_DOUBLE` plants a fault, as `STEP=FAULT`: `exit`
exits with an error, `hang` never ends and leaves an orphan, `wrong` writes a wrong result, `lost`
leaves half a file and is killed by a signal.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_OK = {"relative_error": 3e-7, "allowed_relative_error": 2e-6, "case": "models/A/inputs/B"}


def main(arguments):
    line = " ".join(arguments)
    step = next(name for sign, name in SIGNS if sign in line)
    faulty, _, fault = os.environ["GPU_DOUBLE"].partition("=")
    fault = fault if step == faulty else None
    path = Path(next((b for a, b in itertools.pairwise(arguments) if a in OUTPUTS), "nothing"))
    if step == "tests":
        path = Path(arguments[-1].partition("=")[2])
    print(f"the double of {step}", flush=True)
    if fault == "exit":
        return 1
    if fault == "hang":
        # In a new session, like a daemon: no process may outlive its step.
        subprocess.Popen(["sleep", "3600.0625"], start_new_session=True)
        time.sleep(3600)
    if fault == "lost":
        path.write_text('{"cells": [')
        os.kill(os.getpid(), signal.SIGKILL)
    return WRITERS.get(step, nothing)(path, wrong=fault == "wrong")


def nothing(path, *, wrong):
    return 0


def matrix(path, *, wrong):
    cells = [
        {"label": "bert", "framework": framework, "competitor": competitor, "status": "ok", **_OK}
        for framework, competitor in (("pytorch", "pt_inductor:eager"), ("jax", "jax_xla:xla"))
    ]
    lacking = {"relative_error": None, "allowed_relative_error": None, "case": "models/A/inputs/B"}
    foreign = {**cells[0], **lacking, "framework": "jax", "status": "unsupported"}
    cells.append({**foreign, "reason": "pt_inductor takes pytorch models"})
    absent = {**foreign, "competitor": "iree:cuda", "reason": "IREE finds no cuda device | <b>"}
    cells.append(absent)
    if wrong:
        cells[0] |= {"status": "wrong_output", "phase": "verify_last_run", "reason": "off by 3"}
    path.write_text(json.dumps({"cells": cells}))
    return 2 if wrong else 0


def races(path, *, wrong):
    """Adds records that `gpu_records.py` has made: making them takes longer than a test."""
    made = json.loads(Path(os.environ["GPU_DOUBLE_RECORDS"]).read_text())
    known = json.loads(path.read_text())["benchmarks"] if path.exists() else []
    found = made["wrong" if wrong else "good"]
    for item in found:
        model = f"W{len(known)}"
        item["definition"] |= {"model": model, "benchmark_name": f"models/{model}/inputs/X"}
    path.write_text(json.dumps({**made["document"], "benchmarks": [*known, *found]}))
    return 1 if wrong else 0


def tests(path, *, wrong):
    failure = '<failure message="assert 1 == 2">Tr</failure>' if wrong else ""
    path.write_text(
        '<testsuites><testsuite><testcase classname="a" name="first"/>'
        f'<testcase classname="a" name="second">{failure}</testcase>'
        '<testcase classname="a" name="third"><skipped message="no fp8"/></testcase>'
        "</testsuite></testsuites>"
    )
    return 1 if wrong else 0


def ceilings(path, *, wrong):
    text = json.dumps(json.loads(Path(os.environ["GPU_DOUBLE_RECORDS"]).read_text())["ceilings"])
    root = Path(os.environ["CBS_ROOT_DIR"])
    root.mkdir(parents=True, exist_ok=True)
    (root / "ceilings-nvidia-double.json").write_text(text)
    return 0


def faults(path, *, wrong):
    found = {"fault": "hang", "expected": "timeout", "phase": "first_run", "reason": "too long"}
    found |= {"status": "crashed" if wrong else "timeout", "right": not wrong}
    path.write_text(json.dumps({"faults": [found]}))
    return 1 if wrong else 0


def pairs(path, *, wrong):
    verdicts = [{"kind": kind, "half_width": 0.01, "verdict": "same"} for kind in KINDS]
    kinds = {kind: {"pairs": 1, "right": 1, "wrong": 0, "incomparable": 0} for kind in KINDS}
    if wrong:
        kinds["equal"] |= {"right": 0, "wrong": 1}
        kinds["slowed"] |= {"right": 0, "incomparable": 1}
        verdicts.append({"kind": "slowed", "half_width": None, "verdict": "incomparable"})
        verdicts[-1]["reason"] = "baseline: crashed"
    path.write_text(
        json.dumps({"wanted": 10, "kinds": kinds, "slow_down": 0.03, "verdicts": verdicts})
    )
    return 1 if wrong else 0


KINDS = ("equal", "slowed")
OUTPUTS = ("-o", "--answer")
# Steps by a text in their commands; the first match counts.
SIGNS = (
    ("nvidia-smi", "environment"),
    ("comparative_benchmark backends", "environment"),
    ("--ceilings", "ceilings"),
    ("comparative_benchmark doctor", "environment"),
    ("comparative_benchmark parity", "matrix"),
    ("-m pytest", "tests"),
    ("gpu_check.races prepare", "prepare"),
    ("gpu_check.faults", "faults"),
    ("gpu_check.races pairs", "pairs"),
    ("artifacts lock", "iree-programs"),
    ("--exported-programs", "iree-programs"),
    ("BERT_TINY_FP32", "measure"),
    ("comparative_benchmark run", "races"),
)
WRITERS = {"matrix": matrix, "tests": tests, "faults": faults, "pairs": pairs}
WRITERS |= {"measure": races, "races": races, "ceilings": ceilings}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
