"""Tiny BERT that goes wrong in the ways in which programs on an accelerator go wrong.

On a CPU each fault has a stand-in that ends a trial alike, so that the check can be rehearsed.
"""

import os
import signal
import threading
import time
from typing import Any

import torch

from openxla.benchmark.models.pt.bert import bert_model

_CHUNK_BYTES = 1 << 30
_MORE_THAN_ANY_MACHINE_HAS = 1 << 50
# Clock cycles of a kernel that ends long after every deadline, and of one that is killed.
_FOREVER, _LONG = 1 << 62, 1 << 36
_KILL_AFTER_S = 0.5


class Planted(bert_model.BertModel):
    """BERT whose `forward` does something else first; see `_FAULTS`."""

    fault = "none"

    def forward(self, input_ids: Any, attention_mask: Any) -> Any:
        """Goes wrong, or returns the last hidden state."""
        _FAULTS[self.fault](input_ids)
        return super().forward(input_ids, attention_mask)


def create_model(*, fault: str = "none", **parameters: Any) -> Planted:
    """Returns the model with that fault; the parameters are those of BERT."""
    model = Planted(parameters)
    model.fault = fault
    return model


def _nothing(_: torch.Tensor) -> None:
    pass


def _exhaust_memory(inputs: torch.Tensor) -> None:
    if not inputs.is_cuda:
        torch.empty(_MORE_THAN_ANY_MACHINE_HAS, dtype=torch.uint8)
    hoard = []
    while True:  # really to the end: a single request that is too large is refused at once
        hoard.append(torch.empty(_CHUNK_BYTES, dtype=torch.uint8, device=inputs.device))


def _fail_in_kernel(inputs: torch.Tensor) -> None:
    """Reads past the end of a table; on a GPU the call returns and the kernel fails later."""
    table = torch.zeros(4, device=inputs.device)
    table[torch.full((8,), 1000, device=inputs.device)]


def _break_context(inputs: torch.Tensor) -> None:
    """Swallows the error of a kernel: on a GPU nothing works in this process any more."""
    try:
        _fail_in_kernel(inputs)
        if inputs.is_cuda:
            torch.cuda.synchronize()
    except (RuntimeError, IndexError) as error:
        print("swallowed:", error)
        if not inputs.is_cuda:
            raise RuntimeError("rehearsal of a permanently broken context") from error


def _die_in_kernel(inputs: torch.Tensor) -> None:
    def kill() -> None:
        time.sleep(_KILL_AFTER_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()
    _occupy(inputs, _LONG)


def _hang(inputs: torch.Tensor) -> None:
    _occupy(inputs, _FOREVER)


def _occupy(inputs: torch.Tensor, cycles: int) -> None:
    """Keeps the device busy for so many cycles; a GPU's kernel of that length, else a sleep."""
    if inputs.is_cuda:
        torch.cuda._sleep(cycles)  # noqa: SLF001  # what PyTorch's own tests use
    else:
        time.sleep(3600)


_FAULTS = {
    "none": _nothing,
    "memory": _exhaust_memory,
    "kernel-error": _fail_in_kernel,
    "broken-context": _break_context,
    "killed-in-kernel": _die_in_kernel,
    "hang": _hang,
}
