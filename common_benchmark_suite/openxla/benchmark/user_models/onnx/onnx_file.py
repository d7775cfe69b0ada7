"""Inputs and weight files of an ONNX file, read without ONNX.

Field numbers are from https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

import hashlib
import math
import mmap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import attrs

from openxla.benchmark.files import is_all_zeros, sha256_of, substitute_of
from openxla.benchmark.user_models.model_options import UserModelError
from openxla.benchmark.user_models.programs.signature import (
    Argument,
    Signature,
    element_type_or_refuse,
)

_VARINT, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5

_TYPES = {1: "f32", 2: "u8", 3: "i8", 6: "i32", 7: "i64", 9: "i1", 10: "f16", 11: "f64", 16: "bf16"}
_FLOATS = {1: "fp32", 10: "fp16", 11: "fp64", 16: "bf16"}
# Field numbers.
_MODEL_GRAPH, _MODEL_OPSET, _MODEL_FUNCTION = 7, 8, 25
_GRAPH_NODE, _GRAPH_WEIGHT, _GRAPH_INPUT, _GRAPH_OUTPUT, _GRAPH_SPARSE = 1, 5, 11, 12, 15
_NODE_INPUT, _NODE_OUTPUT, _NODE_KIND, _NODE_ATTRIBUTE = 1, 2, 4, 5
# Kinds of values that are not arrays.
_OTHER_VALUES = {4: "sequence", 5: "map", 8: "sparse tensor", 9: "optional value"}
_TENSOR_SIZES, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_EXTERNAL = 1, 2, 8, 13


class MalformedError(ValueError):
    """The bytes are not a complete message."""


def fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yields number and value of each field; strings, bytes and messages as views.

    Raises:
      MalformedError: the bytes end within a field, or are not fields.
    """
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if kind == _LENGTH:
            size, at = _varint(message, at)
        elif kind in (_EIGHT, _FOUR):
            size = 8 if kind == _EIGHT else 4
        else:
            raise MalformedError(f"invalid field at byte {at}")
        if number == 0 or at + size > end:
            raise MalformedError(f"a field of {size} bytes extends past the end")
        yield number, message[at : at + size]
        at += size


def numbers(value: int | memoryview) -> list[int]:
    """Returns the integers of a repeated field: a single one, or a packed sequence."""
    if isinstance(value, int):
        return [value]
    numbers, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        numbers.append(number)
    return numbers


def view(value: int | memoryview) -> memoryview:
    """Returns a field that must be bytes.

    Raises:
      MalformedError: the field is a number.
    """
    if isinstance(value, int):
        raise MalformedError("expected a message, got a number")
    return value


def text(value: int | memoryview) -> str:
    """Returns a field that must be a string."""
    return bytes(view(value)).decode(errors="replace")


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at + place >= len(message):
            break
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return value, at + place + 1
    raise MalformedError(f"unterminated varint at byte {at}")


@attrs.define
class _Seen:
    """Findings in a file."""

    floats: Counter[int] = attrs.field(factory=Counter)
    rows: dict[str, int] = attrs.field(factory=dict)
    external: list[tuple[str, dict[str, str]]] = attrs.field(factory=list)
    lookups: list[tuple[str, str]] = attrs.field(factory=list)
    casts: dict[str, str] = attrs.field(factory=dict)
    zipped: set[str] = attrs.field(factory=set)


@attrs.frozen(kw_only=True)
class OnnxFile:
    """An ONNX file that is complete, including its external data.

    Attributes:
      signature: its inputs.
      data_type: the type in which it computes, e.g. `fp32`.
      data_files: files with its weights, in the same folder or below.
      opsets: version by domain; the empty domain is ONNX's own.
    """

    signature: Signature
    data_type: str
    data_files: tuple[Path, ...]
    opsets: dict[str, int]


def read(path: Path) -> OnnxFile:
    """Returns the outline of a file.

    Raises:
      UserModelError: the file is not a complete ONNX file, weights are missing or outside its
        folder, or an input is not supported.
    """
    try:
        with path.open("rb") as file:
            # The garbage collector closes it, because an exception may hold views of it.
            whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        return _read(path, whole)
    except UserModelError:
        raise
    except MalformedError as error:
        raise UserModelError(f"{path} is not a valid ONNX file: {error}") from None
    except (OSError, ValueError, KeyError, RecursionError) as error:
        raise UserModelError(f"{path} cannot be read: {error}") from error


