"""Time per operator of a profiled program, in one format for all stacks: `operators.json`."""

import gzip
import json
import math
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import attrs

from openxla.benchmark.files import write_atomically

_ROWS = 30


def take_files(
    scratch: Path, directory: Path, wanted: Mapping[str, str], *, stack: str
) -> list[Path]:
    """Moves and renames a profiler's files, whose names contain time and host name.

    The `*.xplane.pb` holds all that XLA's profiler has recorded; XProf and TensorBoard read it from
    a folder `plugins/profile/<any name>/`. Writing it requires neither.

    Args:
      scratch: the profiler's output directory; removed.
      directory: target directory.
      wanted: new names, by pattern of the profiler's names.
      stack: the profiler's stack, with its version.

    Raises:
      RuntimeError: a file is missing.
    """
    files = []
    for pattern, name in wanted.items():
        path = next(scratch.glob(f"plugins/profile/*/{pattern}"), None)
        if path is None:
            raise RuntimeError(f"the profile from {stack} lacks {pattern}")
        files.append(Path(shutil.move(path, directory / name)))
    shutil.rmtree(scratch)
    return files


def write_trace(path: Path, events: Iterable[Mapping[str, Any]]) -> None:
    """Writes a Chrome trace, compressed if the name ends in `.gz`."""
    content = json.dumps({"traceEvents": list(events), "displayTimeUnit": "ms"}).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def read_trace(path: Path) -> list[dict[str, Any]]:
    """Returns the events of a Chrome trace, compressed if the name ends in `.gz`."""
    content = path.read_bytes()
    document = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
    events: list[dict[str, Any]] = document["traceEvents"]
    return events


def naming_event(kind: str, process: int, row: int, name: str) -> dict[str, Any]:
    """Returns the trace event that names a process or a row: `process_name`, `thread_name`."""
    return {"name": kind, "ph": "M", "pid": process, "tid": row, "args": {"name": name}}


def time_table(
    head: str, kinds: tuple[str, str], spans: Iterable[tuple[str, str, float]], iterations: int
) -> str:
    """Returns a table of times and shares by two kinds of names, the longest first.

    Args:
      head: the profiled stack, with its version.
      kinds: headings of the names, e.g. `operator` and `node`.
      spans: a name of each kind, and a time in us.
      iterations: number of executions that the spans cover.
    """
    times: tuple[dict[str, list[float]], ...] = (defaultdict(list), defaultdict(list))
    for *names, time_us in spans:
        for by_name, name in zip(times, names, strict=True):
            by_name[name].append(time_us)
    total = sum(map(sum, times[0].values())) or 1
    each_ms = total / max(iterations, 1) / 1e3
    lines = [f"{head}, {iterations} iterations, {each_ms:.3f} ms per iteration in {kinds[1]}s"]
    for kind, by_name in zip(kinds, times, strict=True):
        lines += ["", f"{'share':>7}  {'us per iteration':>16}  {'calls':>6}  {kind}"]
        rows = sorted(by_name.items(), key=lambda item: -sum(item[1]))[:_ROWS]
        lines += [
            f"{sum(t) / total:7.1%}  {sum(t) / max(iterations, 1):16.1f}  {len(t):6}  {name}"
            for name, t in rows
        ]
    return "\n".join(lines) + "\n"


# Written next to the files of the stack's own profiler.
FILE = "operators.json"

Name = TypeVar("Name")
# Name, row whose spans nest (a thread), start and end in microseconds.
Span = tuple[Name, Any, float, float]


class Cost(TypedDict, total=False):
    """Flops and bytes of an operator; empty if its shapes are unknown."""

    flops: float
    bytes: float


@attrs.frozen(kw_only=True)
class Operator:
    """An operator or kernel of a program; times, calls and costs are per iteration.

    Attributes:
      name: its name in the stack.
      does: what it computes, if the name does not show it: an operator's type, or the operations
        that were fused into it.
      us: its own time, without its callees; None if the stack reports no times.
      flops, bytes: cost of a matrix product or convolution with known shapes.
      provider: what executed it, if the stack has several providers.
    """

    name: str
    does: str = ""
    calls: float = 1.0
    us: float | None = None
    flops: float | None = None
    bytes: float | None = None
    provider: str | None = None


@attrs.frozen(kw_only=True)
class OperatorProfile:
    """The operators of a profiled program; never a measurement of its latency.

    Attributes:
      stack: the profiled stack, with its version.
      operators: the longest first.
      breaks: why a compiler could not take the model as one graph.
      fallbacks: operators that ran somewhere a user would not expect.
      fusions: operators that the compiler fused, one line each.
      remarks: limits of this profile.
      repeats: operators of further profiles of the same program, taken one after the other.
      disturbed: CPU load by others while profiles were taken; empty if unknown.
    """

    stack: str
    iterations: int
    operators: tuple[Operator, ...]
    breaks: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    fusions: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    repeats: tuple[tuple[Operator, ...], ...] = ()
    disturbed: str = ""

    @property
    def us(self) -> float | None:
        """Time of all operators in an iteration; None if the stack reports no times."""
        times = [operator.us for operator in self.operators if operator.us is not None]
        return sum(times) if times else None


