"""Measures the ceilings of a GPU, through the installed libraries."""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

import attrs

from comparative_benchmark.analysis.roofline import _children
from comparative_benchmark.analysis.roofline.roofline import Ceilings, CeilingsError, Copy, Gemm

COPY = "copy"
# The most useful first, so that a short budget leaves the ceilings of most results. All types of
# one library come first: a new type is worth more than a second opinion on another.
MEASURED = {
    "torch": (COPY, "bf16", "fp32", "tf32", "fp16", "fp8", "int8"),
    "jax": (COPY, "bf16", "fp32", "tf32", "fp16"),
}


@attrs.define
class _Found:
    """Measurements so far.

    Attributes:
      gpu: its name, as the first library reported it.
      absent: by library, why it cannot measure at all.
    """

    gpu: str | None = None
    gemms: list[Gemm] = attrs.field(factory=list)
    copies: list[Copy] = attrs.field(factory=list)
    skipped: list[str] = attrs.field(factory=list)
    absent: dict[str, str] = attrs.field(factory=dict)


def measure(
    cpu_model: str,
    say: Callable[[str], None],
    budget: _children.Budget,
    *,
    child_options: Sequence[str] = (),
) -> Ceilings:
    """Measures each library and data type in a child process. Takes about two minutes.

    Args:
      cpu_model: CPU model of the machine.
      say: called with progress messages.
      budget: budget of all processes together.
      child_options: options of each process, e.g. `--device cpu` for a rehearsal without a GPU.

    Raises:
      CeilingsError: nothing could be measured, with a reason for each library.
    """
    found = _Found()
    for library, what in _tasks(found):
        _measure_one(library, what, found, say, budget, child_options)
    reasons = [f"{library}: {reason}" for library, reason in found.absent.items()] + found.skipped
    if not found.gemms and not found.copies:
        raise CeilingsError("no library could measure the GPU", reasons)
    return Ceilings(
        cpu_model=cpu_model,
        threads=None,
        gpu=found.gpu,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        gemms=tuple(found.gemms),
        copies=tuple(found.copies),
        skipped=tuple(reasons),
    )


def _tasks(found: _Found) -> Iterator[tuple[str, str]]:
    """Yields the remaining measurements, without those that earlier ones made useless."""
    for library, things in MEASURED.items():
        if importlib.util.find_spec(library) is None:  # finds it without importing it
            found.absent[library] = "not installed"
        for what in things:
            if library in found.absent:
                break
            if what == COPY and found.copies:
                continue  # one copy shows the bandwidth
            yield library, what


def _measure_one(
    library: str,
    what: str,
    found: _Found,
    say: Callable[[str], None],
    budget: _children.Budget,
    child_options: Sequence[str],
) -> None:
    arguments = [library, what, *child_options]
    if budget.ends_s is not None:
        arguments += ["--until", str(budget.ends_s)]
    answer = _children.ask("_gpu_rates", arguments, budget)
    values = dict(answer.values or {})
    if reason := values.pop("no_device", None):
        found.absent[library] = reason
        say(f"{library}: {reason}")
        return
    name = f"{library} {what}"
    if answer.problem:
        # Measurements before a failure count.
        where = f" after {values['size']}" if "size" in values else ""
        found.skipped.append(f"{name}{where}: {answer.problem}")
        say(found.skipped[-1])
    if not values:
        return
    gpu = values.pop("device_name")
    found.gpu = found.gpu or gpu
    if values["held_back_by"] is not None:
        values["held_back_by"] = tuple(values["held_back_by"])
    if what == COPY:
        found.copies.append(Copy(threads=None, library=library, **values))
        say(f"{name}: {found.copies[-1].gb_per_s:.4g} GB/s")
    else:
        found.gemms.append(Gemm(library=library, data_type=what, **values))
        say(f"{name}: {found.gemms[-1].gflops / 1e3:.3g} TFLOP/s at {found.gemms[-1].size}")
