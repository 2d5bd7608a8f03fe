"""Lines of text to records and back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.cli.record_text import BadLine, Line, as_json, as_plain, read_json, read_plain

contents = st.none() | st.binary(max_size=20) | st.text(max_size=5).map(str.encode)
headers = st.lists(st.tuples(st.text(max_size=5), contents), max_size=3).map(tuple)


@given(key=contents, value=contents, headers=headers, timestamp_ms=st.integers(0, 2**63 - 1))
def test_what_is_printed_as_json_reads_back(
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp_ms: int,
) -> None:
    line = as_json(
        topic="t",
        partition=3,
        offset=9,
        timestamp_ms=timestamp_ms,
        key=key,
        value=value,
        headers=headers,
    )

    assert b"\n" not in line
    assert read_json(line) == Line(
        key=key, value=value, headers=headers, partition=3, timestamp_ms=timestamp_ms
    )


def test_bytes_that_are_not_text_are_printed_in_base64() -> None:
    line = as_json(
        topic="t",
        partition=0,
        offset=1,
        timestamp_ms=2,
        key=None,
        value=b"\xff",
        headers=(("h", b"x"),),
    )

    assert line == (
        b'{"topic":"t","partition":0,"offset":1,"timestamp":2,"key":null,'
        b'"value":{"base64":"/w=="},"headers":[["h","x"]]}'
    )


def test_headers_may_be_an_object_too() -> None:
    assert read_json(b'{"value":"v","headers":{"a":"1"}}').headers == (("a", b"1"),)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[" * 100_000, "it is"),
        (b"[1]", "it is not a JSON object"),
        (b'{"vlaue":"x"}', "it has a field 'vlaue'"),
        (b'{"value":1}', "its value is neither text, null nor"),
        (b'{"value":{"base64":"?"}}', "its value is not base64"),
        (b'{"value":"\\ud800"}', "its value has half of a surrogate pair"),
        (b'{"key":["k"]}', "its key is neither"),
        (b'{"headers":["a"]}', "its headers are not pairs"),
        (b'{"headers":7}', "its headers are not pairs"),
        (b'{"headers":{"\\ud800":"x"}}', "its header's name has half of a surrogate pair"),
        (b'{"headers":[["a",1]]}', "its header 'a' is neither"),
        (b'{"partition":-1}', "its partition is not a whole number"),
        (b'{"partition":true}', "its partition is not a whole number"),
        (b'{"timestamp":1.5}', "its timestamp is not a whole number"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_the_reason(line: bytes, says: str) -> None:
    with pytest.raises(BadLine, match=re.escape(says)):
        read_json(line)


def test_a_plain_line_is_a_value() -> None:
    assert read_plain(b" a:b ", None) == Line(value=b" a:b ")


def test_the_first_separator_ends_the_key() -> None:
    assert read_plain(b"a::b", b":") == Line(key=b"a", value=b":b")


def test_a_line_without_a_separator_is_refused() -> None:
    with pytest.raises(BadLine, match="there is no '::' in it"):
        read_plain(b"a", b"::")


def test_plain_output_is_byte_for_byte() -> None:
    assert as_plain(b"k", b"\xff", None) == b"\xff"
    assert as_plain(None, None, b"\t") == b"null\tnull"
