"""Whether compiled programs ran: counts of calls, and the worker that refuses rows without them."""

import attrs
import pytest
from test_sampling import FakeBackend

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.backends.compiled_calls import MODEL, PROGRAM, CompiledCalls
from comparative_benchmark.engine.worker.sampling import CompiledRuns, measure_block


class Compiling(FakeBackend):
    """Calls a compiled program as often as listed for each iteration, then as before."""

    def __init__(self, calls, compilations=()):
        super().__init__()
        self.compiled_calls = CompiledCalls("Compiler")
        self._program = self.compiled_calls.counted(lambda: None)
        self._calls, self._compilations = list(calls), list(compilations)

    def dispatch(self):
        if self._compilations and self._compilations.pop(0):
            self.compiled_calls.counted(lambda: None)
        count = self._calls.pop(0) if len(self._calls) > 1 else self._calls[0]
        for _ in range(count):
            self._program()
        return super().dispatch()


def verified(backend):
    runs = CompiledRuns(backend.compiled_calls)
    with runs.first():
        backend.dispatch()
    return runs


def test_each_iteration_is_counted():
    backend = Compiling([1, 2, 0, 3], compilations=[False, True, False, False])
    block = measure_block(backend, 4)
    assert block.compiled_calls == [1, 2, 0, 3]
    assert block.compilations == [0, 1, 0, 0]
    assert measure_block(FakeBackend(), 4).compiled_calls == []


def test_an_unmeasured_iteration_before_the_block_does_not_count():
    backend = Compiling([5, 1])
    assert measure_block(backend, 2, refresh=True).compiled_calls == [1, 1]


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([1], None),
        ([1, 2], None),
        ([3], None),
        ([1, 1, 0, 1], "Compiler's program was not called in 1 of 3 timed iterations"),
        ([1, 0], "Compiler's program was not called in 3 of 3 timed iterations"),
        ([2, 1, 2, 2], "Compiler's programs received 1 of 2 calls in 1 of 3 timed iterations"),
        ([4, 1, 3, 0], "Compiler's programs received 3 of 4 calls in 3 of 3 timed iterations"),
    ],
)
def test_timed_iterations_need_the_calls_of_the_verified_run(calls, reason):
    backend = Compiling(calls)
    runs = verified(backend)
    block = measure_block(backend, 3)
    if reason is None:
        runs.require(block)
        return
    with pytest.raises(UnsupportedError, match=f"^{reason}: Compiler reported no reason$"):
        runs.require(block)


def test_a_compilation_in_each_iteration_is_reported_and_a_single_one_is_not():
    backend = Compiling([1], compilations=[False, True, True])
    runs = verified(backend)
    with pytest.raises(UnsupportedError, match="recompiled the program: an unknown reason"):
        runs.require(measure_block(backend, 2))
    runs.require(measure_block(backend, 2))
    backend = Compiling([1], compilations=[False, True, False])
    verified(backend).require(measure_block(backend, 2))


def test_verified_runs_need_calls():
    with pytest.raises(UnsupportedError, match="program was not called in the first run"):
        verified(Compiling([0]))
    backend = Compiling([2, 1])
    runs = verified(backend)
    with (
        pytest.raises(UnsupportedError, match="received 1 of 2 calls in the run on other inputs"),
        runs.verified("the run on other inputs"),
    ):
        backend.dispatch()
    with runs.verified("a further run", calls=1):
        backend.dispatch()


def test_a_backend_that_cannot_fall_back_is_not_checked():
    runs = CompiledRuns(None)
    with runs.first(), runs.verified("a further run"):
        pass
    runs.require(measure_block(FakeBackend(), 2))


def test_spans_are_opened_only_while_the_share_is_measured():
    names = []

    @attrs.define
    class Span:
        name: str

        def __enter__(self):
            names.append(self.name)

        def __exit__(self, *_):
            names.append("end")

    calls = CompiledCalls("Compiler")
    model = calls.bounded(lambda x, scale: calls.counted(lambda y: scale * y)(x))
    assert model(2, scale=3) == 6
    assert not names
    calls.span = Span
    assert model(2, scale=3) == 6
    assert names == [MODEL, PROGRAM, "end", "end"]
    assert calls.calls == calls.compilations == 2
