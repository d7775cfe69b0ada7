"""Checks of NVIDIA GPUs with nvidia-smi."""

import csv
import shlex
from collections.abc import Iterator, Mapping, Sequence

from comparative_benchmark.analysis.machine.gpu_state import slowdowns
from comparative_benchmark.maintenance.doctor.system import Finding, System

_CSV = "--format=csv,noheader,nounits"
_GPU_FIELDS = (
    "index",
    "name",
    "persistence_mode",
    "clocks.sm",
    "clocks.max.sm",
    "temperature.gpu",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "mig.mode.current",
    "driver_version",
)
_GPU_PROCESS_FIELDS = ("gpu_uuid", "pid", "process_name", "used_memory")
# nvmlClocksEventReasons of NVML; newer drivers call the field clocks_event_reasons.
_REASON_FIELDS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_HARMFUL_REASONS = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
# The driver itself uses some hundred MiB of a large GPU.
_MEMORY_SHARE_IN_USE = 0.05


def nvidia(system: System) -> Iterator[Finding]:
    """Yields the state of NVIDIA GPUs, as reported by nvidia-smi."""
    command, rows = _gpus(system)
    if not rows:
        devices = system.exists("/dev/nvidia0") or system.exists("/dev/nvidiactl")
        yield Finding(
            name="GPU",
            status="unknown" if devices else "ok",
            value="NVIDIA device files exist, but nvidia-smi does not respond"
            if devices
            else "no NVIDIA GPU found",
            cost="without nvidia-smi, GPU clocks, temperatures and other users are not visible",
            fix="install the nvidia-smi that matches the driver" if devices else "",
            verify="nvidia-smi -L; ls /dev | grep -c nvidia || true",
        )
        return
    for row in rows:
        yield from _gpu_findings(row, shlex.join(command))
    yield _gpu_processes(system)


def _gpu_findings(row: Mapping[str, str | None], verify: str) -> Iterator[Finding]:
    name = f"GPU {row['index']}"
    persistence = row["persistence_mode"]
    yield Finding(
        name=f"{name} persistence",
        status={"Enabled": "ok", "Disabled": "warning"}.get(persistence or "", "unknown"),  # type: ignore[arg-type]
        value=f"{row['name']}: {persistence or 'unknown'}",
        cost="without persistence, the driver reloads for each process: the first run is slower",
        fix="sudo nvidia-smi -pm 1" if persistence == "Disabled" else "",
        verify=verify,
    )
    reasons = throttle_reasons(row["reasons"])
    harmful = bool(reasons and reasons[0] & _HARMFUL_REASONS)
    names = "unknown" if reasons is None else ", ".join(reasons[1]) or "none"
    yield Finding(
        name=f"{name} clocks",
        status="unknown" if reasons is None else "problem" if harmful else "ok",
        value=f"{row['clocks.sm'] or '?'} of {row['clocks.max.sm'] or '?'} MHz, "
        f"{row['temperature.gpu'] or '?'} degrees C, {row['utilization.gpu'] or '?'} % busy; "
        f"held back by: {names}",
        cost="clocks depend on power and temperature: kernels are slower once a limit is reached",
        fix=f"sudo nvidia-smi -i {row['index']} -lgc MHZ,MHZ  # a clock that the GPU can sustain"
        if harmful
        else "",
        verify=verify,
    )
    yield _memory(name, row, verify)
    mode = row["mig.mode.current"]
    yield Finding(
        name=f"{name} MIG",
        status="warning" if mode == "Enabled" else "ok",
        value=f"{mode or 'not supported'}; driver {row['driver_version'] or 'unknown'}",
        cost="MIG instances share the GPU's power and clocks, and CUDA sees only one instance",
        fix=f"sudo nvidia-smi -i {row['index']} -mig 0  # only if nothing uses the GPU"
        if mode == "Enabled"
        else "",
        verify=verify,
    )


def _memory(name: str, row: Mapping[str, str | None], verify: str) -> Finding:
    """Checks for memory in use while nothing is measured; its process may be invisible here."""
    used, total = row["memory.used"], row["memory.total"]
    known = bool(used and total and used.isdecimal() and total.isdecimal())
    held = known and int(used or 0) > _MEMORY_SHARE_IN_USE * int(total or 0)
    return Finding(
        name=f"{name} memory",
        status="unknown" if not known else "warning" if held else "ok",
        value=f"{used or '?'} of {total or '?'} MiB used",
        cost="the process that holds the memory may also use the GPU; competitors that do not fit "
        "in memory together are not interleaved",
        fix="stop the process that holds the memory, or choose a GPU with CUDA_VISIBLE_DEVICES"
        if held
        else "",
        verify=verify,
    )


def _gpu_processes(system: System) -> Finding:
    command = ["nvidia-smi", f"--query-compute-apps={','.join(_GPU_PROCESS_FIELDS)}", _CSV]
    text = system.run(command)
    rows = None if text is None else parse_nvidia_csv(text, _GPU_PROCESS_FIELDS)
    names = [
        f"{row['process_name']} (pid {row['pid']}, {row['used_memory'] or '?'} MiB)"
        for row in rows or ()
    ]
    return Finding(
        name="GPU processes",
        status="unknown" if rows is None else "problem" if rows else "ok",
        value="unavailable"
        if rows is None
        else "; ".join(names) or "none visible (a container hides processes outside it)",
        cost="another process shares the GPU's time and memory: latencies increase and vary more",
        fix="stop the processes, or choose a GPU with CUDA_VISIBLE_DEVICES" if rows else "",
        verify=shlex.join(command),
    )


def _gpus(system: System) -> tuple[list[str], list[dict[str, str | None]]]:
    """Returns the command that succeeded, and a row for each GPU."""
    command: list[str] = []
    for reason in _REASON_FIELDS:
        fields = (*_GPU_FIELDS, reason)
        command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", _CSV]
        if text := system.run(command):
            return command, parse_nvidia_csv(text, (*_GPU_FIELDS, "reasons"))
    return command, []


def parse_nvidia_csv(text: str, fields: Sequence[str]) -> list[dict[str, str | None]]:
    """Returns a row for each line; `[N/A]` is None, and malformed lines are skipped."""
    rows = []
    for cells in csv.reader(text.splitlines(), skipinitialspace=True):
        values = [cell.strip() for cell in cells]
        if len(values) == len(fields):
            rows.append(
                {
                    field: None if not value or value.startswith("[") or value == "N/A" else value
                    for field, value in zip(fields, values)
                }
            )
    return rows


def throttle_reasons(text: str | None) -> tuple[int, tuple[str, ...]] | None:
    """Returns the bits of a hexadecimal mask and the names of those that slow down a GPU."""
    try:
        bits = int(text or "", 16)
    except ValueError:
        return None
    return bits, slowdowns(bits)
