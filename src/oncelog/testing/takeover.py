"""A second instance of a transactional id: asks for the id and goes away again."""

import socket
import time
from typing import Any, Final

from oncelog.client.addresses import Address
from oncelog.client.frames import FrameReader, decode_response, encode_request
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

#: The broker is busy with the id, or has just started: it says when to ask again.
PASSING: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
CLIENT_ID: Final = "oncelog-testing"
VERSION: Final = 4
WAIT_S: Final = 20.0
RETRY_S: Final = 0.02


def take_over(address: Address, transactional_id: str) -> tuple[int, int]:
    """Get the next epoch of an id; returns the producer id and the epoch."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    deadline_s = time.monotonic() + WAIT_S
    with socket.create_connection(address, timeout=WAIT_S) as connection:
        while True:
            reply = _ask(connection, request)
            if not reply.error_code:
                return reply.producer_id, reply.producer_epoch
            if reply.error_code not in PASSING or time.monotonic() > deadline_s:
                name = ErrorCode(reply.error_code).name
                raise RuntimeError(f"{transactional_id!r} cannot be taken over: {name}.")
            time.sleep(RETRY_S)


def _ask(connection: socket.socket, request: Any) -> InitProducerIdResponse:
    connection.sendall(
        encode_request(request, version=VERSION, correlation_id=1, client_id=CLIENT_ID)
    )
    frames = FrameReader()
    while data := connection.recv(1 << 16):
        for frame in frames.feed(data):
            reply: InitProducerIdResponse = decode_response(
                frame, api_key=request.API_KEY, version=VERSION
            )
            return reply
    raise ConnectionError("The broker hung up.")
