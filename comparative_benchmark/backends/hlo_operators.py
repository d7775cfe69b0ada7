"""What the operators of an optimised XLA program do: read from its HLO text and a trace."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from comparative_benchmark.backends.operator_profile import (
    Cost,
    Operator,
    OperatorProfile,
    Span,
    operators_of,
)

_ITEM_BYTES = {"f64": 8, "f32": 4, "s32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "s64": 8}
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$|^(?:ENTRY )?%?([\w.\-]+) \{$")
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>\(.*?\)|\S+) (?P<opcode>[a-z][\w\-]*)"
    r"\((?P<operands>[^)]*)\)(?P<rest>.*)$"
)
_ARRAY = re.compile(r"^(\w+)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body)=%?([\w.\-]+)")
# Does not compute: of a fusion, nobody wants to read these.
_SILENT = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "iota"),
    *("reshape", "call", "after-all"),
}
# What a fusion with one of these spends its time in.
_HEAVY = ("dot", "convolution", "custom-call", "gather", "scatter", "sort", "reduce", "while")
_SHOWN = 4


@attrs.frozen
class _Instruction:
    shape: tuple[str, tuple[int, ...]] | None
    opcode: str
    operands: tuple[str, ...]
    rest: str


def operators_in(hlo: str) -> dict[str, Operator]:
    """Returns the instructions of an optimised program by name; costs are of a call.

    A fusion does what the instructions of its computation do.
    """
    computations = _computations(hlo)
    found: dict[str, Operator] = {}
    for body in computations.values():
        for name, instruction in body.items():
            if instruction.opcode not in _SILENT or instruction.opcode == "call":
                found[name] = _operator(name, instruction, body, computations)
    return found


def spans_of(events: Iterable[Mapping[str, Any]]) -> list[Span[str]]:
    """Returns the spans of a Chrome trace that name the HLO instruction (`hlo_op`)."""
    return [
        (
            str(event["args"]["hlo_op"]),
            (event.get("pid"), event.get("tid")),
            float(event["ts"]),
            float(event["ts"]) + float(event["dur"]),
        )
        for event in events
        if event.get("ph") == "X" and "hlo_op" in event.get("args", ())
    ]


def profile_of(
    events: Iterable[Mapping[str, Any]], hlo: str, *, stack: str, iterations: int
) -> OperatorProfile:
    """Returns the operators of a Chrome trace."""
    spans = spans_of(events)
    told = operators_in(hlo)
    operators = operators_of(spans, iterations, told)
    remarks = () if spans else ("XLA's profiler told no operators of this program",)
    if not spans:
        # What there is, at least, and what it would cost.
        operators = tuple(told.values())
    return OperatorProfile(
        stack=stack,
        iterations=iterations,
        operators=operators,
        fusions=fusions_in(hlo),
        remarks=remarks,
    )


def fusions_in(hlo: str) -> tuple[str, ...]:
    """Returns how many fusions a program has: kernels that XLA makes, and calls of libraries."""
    kinds = Counter(
        "library" if "kCustom" in instruction.rest else "generated"
        for body in _computations(hlo).values()
        for instruction in body.values()
        if instruction.opcode == "fusion"
    )
    return tuple(f"{count} {kind} fusions" for kind, count in kinds.most_common())


def _computations(hlo: str) -> dict[str, dict[str, _Instruction]]:
    found: dict[str, dict[str, _Instruction]] = {}
    body: dict[str, _Instruction] = {}
    for line in hlo.splitlines():
        if not line.startswith(" "):
            if match := _COMPUTATION.match(line):
                body = found.setdefault(match[1] or match[2], {})
        elif match := _INSTRUCTION.match(line):
            operands = tuple(re.findall(r"%([\w.\-]+)", match["operands"]))
            shape = _shape(match["type"])
            body[match["name"]] = _Instruction(shape, match["opcode"], operands, match["rest"])
    return found


def _shape(text: str) -> tuple[str, tuple[int, ...]] | None:
    match = _ARRAY.match(text)
    return (match[1], tuple(map(int, filter(None, match[2].split(","))))) if match else None


def _operator(
    name: str,
    instruction: _Instruction,
    around: Mapping[str, _Instruction],
    computations: Mapping[str, Mapping[str, _Instruction]],
) -> Operator:
    within = computations.get(called[1], {}) if (called := _CALLED.search(instruction.rest)) else {}
    if instruction.opcode not in ("fusion", "call"):
        return Operator(name=name, does=instruction.opcode, **_cost(instruction, around))
    opcodes = Counter(item.opcode for item in within.values() if item.opcode not in _SILENT)
    costs = [_cost(item, within) for item in within.values()]
    names = sorted(opcodes, key=lambda opcode: (opcode not in _HEAVY, -opcodes[opcode]))
    more = ["..."] if len(names) > _SHOWN else []
    known = [cost for cost in costs if cost]
    return Operator(
        name=name,
        does=", ".join(names[:_SHOWN] + more) or instruction.opcode,
        flops=sum(cost["flops"] for cost in known) if known else None,
        bytes=sum(cost["bytes"] for cost in known) if known else None,
    )


def _cost(instruction: _Instruction, around: Mapping[str, _Instruction]) -> Cost:
    """Returns flops and bytes of a matrix product whose shapes are known; nothing for others."""
    if instruction.opcode != "dot" or instruction.shape is None:
        return Cost()
    factors = [around[name].shape for name in instruction.operands if name in around]
    contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", instruction.rest)
    if len(factors) != 2 or None in factors or contracted is None:
        return Cost()
    arrays = [array for array in (*factors, instruction.shape) if array is not None]
    dims = arrays[0][1]
    depth = math.prod(dims[int(axis)] for axis in filter(None, contracted[1].split(",")))
    moved = sum(_ITEM_BYTES.get(kind, 4) * math.prod(shape) for kind, shape in arrays)
    return Cost(flops=2.0 * depth * math.prod(instruction.shape[1]), bytes=float(moved))
