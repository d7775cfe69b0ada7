"""Planted faults: each must end its own trial as expected, and affect nothing else.

    python -m gpu_check.faults --device D --scratch DIR --answer FILE

runs tiny BERT in PyTorch with one fault at a time. It writes the name, the expected and the actual
status of each fault as JSON. On a CPU, each fault has a stand-in that ends a trial in the same way,
for rehearsals.

The models share the workload of the suite's tiny BERT. Select that model too, because it makes the
truth; otherwise the first fault would have to. The last model has no fault, and shows that the
device still works. Workers import this module, so only the functions that they call import torch.
"""

import argparse
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from comparative_benchmark.analysis.machine.gpu_state import Ends, reports_users
from comparative_benchmark.results.record import Contention, Result, Status
from comparative_benchmark.results.results_file import ResultsFile, write_atomically
from openxla.benchmark import devices, testdata
from openxla.benchmark.def_types import (
    BenchmarkCase,
    Model,
    ModelFrameworkType,
    ModelImplementation,
    Parameters,
)

GOOD_CASE = "models/BERT_TINY_FP32_PT_32XI32_BATCH1/inputs/INPUT_DATA_MODEL_DEFAULT"
FOREIGN = "foreign-process"
_LACKING = "lacking"
_CHUNK_BYTES = 1 << 30
_MORE_THAN_ANY_MACHINE_HAS = 1 << 50
# Clock cycles of a kernel that outlasts every deadline, and of one that is killed.
_FOREVER, _LONG = 1 << 62, 1 << 36
_KILL_AFTER_S = 0.5


def _do_nothing(_: Any) -> None:
    pass


def _exhaust_memory(inputs: Any) -> None:
    import torch

    if not inputs.is_cuda:
        torch.empty(_MORE_THAN_ANY_MACHINE_HAS, dtype=torch.uint8)
    hoard = []
    while True:  # a single request that is too large would be refused before memory is full
        hoard.append(torch.empty(_CHUNK_BYTES, dtype=torch.uint8, device=inputs.device))


def _fail_in_kernel(inputs: Any) -> None:
    """Reads past the end of a table; on a GPU the call returns and the kernel fails later."""
    import torch

    table = torch.zeros(4, device=inputs.device)
    table[torch.full((8,), 1000, device=inputs.device)]


def _break_context(inputs: Any) -> None:
    """Swallows the error of a kernel; on a GPU, every later call in this process fails."""
    import torch

    try:
        _fail_in_kernel(inputs)
        if inputs.is_cuda:
            torch.cuda.synchronize()
    except (RuntimeError, IndexError) as error:
        print("swallowed:", error)
        if not inputs.is_cuda:
            raise RuntimeError("rehearsal of a permanently broken context") from error