def digest_of(path: Path, data_files: tuple[Path, ...]) -> str:
    """Returns the sha256 of a file and its weight files."""
    lines = [sha256_of(path)]
    lines += [f"{file.relative_to(path.parent)} {sha256_of(file)}" for file in sorted(data_files)]
    return lines[0] if len(lines) == 1 else hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _read(path: Path, whole: memoryview) -> OnnxFile:
    seen, inputs, opsets = _Seen(), [], {}
    has_graph = False
    for number, value in fields(whole):
        if number == _MODEL_GRAPH:
            has_graph = True
            _look_at(view(value), seen)
            inputs = [view(v) for n, v in fields(view(value)) if n == _GRAPH_INPUT]
            _check_outputs(path, view(value), seen)
        elif number == _MODEL_OPSET:
            entry = dict(fields(view(value)))
            version = entry.get(2, 0)
            opsets[text(entry[1]) if 1 in entry else ""] = (
                version if isinstance(version, int) else 0
            )
        elif number == _MODEL_FUNCTION:
            _look_at_nodes(view(value), 7, seen)
    if not has_graph or not opsets:
        raise MalformedError("it has no graph" if not has_graph else "it has no opset")
    arguments = [_argument(path, item, seen) for item in inputs]
    arguments = [argument for argument in arguments if argument.name not in seen.rows]
    floats = seen.floats or Counter(
        {k: 1 for a in arguments for k, t in _TYPES.items() if t == a.element_type and k in _FLOATS}
    )
    data_files = tuple(sorted(set(_data_files(path, seen))))
    # A file may belong to one weight, which may be zero.
    if data_files and all(map(is_all_zeros, data_files)):
        raise UserModelError(
            f"{path.name}: {data_files[0].name} contains only zeros, so it is incomplete; "
            "download it again"
        )
    return OnnxFile(
        signature=Signature(where=path.name, arguments=tuple(arguments)),
        data_type=_FLOATS[floats.most_common(1)[0][0]] if floats else "fp32",
        data_files=data_files,
        opsets=opsets,
    )


def _check_outputs(path: Path, graph: memoryview, seen: _Seen) -> None:
    """Raises UserModelError for an output that is not an array."""
    for item in (view(value) for number, value in fields(graph) if number == _GRAPH_OUTPUT):
        parts = dict(fields(item))
        name = text(parts[1]) if 1 in parts else ""
        if name in seen.zipped:
            raise UserModelError(
                f"{path.name}: output {name!r} comes from ZipMap: it is a list of dictionaries, "
                "not an array; convert the model again with options={'zipmap': False}"
            )
        kinds = [number for number, _ in fields(view(parts[2]))] if 2 in parts else []
        if other := [_OTHER_VALUES[kind] for kind in kinds if kind in _OTHER_VALUES]:
            raise UserModelError(
                f"{path.name}: output {name!r} has the type {other[0]}, expected an array; export "
                "the model with one array for each output"
            )


def _look_at(graph: memoryview, seen: _Seen) -> None:
    """Records the weights of a graph and of the graphs in its nodes."""
    for number, value in fields(graph):
        if number == _GRAPH_WEIGHT:
            seen.rows.update([_look_at_weight(view(value), seen)])
        elif number == _GRAPH_SPARSE:
            for part in (1, 2):
                for n, tensor in fields(view(value)):
                    if n == part:
                        seen.rows.update([_look_at_weight(view(tensor), seen)])
    _look_at_nodes(graph, _GRAPH_NODE, seen)


