"""Which outputs a second input changes, and whether programs of the model may be ranked."""

import numpy as np
import pytest

from comparative_benchmark.engine.judging import Changes, changes
from openxla.benchmark.artifacts import array_files
from openxla.benchmark.artifacts.workload_store import Due

RANDOM = np.random.default_rng(0)
SIGNAL = RANDOM.normal(size=1000)
# As far from the truth as float32 is.
ROUNDED = SIGNAL.astype(np.float32)


@pytest.fixture
def due(tmp_path):
    """Writes truth and reference of an input."""

    def write(name, *truth, reference=None):
        folder = tmp_path / name
        for kind, values in (("truth", truth), ("reference", reference or truth)):
            array_files.save_all(folder / kind, "output", list(values))
        return Due(
            inputs=[],
            truth=array_files.numbered(folder / "truth", "output"),
            reference=array_files.numbered(folder / "reference", "output"),
        )

    return write


@pytest.mark.parametrize(
    ("off", "changed"), [(0.0, False), (1e-7, False), (1e-6, False), (1e-5, True), (1.0, True)]
)
def test_a_change_exceeds_what_is_allowed_as_error_tenfold(due, off, changed):
    first = due("first", SIGNAL, reference=[ROUNDED])
    found = changes(first, due("second", SIGNAL + off, reference=[ROUNDED]), {})
    assert found.changed == (changed,)
    assert found.constant == (off == 0.0,)
    assert (found.not_ranked is None) == changed


@pytest.mark.parametrize("fill", [-1e9, -np.inf])
def test_numbers_next_to_a_mask_count(due, fill):
    def masked(signal):
        return np.where(np.arange(1000) % 7 == 0, fill, signal)

    first = due("first", masked(SIGNAL), reference=[masked(SIGNAL).astype(np.float32)])
    for other, changed in ((SIGNAL[::-1], True), (SIGNAL, False), (SIGNAL + 1e-7, False)):
        second = due(f"second-{changed}-{other[0]}", masked(other))
        assert changes(first, second, {}).changed == (changed,)


def test_integers_change_by_one_element(due):
    tokens = np.arange(6)
    other = tokens.copy()
    other[3] = 9
    first = due("first", SIGNAL, tokens, reference=[ROUNDED, tokens])
    both = changes(first, due("both", SIGNAL[::-1], other, reference=[ROUNDED, other]), {})
    assert both.complete
    assert both.remark is None
    one = changes(first, due("one", SIGNAL[::-1], tokens, reference=[ROUNDED, tokens]), {})
    assert one.changed == (True, False)
    # All inputs gave the same bits: it depends on none.
    assert one.remark is None
    # Another input has shown that it depends on one.
    known = one.after(both)
    assert known.remark == "no input tried changes output 1 beyond rounding"
    assert known.not_ranked is None


def test_infinities_are_compared_exactly(due):
    masked = SIGNAL.copy()
    masked[:3] = [-np.inf, np.inf, np.nan]
    moved = np.roll(masked, 1)
    first = due("first", masked, reference=[masked.astype(np.float32)])
    assert not changes(first, first, {}).complete
    assert changes(first, due("moved", moved, reference=[masked.astype(np.float32)]), {}).complete


def test_nothing_is_ranked_if_no_output_changes():
    flags = {"changed": (False,), "constant": (True,)}
    for floating in (True, False):
        found = Changes(**flags, floating=(floating,))
        assert found.not_ranked == "none of the inputs tried changes any output"
