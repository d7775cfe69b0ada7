"""Runs the planted faults on a device and judges how each trial ended.

`python -m comparative_benchmark.gpu_check.planted.faults --device D --scratch DIR --answer FILE`
writes a JSON list with an object for each fault: name, what was expected, what came, whether that
is right.
"""

import argparse
import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from comparative_benchmark.gpu_check.planted.suite import FAULTS, GOOD_CASE, model_name
from comparative_benchmark.machine.gpu_contention import Ends, reports_users
from comparative_benchmark.results.record import Contention, Result, Status
from comparative_benchmark.results.store import ResultsFile, write_atomically

_SUITE = "comparative_benchmark.gpu_check.planted.suite"
FOREIGN = "foreign-process"
_LACKING = "lacking"


@attrs.frozen(kw_only=True)
class Found:
    """How a fault ended.

    Attributes:
      fault: its name; `good` is the model without one, run before all others.
      expected: status that it must have.
      status, phase, reason: that it had.
      right: whether the fault cost its own trial and nothing else.
    """

    fault: str
    expected: str
    status: str
    phase: str | None
    reason: str | None
    right: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all; returns 0 if each ended as it must."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--scratch", required=True, type=Path)
    parser.add_argument("--answer", required=True, type=Path)
    parser.add_argument(
        "--first-run",
        type=int,
        default=20,
        help="seconds for a first run; this limit ends the hang",
    )
    options = parser.parse_args(arguments)
    planted = options.scratch / "faults.json"
    cases = f"{GOOD_CASE}|models/PLANTED_.+"
    run(options.device, cases, planted, first_run_s=options.first_run, iterations=20)
    found = judge(ResultsFile(planted).results())
    _keep(options.answer, found)
    disturbed = options.scratch / "foreign.json"
    with busy_neighbour(options.device):
        # Long enough for the kernel's ticks to tell who took CPUs.
        run(options.device, GOOD_CASE, disturbed, first_run_s=options.first_run, iterations=500)
    found.append(judge_foreign(ResultsFile(disturbed).results()))
    _keep(options.answer, found)
    for item in found:
        print(f"{item.fault}: {item.status} {'(right)' if item.right else '(WRONG)'} {item.reason}")
    return 0 if all(item.right for item in found) else 1


def run(device: str, cases: str, output: Path, *, first_run_s: int, iterations: int) -> None:
    """Runs cases eagerly on a device; their failures are what is asked for."""
    command = [
        *(sys.executable, "-P", "-m", "comparative_benchmark", "run"),
        *("--backend", "pt_inductor:eager", "--suite", _SUITE, "-name", cases),
        *("-device", device, "-w", "2", "-iter", str(iterations), "-o", str(output)),
        *("--deadline", f"first_run={first_run_s}", "--verbose"),
    ]
    subprocess.run(command, check=False)


def judge(results: Sequence[Result]) -> list[Found]:
    """Returns how each fault ended, the good model first; one that is lacking is not right."""
    by_model = {result.definition.model: result for result in results}
    due = {"good": (GOOD_CASE.split("/")[1], "ok")}
    due |= {fault: (model_name(fault), status) for fault, status in FAULTS.items()}
    found = []
    for fault, (model, expected) in due.items():
        result = by_model.get(model)
        status = result.status.value if result else _LACKING
        found.append(
            Found(
                fault=fault,
                expected=expected,
                status=status,
                phase=(result.phase or None) if result else None,
                reason=(result.reason or None) if result else None,
                right=status == expected,
            )
        )
    return found


def judge_foreign(results: Sequence[Result]) -> Found:
    """Returns whether a trial beside a busy process is ok, and known to have been disturbed.

    In a container the driver may not tell whose processes are on the GPU: then it must say that it
    does not know.
    """
    result = results[-1] if results else None
    contention = (result.measured.contention if result else None) or Contention()
    noticed = contention.contended is True or bool(contention.contended_blocks)
    reasons = ", ".join(contention.reasons) or (result.reason if result else None) or None
    unknowable = contention.contended is None and result is not None and _hides_users(result)
    said = "contended" if noticed else "unknown" if unknowable else "not noticed"
    return Found(
        fault=FOREIGN,
        expected="ok, contended",
        status=f"{result.status.value if result else _LACKING}, {said}",
        phase=(result.phase or None) if result else None,
        reason=reasons,
        right=result is not None and result.status is Status.OK and (noticed or unknowable),
    )


def _hides_users(result: Result) -> bool:
    """Returns whether the driver did not report, for a block, which processes used the GPU."""
    return any(
        block.conditions is not None
        and block.conditions.gpus_at_end
        and not reports_users(Ends(block.conditions.gpus_at_start, block.conditions.gpus_at_end))
        for process in result.measured.processes or ()
        for block in process.blocks
    )


@contextlib.contextmanager
def busy_neighbour(device: str) -> Iterator[None]:
    """Keeps the device busy from processes that are not ours."""
    module = "comparative_benchmark.gpu_check.planted.neighbour"
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", module, device], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it says when it is at work
        yield
    finally:
        process.kill()
        process.wait()


def _keep(path: Path, found: Sequence[Found]) -> None:
    write_atomically(path, {"faults": [attrs.asdict(item) for item in found]})


if __name__ == "__main__":
    raise SystemExit(main())
