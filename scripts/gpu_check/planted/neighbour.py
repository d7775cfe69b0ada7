"""A process that keeps a device busy until it is killed: `python -m ... DEVICE`."""

import os
import sys

from openxla.benchmark import devices


def main(name: str) -> None:
    """Says one line when it is at work, and never ends."""
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
    """One busy process on each CPU."""
    for _ in range(len(os.sched_getaffinity(0)) - 1):
        if os.fork() == 0:
            _die_with_parent()
            break
    else:
        print("busy", flush=True)
    while True:
        pass


def _die_with_parent() -> None:
    import ctypes
    import signal

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    main(sys.argv[1])
