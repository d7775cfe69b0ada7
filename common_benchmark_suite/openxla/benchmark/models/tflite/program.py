"""A TFLite file in the LiteRT interpreter: inputs are set once, then it runs repeatedly."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert.interpreter import Interpreter, OpResolverType

Array = npt.NDArray[np.generic]


class Program:
    """A loaded file.

    Files converted by the suite name inputs and outputs by position. In other files, names are
    sorted by the numbers in them; without a signature, they follow the file's order.

    Args:
      path: path of the file, which is mapped into memory and must not change.
      threads: number of threads for kernels.
      xnnpack: whether XNNPACK runs the operations it supports, as is LiteRT's default.
      resolver: selects the kernels; None to follow `xnnpack`.

    Raises:
      ValueError: the file is not a TFLite file.
    """

    def __init__(
        self,
        path: Path,
        *,
        threads: int,
        xnnpack: bool = True,
        resolver: OpResolverType | None = None,
    ) -> None:
        resolver = resolver or (
            OpResolverType.AUTO if xnnpack else OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        )
        self._interpreter = Interpreter(
            model_path=str(path), num_threads=threads, experimental_op_resolver_type=resolver
        )
        self._interpreter.allocate_tensors()
        self._inputs, self._outputs = _edges(self._interpreter)
        self.invoke = self._interpreter.invoke

    def set_inputs(self, inputs: Sequence[Array]) -> None:
        """Copies inputs into the program, which keeps them; int8 inputs are quantised here.

        Raises:
          ValueError: the file takes other inputs.
        """
        if len(inputs) != len(self._inputs):
            raise ValueError(f"number of inputs: expected {len(self._inputs)}, got {len(inputs)}")
        for detail, value in zip(self._inputs, inputs, strict=True):
            if tuple(detail["shape"]) != value.shape:
                raise ValueError(
                    f"input {detail['name']}: expected shape {tuple(detail['shape'])}, got "
                    f"{value.shape}"
                )
            self._interpreter.set_tensor(detail["index"], _quantized(value, detail))

    def input_forms(self) -> list[tuple[str, tuple[int, ...], np.dtype[Any]]]:
        """Returns name, shape and type of each input."""
        return [
            (detail["name"], tuple(map(int, detail["shape"])), np.dtype(detail["dtype"]))
            for detail in self._inputs
        ]

    def operations(self) -> list[str]:
        """Returns the types of the operations, in order; those taken by a delegate come first."""
        return [str(op["op_name"]) for op in self._interpreter._get_ops_details()]  # noqa: SLF001

    def output_names(self) -> list[str]:
        """Returns the name of each output."""
        return [str(detail["name"]) for detail in self._outputs]

    def fill_outputs(self, content: Callable[[Sequence[int], np.dtype[Any]], Array]) -> None:
        """Overwrites output buffers with the result of a function of shape and type.

        Outputs that are also inputs or constants are not changed. Outputs without memory before the
        first run, such as results of a loop, are skipped.
        """
        inputs = {detail["index"] for detail in self._inputs}
        for detail in self._outputs:
            # Releases the buffer at once: the interpreter refuses to run while it is referenced.
            try:
                memory = self._interpreter.tensor(detail["index"])()
            except ValueError:
                continue
            if detail["index"] not in inputs and memory.flags.writeable:
                memory[...] = content(memory.shape, memory.dtype)

    def outputs(self) -> list[Array]:
        """Returns copies of the outputs of the last run; int8 ones as float32."""
        return [
            _dequantized(self._interpreter.get_tensor(detail["index"]), detail)
            for detail in self._outputs
        ]

    def edge_types(self) -> dict[str, list[str]]:
        """Returns the element types of the program's own inputs and outputs."""
        return {
            "inputs": [np.dtype(detail["dtype"]).name for detail in self._inputs],
            "outputs": [np.dtype(detail["dtype"]).name for detail in self._outputs],
        }

    def tensor_types(self) -> dict[str, int]:
        """Returns the number of tensors in the file by type, including constants."""
        counts: dict[str, int] = {}
        for detail in self._interpreter.get_tensor_details():
            name = np.dtype(detail["dtype"]).name
            counts[name] = counts.get(name, 0) + 1
        return dict(sorted(counts.items()))


def _edges(interpreter: Any) -> tuple[list[Any], list[Any]]:
    """Returns the details of inputs and outputs, in the model's order."""
    if len(interpreter.get_signature_list()) != 1:
        return interpreter.get_input_details(), interpreter.get_output_details()
    # The runner must not outlive this function: the interpreter refuses to run while it is
    # referenced.
    runner = interpreter.get_signature_runner()
    return _sorted(runner.get_input_details()), _sorted(runner.get_output_details())


def _sorted(details: Mapping[str, Any]) -> list[Any]:
    def by_number(name: str) -> list[tuple[int, str]]:
        return [(int(part) if part.isdigit() else -1, part) for part in re.split(r"(\d+)", name)]

    return [details[name] for name in sorted(details, key=by_number)]


def _quantized(value: Array, detail: Mapping[str, Any]) -> Array:
    """Returns an input in the type that the file takes.

    Raises:
      ValueError: the type differs, and the file has no scale.
    """
    to = np.dtype(detail["dtype"])
    scale, zero_point = detail["quantization"]
    if value.dtype == to:
        return value
    if to not in (np.int8, np.uint8) or not scale or value.dtype.kind != "f":
        raise ValueError(f"input {detail['name']}: expected {to.name}, got {value.dtype.name}")
    steps = np.rint(np.asarray(value, np.float32) / np.float32(scale)) + zero_point
    limits = np.iinfo(to)
    return np.asarray(np.clip(steps, limits.min, limits.max).astype(to))


def _dequantized(value: Array, detail: Mapping[str, Any]) -> Array:
    scale, zero_point = detail["quantization"]
    if value.dtype not in (np.int8, np.uint8) or not scale:
        return value
    return np.asarray(np.float32(scale) * (np.asarray(value, np.float32) - np.float32(zero_point)))