def _look_at_nodes(owner: memoryview, field: int, seen: _Seen) -> None:
    for number, value in fields(owner):
        if number != field:
            continue
        node = list(fields(view(value)))
        kind = next((text(v) for n, v in node if n == _NODE_KIND), "")
        operands = [text(v) for n, v in node if n == _NODE_INPUT]
        results = [text(v) for n, v in node if n == _NODE_OUTPUT]
        if kind == "Gather" and len(operands) == 2:
            seen.lookups.append((operands[0], operands[1]))
        elif kind == "ZipMap":
            seen.zipped.update(results)
        elif kind in ("Cast", "Identity") and operands and results:
            seen.casts[results[0]] = operands[0]
        for attribute in (view(v) for n, v in node if n == _NODE_ATTRIBUTE):
            for part, inner in fields(attribute):
                if part in (5, 10):
                    _look_at_weight(view(inner), seen)
                elif part in (6, 11):
                    _look_at(view(inner), seen)


def _look_at_weight(tensor: memoryview, seen: _Seen) -> tuple[str, int]:
    """Records a weight; returns its name and the size of its first axis."""
    sizes: list[int] = []
    name, kind, external = "", 0, {}
    for number, value in fields(tensor):
        if number == _TENSOR_SIZES:
            sizes += numbers(value)
        elif number == _TENSOR_TYPE and isinstance(value, int):
            kind = value
        elif number == _TENSOR_NAME:
            name = text(value)
        elif number == _TENSOR_EXTERNAL:
            entry = dict(fields(view(value)))
            external[text(entry[1])] = text(entry[2])
    if kind in _FLOATS:
        seen.floats[kind] += math.prod(sizes)
    if external:
        seen.external.append((name, external))
    return name, sizes[0] if sizes else 0


def _argument(path: Path, item: memoryview, seen: _Seen) -> Argument:
    name, kind, sizes = "", None, None
    for number, value in fields(item):
        if number == 1:
            name = text(value)
        elif number == 2:
            for which, tensor in fields(view(value)):
                if which == 1:
                    kind, sizes = _tensor_type(view(tensor))
    dtype = element_type_or_refuse(name, _TYPES.get(kind or 0), path.name)
    if sizes is None:
        raise UserModelError(f"{path.name}: input {name!r} has an unknown rank")
    rows = [
        seen.rows[table]
        for table, index in seen.lookups
        if _origin(index, seen) == name and seen.rows.get(table)
    ]
    return Argument(name=name, element_type=dtype, sizes=sizes, below=min(rows, default=None))


def _origin(name: str, seen: _Seen) -> str:
    for _ in range(len(seen.casts) + 1):
        if name not in seen.casts:
            break
        name = seen.casts[name]
    return name


def _tensor_type(tensor: memoryview) -> tuple[int | None, tuple[int | str | None, ...] | None]:
    kind, sizes = None, None
    for number, value in fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2:
            sizes = tuple(_size(view(v)) for n, v in fields(view(value)) if n == 1)
    return kind, sizes


def _size(dimension: memoryview) -> int | str | None:
    for number, value in fields(dimension):
        if number == 1 and isinstance(value, int):
            # Some exporters write -1 for a dynamic size, which is huge as a varint.
            return value if 0 < value < 1 << 62 else None
        if number == 2:
            return text(value) or None
    return None


def _data_files(path: Path, seen: _Seen) -> Iterator[Path]:
    """Yields the files that hold weights.

    Raises:
      UserModelError: a file is missing, too short, or not in the folder of the ONNX file.
    """
    folder = path.parent
    for name, external in seen.external:
        location = external.get("location", "")
        place = PurePosixPath(location)
        file = folder / place
        where = f"{path.name}: weight {name!r} is in {location!r}"
        if not location or place.is_absolute() or ".." in place.parts:
            raise UserModelError(f"{where}, which is not in the folder of the .onnx file")
        if not file.is_file():
            raise UserModelError(f"{where}, which does not exist; copy it next to the .onnx file")
        if not file.resolve().is_relative_to(folder.resolve()):
            raise UserModelError(f"{where}, which links to a file outside the folder")
        if instead := substitute_of(file, has_header=False):
            raise UserModelError(f"{where}, which {instead}")
        end = int(external.get("offset") or 0) + int(external.get("length") or 0)
        if end > file.stat().st_size:
            raise UserModelError(
                f"{where} up to byte {end}, but that file has only {file.stat().st_size} bytes"
            )
        yield file