def combined(profiles: Sequence[OperatorProfile], disturbed: str = "") -> OperatorProfile:
    """Returns the profile with the median operator time, and the others as its repeats."""
    ranked = sorted(profiles, key=lambda profile: profile.us or 0.0)
    middle = ranked.pop((len(ranked) - 1) // 2)
    repeats = tuple(profile.operators for profile in ranked)
    return attrs.evolve(middle, repeats=repeats, disturbed=disturbed)


def write(profile: OperatorProfile, directory: Path) -> Path:
    """Writes the profile into a directory; returns the file."""
    path = directory / FILE
    write_atomically(path, json.dumps(attrs.asdict(profile), allow_nan=False))
    return path


def own_times(spans: Iterable[Span[Name]]) -> dict[Name, float]:
    """Returns the time of each name in microseconds, attributed so that the sum is wall time.

    In each row only the innermost span counts. Rows that are active at the same time share that
    time equally, so that time spent in parallel is counted once.
    """
    events: list[tuple[float, int, int]] = []
    known = list(spans)
    for index, (_, _, start, end) in enumerate(known):
        if end > start:
            events += [(start, 1, index), (end, 0, index)]
    # At equal times, ends come before starts, and the longer of two starting spans is outside.
    events.sort(key=lambda e: (e[0], e[1], -known[e[2]][3] if e[1] else -known[e[2]][2]))
    rows: defaultdict[Any, list[int]] = defaultdict(list)
    times: defaultdict[Name, float] = defaultdict(float)
    before = 0.0
    for now, is_start, index in events:
        working = [stack[-1] for stack in rows.values()]
        for busy in working:
            times[known[busy][0]] += (now - before) / len(working)
        before, row = now, known[index][1]
        if is_start:
            rows[row].append(index)
        else:
            rows[row].remove(index)
            if not rows[row]:
                del rows[row]
    return dict(times)


def operators_of(
    spans: Sequence[Span[Name]], iterations: int, told: Mapping[Name, Operator]
) -> tuple[Operator, ...]:
    """Returns the operators of some spans, with times and calls per iteration.

    Args:
      spans: spans of all iterations.
      iterations: number of iterations.
      told: details by name, with costs of one call; operators without details keep their name only.
    """
    times, counts = own_times(spans), Counter(name for name, *_ in spans)
    operators = []
    for name, count in counts.items():
        known, calls = told.get(name) or Operator(name=str(name)), count / max(iterations, 1)
        operators.append(
            attrs.evolve(
                known,
                us=times.get(name, 0.0) / max(iterations, 1),
                calls=calls,
                flops=known.flops and known.flops * calls,
                bytes=known.bytes and known.bytes * calls,
            )
        )
    return longest_first(operators)


def longest_first(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Returns operators sorted by time."""
    return tuple(sorted(operators, key=lambda operator: -(operator.us or 0.0)))


def product(m: int, n: int, k: int, *, batch: int = 1, item_bytes: int = 4) -> Cost:
    """Returns the cost of `batch` products [m, k] x [k, n]."""
    moved = m * k + k * n + m * n
    return Cost(flops=2.0 * batch * m * n * k, bytes=float(batch * moved * item_bytes))


_ITEM_BYTES = {"f64": 8, "f32": 4, "s32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "s64": 8}
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{$|^(?:ENTRY )?%?([\w.\-]+) \{$")
_INSTRUCTION = re.compile(
    r"^\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = (?P<type>\(.*?\)|\S+) (?P<opcode>[a-z][\w\-]*)"
    r"\((?P<operands>[^)]*)\)(?P<rest>.*)$"
)
_ARRAY = re.compile(r"^(\w+)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:calls|to_apply|body)=%?([\w.\-]+)")
# Instructions that do not compute; left out of descriptions of fusions.
_SILENT = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "iota"),
    *("reshape", "call", "after-all"),
}
# A fusion that contains one of these spends its time in it.
_HEAVY = ("dot", "convolution", "custom-call", "gather", "scatter", "sort", "reduce", "while")
_SHOWN = 4


@attrs.frozen
class _Instruction:
    shape: tuple[str, tuple[int, ...]] | None
    opcode: str
    operands: tuple[str, ...]
    rest: str


def operators_in(hlo: str) -> dict[str, Operator]:
    """Returns the instructions of an optimised program by name; costs are per call.

    A fusion is described by the instructions of its computation.
    """
    computations = _computations(hlo)
    operators: dict[str, Operator] = {}
    for body in computations.values():
        for name, instruction in body.items():
            if instruction.opcode not in _SILENT or instruction.opcode == "call":
                operators[name] = _operator(name, instruction, body, computations)
    return operators


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
    # Without spans, list the operators and their costs.
    operators = operators_of(spans, iterations, told) if spans else tuple(told.values())
    remarks = () if spans else ("XLA's profiler reported no operators for this program",)
    return OperatorProfile(
        stack=stack,
        iterations=iterations,
        operators=operators,
        fusions=fusions_in(hlo),
        remarks=remarks,
    )


def fusions_in(hlo: str) -> tuple[str, ...]:
    """Returns the number of fusions by kind: kernels that XLA makes, and library calls."""
    kinds = Counter(
        "library" if "kCustom" in instruction.rest else "generated"
        for body in _computations(hlo).values()
        for instruction in body.values()
        if instruction.opcode == "fusion"
    )
    return tuple(f"{count} {kind} fusions" for kind, count in kinds.most_common())


def _computations(hlo: str) -> dict[str, dict[str, _Instruction]]:
    computations: dict[str, dict[str, _Instruction]] = {}
    body: dict[str, _Instruction] = {}
    for line in hlo.splitlines():
        if not line.startswith(" "):
            if match := _COMPUTATION.match(line):
                body = computations.setdefault(match[1] or match[2], {})
        elif match := _INSTRUCTION.match(line):
            operands = tuple(re.findall(r"%([\w.\-]+)", match["operands"]))
            shape = _shape(match["type"])
            body[match["name"]] = _Instruction(shape, match["opcode"], operands, match["rest"])
    return computations


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
    """Returns flops and bytes of a matrix product with known shapes; empty for others."""
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
