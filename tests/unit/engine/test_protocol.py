"""Messages between session and worker."""

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from comparative_benchmark.engine.worker.protocol import (
    MAX_MESSAGE_BYTES,
    Decoder,
    ProtocolError,
    encode,
)

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
messages = st.dictionaries(st.text(), values, max_size=4)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.slow
@given(st.lists(messages, max_size=4), st.lists(st.integers(0, 10**6), max_size=20))
def test_messages_survive_any_cutting_of_the_stream(sent, cuts):
    decoder = Decoder()
    received = []
    for chunk in chunks(b"".join(map(encode, sent)), cuts):
        received += decoder.feed(chunk)
    assert received == sent
    assert decoder._buffer == b""


@given(messages)
def test_a_message_survives_byte_by_byte(message):
    decoder = Decoder()
    data = encode(message)
    received = [
        item for index in range(len(data)) for item in decoder.feed(data[index : index + 1])
    ]
    assert received == [message]


@given(messages, st.integers(0, 10**6))
def test_a_cut_message_stays_pending(message, cut):
    data = encode(message)
    part = data[: cut % len(data)]
    decoder = Decoder()
    assert decoder.feed(part) == []
    assert decoder._buffer == part
    assert decoder.feed(data[len(part) :]) == [message]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_know_is_not_sent(number):
    with pytest.raises(ValueError, match="JSON compliant"):
        encode({"x": [number]})


def test_what_json_can_not_hold_is_not_sent():
    with pytest.raises(TypeError):
        encode({"x": object()})


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":NaN}',
        b'{"x":Infinity}',
        b'{"x":-Infinity}',
        b"[1]",
        b"1",
        b"null",
        b'"text"',
        b"{",
        b'{"x":}',
        b'{"x":1}{"y":2}',
        b"\xff\xfe",
        b"",
        b"[" * 100_000,
        b'{"x":' * 100_000,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_body_that_is_no_finite_json_object_is_refused(body):
    with pytest.raises(ProtocolError):
        Decoder().feed(b"%d %s\n" % (len(body), body))


@pytest.mark.parametrize(
    "data",
    [
        b"Segmentation fault\n",
        b" 2 {}\n",
        b"\n2 {}\n",
        b"-2 {}\n",
        b"+2 {}\n",
        b"2.0 {}\n",
        b"0x2 {}\n",
        b"1 {}\n",
        b"3 {}\nx",
        b"2 {} ",
        b"2{}\n2 {}\n",
        b"\x00" * 30,
        b"1" * 20,
        b"9" * 40 + b" {}\n",
        b"%d {}\n" % (MAX_MESSAGE_BYTES + 1),
        b"99999999999999 {}\n",
    ],
    ids=lambda data: repr(data[:20]),
)
def test_stray_bytes_and_wrong_lengths_are_refused(data):
    with pytest.raises(ProtocolError):
        Decoder().feed(data)


def test_a_message_of_the_greatest_length_is_awaited():
    decoder = Decoder()
    assert decoder.feed(b"%d {" % MAX_MESSAGE_BYTES) == []


@given(messages, st.binary(min_size=30, max_size=60).filter(lambda data: not data[:1].isdigit()))
def test_garbage_after_a_message_is_refused_at_the_latest_with_the_next(message, garbage):
    decoder = Decoder()
    with pytest.raises(ProtocolError):
        decoder.feed(encode(message) + garbage)


def test_the_length_counts_bytes_not_letters():
    data = b'12 {"x":"\xc3\xa9\xc3\xa9"}\n'
    assert Decoder().feed(data) == [{"x": "éé"}]


@given(messages)
def test_a_message_is_one_line(message):
    data = encode(message)
    assert data.count(b"\n") == 1
    length, _, body = data.partition(b" ")
    assert int(length) == len(body) - 1
    assert json.loads(body) == message
