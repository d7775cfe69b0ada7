"""Dynamo's reasons for fallbacks, and the share of a model that was actually compiled."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import attrs
from torch._dynamo import config
from torch._dynamo.utils import counters, get_compilation_metrics
from torch.profiler import ProfilerActivity, profile, record_function

from comparative_benchmark.backends.compiled_calls import MODEL, PROGRAM, CompiledCalls

# Name, start and end in microseconds.
Span = tuple[str, float, float]

_ITERATION = "iteration"
# Dynamo's own spans around a compiled program: guards, and the code before its first call.
_GUARDS = "TorchDynamo Cache Lookup"
_OVERHEAD = (_GUARDS, "Pregraph bytecode")
# Time per frame that Dynamo and the profiler take outside these spans: 10 to 45 us were measured.
_FRAME_US = 50.0
_EAGER = "aten::"
_ITERATIONS, _LONGEST_S = 10, 1.0
_LIMIT = re.compile(r"Limit type: (\w+)")


@attrs.define
class DynamoCalls(CompiledCalls):
    """Calls of Inductor's programs, with Dynamo's reasons."""

    def fallback_reason(self) -> str:
        """See `CompiledCalls.fallback_reason`."""
        if limit := next(filter(None, map(_LIMIT.search, counters["unimplemented"])), None):
            name = limit[1]
            limit_reason = f"{name.replace('_', ' ')} ({getattr(config, name)}) reached"
            return f"{limit_reason}, because of {self.recompile_reason()}"
        for text in (*counters["unimplemented"], *counters["graph_break"]):
            return str(text).strip().partition("\n")[0].strip()
        if not counters["frames"]["total"]:
            return "the function passed to torch.compile is not called"
        return CompiledCalls.fallback_reason(self)

    def has_left_code(self) -> bool:
        """See `CompiledCalls.has_left_code`: Dynamo broke a graph, or gave up on a frame."""
        frames = counters["frames"]
        has_reason = counters["unimplemented"] or counters["graph_break"]
        return bool(has_reason) or frames["ok"] < frames["total"]

    def recompile_reason(self) -> str:
        """Returns the guard that failed last."""
        for metrics in reversed(get_compilation_metrics()):
            if reason := getattr(metrics, "recompile_reason", None):  # missing in older releases
                guard = reason.partition("\n")[0].partition("#")[0]
                return "the failed guard " + re.sub(r"^\d+/\d+: ", "", guard).strip()
        return CompiledCalls.recompile_reason(self)


def measure_shares(
    counter: CompiledCalls, iterate: Callable[[], object], wait: Callable[[], object]
) -> dict[str, float]:
    """Returns the shares of `Backend.compiled_shares`.

    Dynamo's own work counts as compiled code: a model of a few microseconds has much of it without
    any eager code. Everything else is eager: operators, all of which are seen, and Python, if
    Dynamo has left any. A few iterations are profiled, and the largest share counts, because
    disturbances only make it smaller.

    Args:
      counter: counter of programs; its calls are compared with those of `bounded` models, or with
        iterations if there are no such calls.
      iterate: runs an iteration to its end.
      wait: waits for the device, so that its time is attributed to its cause.
    """

    @contextmanager
    def span(name: str) -> Iterator[None]:
        wait()
        with record_function(name):
            yield
            wait()

    counter.span = span
    try:
        with profile(activities=[ProfilerActivity.CPU]) as profiled:
            start = time.perf_counter()
            for _ in range(_ITERATIONS):
                with record_function(_ITERATION):
                    iterate()
                if time.perf_counter() - start > _LONGEST_S:
                    break
    finally:
        counter.span = None
    known = (_ITERATION, MODEL, PROGRAM, *_OVERHEAD)
    spans = (
        (event.name, event.time_range.start, event.time_range.end)
        for event in profiled.events()
        if event.name in known or event.name.startswith(_EAGER)
    )
    return compiled_shares(spans, has_python=counter.has_left_code())


def compiled_shares(spans: Iterable[Span], *, has_python: bool = True) -> dict[str, float]:
    """Returns the largest shares among iterations; there must be at least one.

    Args:
      spans: events of the profile.
      has_python: whether time outside all spans counts as eager Python. Without such code it is
        overhead of Dynamo and the profiler, which on slow CPUs exceeds the usual time per frame.
    """
    every = list(spans)
    shares, of_iterations = [], []
    for iteration in _named(every, _ITERATION):
        inside = _within(every, [iteration])
        if models := _named(inside, MODEL):
            of_iterations.append(_covered(models) / _covered([iteration]))
        models = models or [iteration]
        inside = _within(inside, models)  # excludes the backward pass of training
        compiled = _named(inside, PROGRAM, *_OVERHEAD)
        operators = [span for span in inside if span[0].startswith(_EAGER)]
        whole, known = _covered(models), _covered(compiled)
        frames = len(_named(inside, _GUARDS)) + len(models)
        python = whole - known - frames * _FRAME_US if has_python else 0.0
        eager = max(python, _covered([*operators, *compiled]) - known)
        shares.append(1 - max(0.0, eager) / whole)
    notes = {"compiled_share": max(shares)}
    return {**notes, "share_of_iteration": max(of_iterations)} if of_iterations else notes


def _named(spans: Iterable[Span], *names: str) -> list[Span]:
    return [span for span in spans if span[0] in names]


def _within(spans: Iterable[Span], outer: Sequence[Span]) -> list[Span]:
    return [s for s in spans if any(start <= s[1] and s[2] <= end for _, start, end in outer)]


def _covered(spans: Iterable[Span]) -> float:
    """Returns the time covered by at least one of the spans."""
    total, reached = 0.0, float("-inf")
    for _, start, end in sorted(spans, key=lambda span: span[1]):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
