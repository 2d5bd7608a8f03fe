"""Values as bytes and back."""

import math

import pytest

from oncelog.apps import BY_TYPE, JSON, Record


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (b"\x00", b"\x00"),
        (bytearray(b"a"), b"a"),
        ("ä", "ä".encode()),
        (None, None),
        ({"a": [1, None, "ä"]}, '{"a":[1,null,"ä"]}'.encode()),
        (7, b"7"),
        (True, b"true"),
    ],
)
def test_values_are_written_by_their_type(value: object, data: bytes | None) -> None:
    assert BY_TYPE.encode("t", value) == data


def test_json_says_what_it_cannot_write() -> None:
    assert JSON.encode("t", None) == b"null"
    with pytest.raises(TypeError, match="not JSON serializable"):
        JSON.encode("t", object())
    with pytest.raises(ValueError, match="not JSON compliant"):
        JSON.encode("t", math.nan)


def test_a_record_is_read_as_the_handler_likes() -> None:
    class Hex:
        def encode(self, topic: str, value: int) -> bytes | None:
            return f"{value:x}".encode()

        def decode(self, topic: str, data: bytes | None) -> int:
            return int(data or b"0", 16)

    record = Record(topic="t", partition=1, offset=7, value=b"10")

    assert (record.text, record.json(), record.decoded(Hex())) == ("10", 10, 16)
    assert Record(topic="t", partition=1, offset=7).json() is None
    assert str(record) == "t-1@7"
