"""XLA's compiler and runtime through the PJRT client of jaxlib, without importing JAX.

A disk cache keeps compiled programs for processes that compile the same program again.
"""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import attrs
import numpy as np

from comparative_benchmark.backends.api import Array
from comparative_benchmark.backends.frameworks import xla_executables
from comparative_benchmark.xla_hlo import private_jaxlib
from comparative_benchmark.xla_hlo.private_jaxlib import (
    XlaError,
    differs,
    extension,
    hlo,
    profiler,
    xla_client,
)

DeviceArray: TypeAlias = Any
"""A `jaxlib._jax.ArrayImpl` on the client's device."""


@functools.cache
def client(accelerator: str) -> "Client":
    """Returns the only client of this process for `cpu` or `gpu`; see `Client`."""
    return Client(accelerator)


class Client:
    """One device of one platform: compiles programs, holds arrays, runs executables.

    A new client runs everything that a measurement uses on one number, so that a jaxlib with
    another interface is reported at once.

    Args:
      accelerator: `cpu` or `gpu`.

    Raises:
      UnsupportedError: there is no such device here, or jaxlib has another interface.
    """

    def __init__(self, accelerator: str) -> None:
        try:
            _set_flags()
            self._client = (
                xla_client.make_cpu_client()
                if accelerator == "cpu"
                else private_jaxlib.make_cuda_client()
            )
            self._device = self._client.local_devices()[0]
            self._devices = xla_client.DeviceList((self._device,))
            self._sharding = _OneDevice(self._device)
            self._try_out()
        except (AttributeError, TypeError) as error:
            raise differs(error) from error

    @property
    def platform(self) -> str:
        """The platform, with its version."""
        return f"{self._client.platform} {self._client.platform_version}"

    @property
    def device_kind(self) -> str:
        """The device's name."""
        kind: str = self._device.device_kind
        return kind

    def put(self, array: Array) -> DeviceArray:
        """Copies an array to the device and waits for it; keeps its type, even with 64 bits."""
        dense = np.ascontiguousarray(array).reshape(array.shape)  # 0-d would come out as 1-d
        type_ = _Type(dense.shape, dense.dtype, weak_type=False)
        resident = xla_client.batched_device_put(
            type_, self._sharding, [dense], [self._device], True, enable_x64=True
        )
        return resident.block_until_ready()

    def fetch(self, resident: DeviceArray) -> Array:
        """Copies an array to the host, into newly allocated memory."""
        # np.asarray would request a buffer, which bfloat16 does not support.
        with _without_jax():
            value, _ = resident._single_device_array_to_np_array_did_copy()  # noqa: SLF001
        return np.array(value)

    def compile(self, module: str | bytes) -> "Executable":
        """Compiles a StableHLO module: text, bytecode, or a portable artifact.

        Raises:
          XlaError: XLA rejects the module.
        """
        loaded = self._client.compile_and_load(module, self._devices, _compile_options())
        return Executable(loaded, self._sharding)

    def deserialize(self, serialized: bytes) -> "Executable":
        """Loads the output of `Executable.serialize`, on a machine like this one.

        Raises:
          XlaError: XLA rejects it.
        """
        loaded = self._client.deserialize_executable(serialized, self._devices, _compile_options())
        return Executable(loaded, self._sharding)

    def memory_peak_bytes(self) -> int | None:
        """Returns the peak device memory in use so far; None if unknown."""
        with contextlib.suppress(XlaError, NotImplementedError):
            if statistics := self._device.memory_stats():
                peak: int | None = statistics.get("peak_bytes_in_use")
                return peak
        return None

    def _try_out(self) -> None:
        given = np.ones((1,), np.float32)
        if not np.array_equal(self.fetch(self.put(given)), given):
            raise TypeError("an array changes when it is copied to the device and back")
        for owner, names in (
            (self._client, ("compile_and_load", "deserialize_executable")),
            (xla_client.LoadedExecutable, ("execute_sharded", "hlo_modules", "serialize")),
            (hlo, ("hlo_module_from_text", "XlaComputation", "HloPrintOptions")),
            (extension, ("array_result_handler",)),
            (extension.mlir, ("xla_computation_to_mlir_module",)),
        ):
            for name in names:
                getattr(owner, name)
        _compile_options()


