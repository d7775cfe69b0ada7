"""An exporter's exception becomes a reason; a deficiency of the machine does not."""

import pytest

from comparative_benchmark.backends.api import UnsupportedError
from comparative_benchmark.backends.frameworks import torch_export


def _refuse(error):
    with torch_export.refusing("the exporter"):
        raise error


def test_the_root_of_an_error_is_the_reason():
    def convert():
        try:
            raise KeyError("aten.diff")
        except KeyError as error:
            raise RuntimeError("step 2 of 3 failed\nsee the report") from error

    with (
        pytest.raises(
            UnsupportedError, match=r"^the exporter does not support .*: KeyError: 'aten.diff'"
        ),
        torch_export.refusing("the exporter"),
    ):
        convert()


def test_a_circle_of_causes_has_an_end():
    first, second = KeyError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    assert torch_export.reason_of(first) == "KeyError: 'second'"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("first\nsecond", "RuntimeError: first"),
        (
            "\n  Check failed at a.cpp:7:\nheads differ\nmore",
            "Check failed at a.cpp:7: heads differ",
        ),
        ("at a.cpp:7:\nSummary:\n-- No rule for Diff\n-- other", "RuntimeError: No rule for Diff"),
        ("", "RuntimeError: no message"),
    ],
)
def test_the_telling_line_is_the_reason(text, said):
    assert torch_export.reason_of(RuntimeError(text)).endswith(said)


def test_a_reason_fits_a_line():
    assert len(torch_export.reason_of(RuntimeError("x" * 10_000))) == 400


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    ],
)
def test_a_lack_of_memory_stays_what_it_is(error):
    with pytest.raises(type(error)) as caught:
        _refuse(error)
    assert caught.value is error


def test_a_refusal_inside_keeps_its_reason():
    with pytest.raises(UnsupportedError, match=r"^no such type$"):
        _refuse(UnsupportedError("no such type"))
