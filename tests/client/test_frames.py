"""Bytes to frames and frames to messages, without a socket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.errors import BadReply
from oncelog.client.frames import (
    FrameReader,
    correlation_id_of,
    decode_response,
    encode_request,
)
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.heartbeat import HeartbeatRequest


def test_a_request_of_an_old_version_has_the_plain_header() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=7, member_id="m")

    frame = encode_request(request, version=0, correlation_id=5, client_id="me")

    assert frame == bytes.fromhex(
        "00000016"  # size
        "000c 0000 00000005 0002 6d65"  # Heartbeat v0, request 5, "me"
        "0001 67 00000007 0001 6d"
    )


def test_a_request_of_a_flexible_version_has_tags_after_its_header() -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="b")

    frame = encode_request(request, version=3, correlation_id=1, client_id="")

    assert frame == bytes.fromhex("00000010 0012 0003 00000001 0000 00 0261 0262 00")


def test_the_answer_to_api_versions_never_has_tags_in_its_header() -> None:
    frame = memoryview(bytes.fromhex("00000009 0000 02 0012 0000 0004 00 00000000 00"))

    reply = decode_response(frame, api_key=18, version=3)

    assert correlation_id_of(frame) == 9
    assert [(api.api_key, api.max_version) for api in reply.api_keys] == [(18, 4)]


def test_other_flexible_answers_have_them() -> None:
    frame = memoryview(bytes.fromhex("00000009 00 00000000 001b 00"))

    reply = decode_response(frame, api_key=12, version=4)

    assert reply.error_code == 27


@pytest.mark.parametrize("tail", ["", "00", "00 0000", "80"])
def test_a_cut_answer_is_refused(tail: str) -> None:
    frame = memoryview(bytes.fromhex("00000009" + tail))

    with pytest.raises(BadReply, match="HeartbeatResponse v4 cannot be read"):
        decode_response(frame, api_key=12, version=4)


@given(bodies=st.lists(st.binary(max_size=20)), cuts=st.lists(st.integers(1, 9), min_size=1))
def test_frames_come_out_whole_however_they_arrive(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader = FrameReader()
    found = []

    while stream:
        for cut in cuts:
            found += [bytes(frame) for frame in reader.feed(stream[:cut])]
            stream = stream[cut:]

    assert found == bodies
    assert reader.is_between_frames


@pytest.mark.parametrize("size", ["ffffffff", "00000065", "48545450"])
def test_a_size_that_cannot_be_is_refused_before_it_costs_memory(size: str) -> None:
    with pytest.raises(BadReply, match="does not speak Kafka"):
        FrameReader(max_bytes=100).feed(bytes.fromhex(size))


def test_a_broker_that_speaks_tls_is_found_out() -> None:
    alert = bytes.fromhex("15030300020246")  # fatal: protocol version

    with pytest.raises(BadReply, match=r"speaks TLS .* set security\.protocol to SSL"):
        FrameReader().feed(alert)


def test_a_frame_within_one_piece_is_not_copied() -> None:
    piece = b"\0\0\0\3abc\0\0\0\2de\0\0"

    first, second = FrameReader().feed(piece)

    assert (bytes(first), bytes(second)) == (b"abc", b"de")
    assert first.obj is piece
    assert second.obj is piece
