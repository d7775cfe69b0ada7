"""Loading and calling a compiled IREE program whose weights come from an archive.

A `LoadedProgram` puts the weights on the device when it is constructed; a call takes device buffers
and returns device buffers.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import iree.runtime as rt
import numpy as np

from comparative_benchmark.backends import host_settings
from comparative_benchmark.backends.api import Array
from comparative_benchmark.iree.conventions import ENTRY, PARAMETER_SCOPE

DeviceArray: TypeAlias = Any
"""An `iree.runtime.HalBufferView`: shape, element type and memory of its own.

Outlives the program that returned it.
"""


# IREE's messages if there is no driver or no GPU; any other message is a failure of the GPU.
_NO_DEVICE = re.compile(
    r"\b(?:UNAVAILABLE|NOT_FOUND|CUDA_ERROR_NO_DEVICE|CUDA_ERROR_STUB_LIBRARY)\b"
)


class NoDeviceError(RuntimeError):
    """The device does not exist here; the message is IREE's."""


def write_parameters(parameters: Mapping[str, Array], path: Path) -> None:
    """Writes weights to an `.irpa` archive, borrowing them: no second copy in memory.

    Args:
        parameters: key to weight, any shape including 0-d, any NumPy or `ml_dtypes` element type.
        path: file to write; replaced as a whole, so that a program mapped from it survives.
    """
    index = rt.ParameterIndex()
    for key, weight in parameters.items():
        # As bytes: bfloat16 has no buffer protocol, and a 0-d array no byte view.
        index.add_buffer(key, np.ascontiguousarray(weight).reshape(-1).view(np.uint8))
    partial = path.with_name(f"{path.name}.partial")
    index.create_archive_file(str(partial))
    partial.replace(path)


class LoadedProgram:
    """A compiled program on a device with its weights loaded, ready to be called."""

    def __init__(
        self, vmfb: Path, irpa: Path | None, *, threads: int = 1, device: str = "local"
    ) -> None:
        """Loads the program; returns when weights are loaded (and packed, under data tiling).

        Args:
            vmfb: output of `compile_program`. Read, not mapped: it may be replaced afterwards.
            irpa: output of `write_parameters`; None for a program without weights. Stays mapped,
                and its weights may be used in place: keep it unmodified while the program lives.
            threads: CPU threads that compute, each on a CPU of `pinned_cpus`; with one, the
                calling thread computes. Ignored for other devices.
            device: "local" for the CPU, or an IREE device URI such as "cuda".

        Raises:
            ValueError: for a thread count that exceeds the process's CPUs, a program without the
                entry function, or an archive that lacks a weight.
            NoDeviceError: if the device does not exist here.
        """
        self._device = open_device(device, threads=threads)
        instance = rt.VmInstance()
        modules = [rt.create_hal_module(instance, self._device)]
        if irpa is not None:
            index = rt.ParameterIndex()
            index.load(str(irpa))
            provider = index.create_provider(scope=PARAMETER_SCOPE)
            modules.append(rt.create_io_parameters_module(instance, provider))
        program = rt.VmModule.copy_buffer(instance, vmfb.read_bytes())
        self._function = program.lookup_function(ENTRY)
        if self._function is None:
            raise ValueError(
                f"the program has no function {ENTRY!r}; it has {program.function_names}"
            )
        self._context = rt.VmContext(instance, [*modules, program])

    def put(self, array: Array) -> DeviceArray:
        """Copies an array to the device; shape and element type (bfloat16 too) are kept."""
        return rt.asdevicearray(self._device, array)._buffer_view  # noqa: SLF001 - checks the type

    def arguments(self, *inputs: DeviceArray) -> Any:
        """Returns the argument list for `call`: buffers from `put` in the function's order."""
        arguments = rt.VmVariantList(len(inputs))
        for buffer in inputs:
            arguments.push_ref(buffer)
        return arguments

    def call(self, arguments: Any) -> Any:
        """Calls the entry function and returns the list of its results once they are computed.

        Like `iree-benchmark-module`, it creates the arguments once and does not unpack results: in
        Python these two steps take a quarter of a call that computes nothing.

        Args:
            arguments: list from `arguments`, which the call does not change.
        """
        results = rt.VmVariantList(1)
        # The entry is the synchronous stub that IREE exports: it waits for the device.
        self._context.invoke(self._function, arguments, results)
        return results

    def results(self, called: Any) -> list[DeviceArray]:
        """Returns the buffers in the return value of `call`."""
        return [called.get_as_object(i, rt.HalBufferView) for i in range(len(called))]

    def invoke(self, *inputs: DeviceArray) -> list[DeviceArray]:
        """Calls the entry function with buffers from `put`, and returns its results."""
        return self.results(self.call(self.arguments(*inputs)))

    def fetch(self, buffer: DeviceArray) -> Array:
        """Copies a buffer to a host array that owns its memory; bfloat16 comes as `ml_dtypes`."""
        return np.array(rt.DeviceArray(self._device, buffer).to_host())

    def memory_peak_bytes(self) -> int | None:
        """Returns the peak memory allocated on the device; None if IREE did not count.

        The device counts from the time when the process opens it.
        """
        allocator = self._device.allocator
        return int(allocator.statistics["device_bytes_peak"]) if allocator.has_statistics else None


def open_device(device: str, *, threads: int = 1) -> Any:
    """Returns a device, see `LoadedProgram`; the same one each time, for the rest of the process.

    Raises:
        ValueError: for a thread count that exceeds the process's CPUs.
        NoDeviceError: if the device does not exist here.
    """
    if device == "local":
        return _device(device, pinned_cpus(threads))
    try:
        return _device(device, ())
    except (RuntimeError, ValueError) as error:
        if _NO_DEVICE.search(str(error)):
            raise NoDeviceError(str(error)) from error
        raise


def device_name(device: str) -> str | None:
    """Returns the driver's name of the first device of its kind, e.g. `NVIDIA H100 80GB HBM3`."""
    devices = rt.get_driver(device).query_available_devices()
    return devices[0]["name"] if devices else None


def function_names(vmfb: bytes) -> list[str]:
    """Returns the functions that a compiled program exports; needs no device.

    Raises:
        ValueError: if this runtime cannot read the program.
    """
    names: list[str] = rt.VmModule.copy_buffer(rt.VmInstance(), vmfb).function_names
    return names


def pinned_cpus(threads: int) -> tuple[int, ...]:
    """Returns the CPUs to pin this many threads to, on separate cores while there are enough.

    Raises:
        ValueError: for a thread count that exceeds the process's CPUs.
    """
    available = host_settings.spread(host_settings.usable_cpus())
    if not 1 <= threads <= len(available):
        raise ValueError(f"threads requested: {threads}, CPUs available: {len(available)}")
    return tuple(sorted(available[:threads]))


# Cached because a buffer does not keep its device alive, and using it after its device crashes.
# IREE's own cache would keep the first thread count.
@functools.cache
def _device(device: str, pinned: tuple[int, ...]) -> Any:
    """Returns the device that computes on the given CPUs, for the rest of the process."""
    if device != "local":
        return rt.get_device(device, cache=False)
    if len(pinned) == 1:
        # Handing work to a worker thread on the same CPU costs up to 4 ms a call.
        return rt.get_device("local-sync", cache=False)
    # A process-wide flag, read whenever a device is created.
    rt.flags.parse_flags(f"--task_topology_cpu_ids={','.join(map(str, pinned))}")
    return rt.get_device("local-task", cache=False)