def _die_in_kernel(inputs: Any) -> None:
    def kill() -> None:
        time.sleep(_KILL_AFTER_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    _occupy(inputs, _LONG)


def _hang(inputs: Any) -> None:
    _occupy(inputs, _FOREVER)


def _occupy(inputs: Any, cycles: int) -> None:
    """Runs a kernel of that many clock cycles on a GPU; sleeps on a CPU."""
    import torch

    if inputs.is_cuda:
        torch.cuda._sleep(cycles)  # noqa: SLF001  # PyTorch's own tests use it
    else:
        time.sleep(3600)


@attrs.frozen
class Fault:
    """A planted fault.

    Attributes:
      status: expected status of its trial.
      plant: called with the first input before each run of the model.
    """

    status: str
    plant: Callable[[Any], None]


# `cbs run` runs them in this order.
FAULTS = {
    "memory": Fault("out_of_memory", _exhaust_memory),
    "kernel-error": Fault("failed", _fail_in_kernel),
    "broken-context": Fault("failed", _break_context),
    "killed-in-kernel": Fault("crashed", _die_in_kernel),
    "hang": Fault("timeout", _hang),
    "none": Fault("ok", _do_nothing),
}


def create_model(*, fault: str, **parameters: Any) -> Any:
    """Returns tiny BERT with a fault; the other parameters are BERT's."""
    from openxla.benchmark.models.pt import bert

    model: Any = bert.create_model(**parameters)
    model.register_forward_pre_hook(lambda _, inputs: FAULTS[fault].plant(inputs[0]))
    return model


def model_name(fault: str) -> str:
    """Returns the name of the model with that fault."""
    return f"PLANTED_{fault.upper().replace('-', '_')}"


_IMPLEMENTATION = ModelImplementation(
    name="PLANTED_BERT_PT",
    tags=["planted"],
    framework_type=ModelFrameworkType.PYTORCH,
    module_path="gpu_check.faults",
    architecture="bert",
)
_PARAMETERS: Parameters = {
    "batch_size": 1,
    "data_type": "fp32",
    "seq_len": 32,
    "model_name": "bert-tiny",
}
ALL_BENCHMARKS = [
    BenchmarkCase.build(
        model=Model(
            name=model_name(fault),
            tags=["planted"],
            model_impl=_IMPLEMENTATION,
            model_parameters={**_PARAMETERS, "fault": fault},
        ),
        input_data=testdata.INPUT_DATA_MODEL_DEFAULT,
    )
    for fault in FAULTS
]


@attrs.frozen(kw_only=True)
class FaultResult:
    """The end of a fault's trial.

    Attributes:
      fault: its name; `good` is the model without a fault that runs before all others.
      expected: expected status.
      status, phase, reason: recorded by the trial.
      right: whether the fault affected its own trial only, and in the expected way.
    """

    fault: str
    expected: str
    status: str
    phase: str | None
    reason: str | None
    right: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all faults; returns 0 if each one ended as expected."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", required=True)
    parser.add_argument("--scratch", required=True, type=Path)
    parser.add_argument("--answer", required=True, type=Path)
    parser.add_argument(
        "--first-run",
        type=int,
        default=20,
        help="time limit in seconds for the phase first_run, which ends the hang",
    )
    options = parser.parse_args(arguments)

    def run(name: str, cases: str, iterations: int) -> Sequence[Result]:
        output = options.scratch / f"{name}.json"
        command = [
            *(sys.executable, "-P", "-m", "comparative_benchmark", "run"),
            *("--backend", "pt_inductor:eager", "--suite", "gpu_check.faults", "-name", cases),
            *("-device", options.device, "-w", "2", "-iter", str(iterations), "-o", str(output)),
            *("--deadline", f"first_run={options.first_run}", "--verbose"),
        ]
        subprocess.run(command, check=False)  # it fails, since the faults do
        return ResultsFile(output).results()

    def write(results: Sequence[FaultResult]) -> None:
        write_atomically(options.answer, {"faults": [attrs.asdict(item) for item in results]})

    ended = judge(run("faults", f"{GOOD_CASE}|models/PLANTED_.+", 20))
    write(ended)
    with busy_neighbour(options.device):
        # Long enough for the kernel's ticks to show which processes used the CPUs.
        ended.append(judge_foreign(run("foreign", GOOD_CASE, 500)))
    write(ended)
    for item in ended:
        print(f"{item.fault}: {item.status} {'(right)' if item.right else '(WRONG)'} {item.reason}")
    return 0 if all(item.right for item in ended) else 1


def judge(results: Sequence[Result]) -> list[FaultResult]:
    """Returns the end of each fault, the good model first; a missing result is not right."""
    by_model = {result.definition.model: result for result in results}
    expected = {"good": (GOOD_CASE.split("/")[1], "ok")}
    expected |= {name: (model_name(name), fault.status) for name, fault in FAULTS.items()}
    ended = []
    for name, (model, due) in expected.items():
        result = by_model.get(model)
        status = result.status.value if result else _LACKING
        ended.append(
            FaultResult(
                fault=name,
                expected=due,
                status=status,
                phase=(result.phase or None) if result else None,
                reason=(result.reason or None) if result else None,
                right=status == due,
            )
        )
    return ended


def judge_foreign(results: Sequence[Result]) -> FaultResult:
    """Returns whether a trial next to a busy process is ok, and recorded as disturbed.

    In a container, the driver may not report whose processes use the GPU. Then the trial must
    record that this is unknown.
    """
    result = results[-1] if results else None
    contention = (result.measured.contention if result else None) or Contention()
    noticed = contention.contended is True or bool(contention.contended_blocks)
    reasons = ", ".join(contention.reasons) or (result.reason if result else None) or None
    unknowable = contention.contended is None and result is not None and _hides_users(result)
    recorded = "contended" if noticed else "unknown" if unknowable else "not noticed"
    return FaultResult(
        fault=FOREIGN,
        expected="ok, contended",
        status=f"{result.status.value if result else _LACKING}, {recorded}",
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
    """Keeps a device busy from a process that belongs to no run."""
    program = f"from gpu_check import faults; faults.keep_busy({device!r})"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # the device is busy
            yield
        finally:
            process.kill()


def keep_busy(name: str) -> None:
    """Keeps a device busy until this process is killed; prints one line when the load is on."""
    device = next(device for device in devices.ALL_DEVICES if device.name == name)
    if device.accelerator_type == "cpu":
        _burn_cpus()
    import torch

    left = torch.randn(4096, 4096, device="cuda")
    print("busy", flush=True)
    while True:
        for _ in range(20):
            left = torch.tanh(left @ left)
        torch.cuda.synchronize()


def _burn_cpus() -> None:
    """Runs one busy process on each CPU."""
    for _ in range(len(os.sched_getaffinity(0)) - 1):
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the parent
            break
    else:
        print("busy", flush=True)
    while True:
        pass


if __name__ == "__main__":
    raise SystemExit(main())
