"""OpenVINO inference requests, and buffers for their inputs and outputs."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from comparative_benchmark.backends.api import Array
from comparative_benchmark.openvino.front_ends import INPUT, OUTPUT
from comparative_benchmark.openvino.toolkit import dtype_of, ov


class Buffer:
    """Memory of one input or output, allocated by OpenVINO."""

    def __init__(self, port: Any) -> None:
        """Allocates the value of an input or output of a compiled model."""
        self.tensor = ov.Tensor(port.get_element_type(), port.get_shape())
        self.dtype = dtype_of(port.get_element_type())
        # OpenVINO returns bfloat16 as another type of the same size.
        data: Array = self.tensor.data
        self._array = data if data.dtype == self.dtype else data.view(self.dtype)
        self.shape: tuple[int, ...] = tuple(port.get_shape())

    def write(self, values: Array) -> None:
        """Copies values in."""
        self._array[...] = values

    def copy_to(self, target: Array) -> None:
        """Copies the content to an array."""
        target[...] = self._array


class CompiledProgram:
    """A compiled model with the interface that `resident_programs` expects.

    Attributes:
      requests: one for each binding; they hold performance counters, if these are on.
    """

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self.requests: list[Any] = []
        self._inputs = [compiled.input(INPUT.format(i)) for i in range(len(compiled.inputs))]
        self._outputs = [compiled.output(OUTPUT.format(i)) for i in range(len(compiled.outputs))]

    def inputs(self) -> list[Buffer]:
        """Makes a buffer for each input."""
        return [Buffer(port) for port in self._inputs]

    def outputs(self) -> list[Buffer]:
        """Makes a buffer for each output."""
        return [Buffer(port) for port in self._outputs]

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> Callable[[], object]:
        """Returns a function that infers; it returns when the outputs are complete."""
        request = self._request(inputs)
        for port, buffer in zip(self._outputs, outputs, strict=True):
            request.set_tensor(port, buffer.tensor)
        # Shared: otherwise each output would be copied to a new array in every iteration.
        return functools.partial(request.infer, share_outputs=True)

    def bind_inputs(self, inputs: Sequence[Buffer]) -> Callable[[], Any]:
        """Returns a function that infers into new tensors and returns these."""
        request = self._request(inputs)
        kinds = [(port, port.get_element_type(), port.get_shape()) for port in self._outputs]

        def infer() -> list[Any]:
            made = []
            for port, element_type, shape in kinds:
                made.append(ov.Tensor(element_type, shape))
                request.set_tensor(port, made[-1])
            request.infer(share_outputs=True)
            return made

        return infer

    def take(self, allocated: Sequence[Any], outputs: Sequence[Buffer]) -> None:
        """Copies tensors of a run to buffers."""
        for tensor, buffer in zip(allocated, outputs, strict=True):
            tensor.copy_to(buffer.tensor)

    def _request(self, inputs: Sequence[Buffer]) -> Any:
        request = self._compiled.create_infer_request()
        for port, buffer in zip(self._inputs, inputs, strict=True):
            request.set_tensor(port, buffer.tensor)
        self.requests.append(request)
        return request