class Executable:
    """A compiled program on the client's device; `loaded` provides XLA's facts."""

    def __init__(self, loaded: Any, sharding: Any) -> None:
        self.loaded = loaded
        self._execute = loaded.execute_sharded
        # Create arrays with JAX's handlers: a fourth of the time of disassembling the results,
        # 11 us in all.
        self._handlers = [
            extension.array_result_handler(type_, sharding, committed=True, _skip_checks=True)
            for type_ in _output_types(loaded)
        ]

    def run(self, arguments: Sequence[DeviceArray]) -> list[DeviceArray]:
        """Starts an execution and returns its outputs, which may not be complete yet."""
        outputs: list[DeviceArray] = self._execute(arguments).consume_with_handlers(self._handlers)
        return outputs


@contextlib.contextmanager
def profiled(directory: Path) -> Iterator[None]:
    """Records XLA and its runtime, into `plugins/profile/<date>/` of a directory."""
    options = profiler.ProfileOptions()
    # Spans of Python calls would slow the host and hide those of the runtime.
    options.python_tracer_level = 0
    session = profiler.ProfilerSession(options)
    try:
        yield
    finally:
        session.stop_and_export(str(directory))


def _compile_options() -> Any:
    """Returns the options that JAX uses for compiling for one device."""
    options = xla_client.CompileOptions()
    options.num_replicas = options.num_partitions = 1
    build = options.executable_build_options
    build.use_spmd_partitioning = True
    build.use_shardy_partitioner = True
    return options


class _Type(NamedTuple):
    """The part of `jax.core.ShapedArray` that the client uses."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    weak_type: bool


class _OneDevice(xla_client.SingleDeviceSharding):  # type: ignore[misc]  # has no stubs
    """The part of `jax.sharding.SingleDeviceSharding` that the client uses."""

    is_fully_addressable = True
    is_fully_replicated = True

    @property
    def memory_kind(self) -> Any:
        return self._memory_kind

    @property
    def device_set(self) -> set[Any]:
        return {self._device}

    def _to_xla_hlo_sharding(self, num_dimensions: int) -> Any:
        return xla_client.HloSharding.replicate()


def _output_types(loaded: Any) -> list[_Type]:
    """Returns shape and type of each output of an executable."""
    (module,) = loaded.hlo_modules()
    computation = hlo.XlaComputation(module.as_serialized_hlo_module_proto())
    result = computation.program_shape().result_shape()
    shapes = result.tuple_shapes() if result.is_tuple() else [result]
    return [
        _Type(tuple(shape.dimensions()), np.dtype(shape.element_type()), weak_type=False)
        for shape in shapes
    ]


@contextlib.contextmanager
def _without_jax() -> Iterator[None]:
    """Hides JAX from jaxlib, which imports it to copy an array, but does not need it."""
    if "jax" in sys.modules:
        yield
        return
    sys.modules["jax"] = None  # type: ignore[assignment]  # makes `import jax` fail
    try:
        yield
    finally:
        del sys.modules["jax"]


@functools.cache
def _set_flags() -> tuple[Any, ...]:
    """Sets the same flags as JAX, and returns them, because they must outlive their use.

    If JAX is in this process (only without worker processes), it has set its own.
    """
    if "jax" in sys.modules:
        return ()
    with_64_bits = extension.config.Config("enable_x64", True, include_in_jit_key=True)
    without_jit = extension.config.Config("disable_jit", False)
    extension.jax_jit.set_enable_x64_state(with_64_bits)
    extension.jax_jit.set_disable_jit_state(without_jit)
    return with_64_bits, without_jit


@attrs.define
class ExecutableCache:
    """A directory of serialised executables; without a directory, nothing is cached.

    Attributes:
      directory: the cache directory.
      hits: number of executables found.
      misses: number of executables not found, and then compiled.
    """

    directory: Path | None
    hits: int = 0
    misses: int = 0

    def get(self, key: str, client: Client, compile_: Callable[[], Executable]) -> Executable:
        """Returns the executable with this key, compiled if it is not cached."""
        path = self.directory / f"{key}.xla" if self.directory else None
        if path is not None and path.is_file():
            try:
                executable = client.deserialize(path.read_bytes())
            except XlaError as error:  # from another machine, or damaged: treated as missing
                print(f"cannot load the cached executable {path.name}: {error}", flush=True)
            else:
                self.hits += 1
                return executable
        made = compile_()
        self.misses += 1
        if path is not None and (serialized := xla_executables.serialize(made.loaded)):
            _write(path, serialized)
        return made


def _write(path: Path, content: bytes) -> None:
    """Writes a file atomically, so that a crash leaves no partial file with that name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_bytes(content)
    partial.replace(path)
