"""A client without patience or retries: it says one thing, and tells what became of it."""

import socket
import time
from collections.abc import Callable
from typing import Any

from oncelog.client.addresses import parse_address
from oncelog.client.frames import FrameReader, decode_response, encode_request
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.end_txn import EndTxnRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from oncelog.wire.messages.metadata import MetadataRequest

WAIT_S = 20.0


class NoReply(Exception):
    """Nothing came in time."""


class HungUp(Exception):
    """The other side has ended the connection."""


class Plain:
    """One connection."""

    def __init__(self, address: str, *, client_id: str = "plain") -> None:
        self.socket = socket.create_connection(parse_address(address), timeout=WAIT_S)
        self._client_id = client_id
        self._frames = FrameReader()
        self._replies: list[bytes] = []
        self._last_id = 0

    def send(self, message: Any, version: int) -> int:
        self._last_id += 1
        self.socket.sendall(
            encode_request(
                message, version=version, correlation_id=self._last_id, client_id=self._client_id
            )
        )
        return self._last_id

    def reply(self, *, within_s: float = WAIT_S) -> bytes:
        """The next frame."""
        self.socket.settimeout(within_s)
        while not self._replies:
            try:
                data = self.socket.recv(1 << 16)
            except TimeoutError:
                raise NoReply from None
            except ConnectionError:
                raise HungUp from None
            if not data:
                raise HungUp
            self._replies += [bytes(frame) for frame in self._frames.feed(data)]
        return self._replies.pop(0)

    def ask(self, message: Any, version: int, *, within_s: float = WAIT_S) -> Any:
        wanted = self.send(message, version)
        frame = memoryview(self.reply(within_s=within_s))
        assert int.from_bytes(frame[:4], "big") == wanted
        return decode_response(frame, api_key=message.API_KEY, version=version)

    def metadata(self, *, within_s: float = WAIT_S) -> Any:
        return self.ask(MetadataRequest(topics=None), 9, within_s=within_s)

    def versions(self) -> Any:
        return self.ask(ApiVersionsRequest(), 0)

    def init(self, transactional_id: str) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        reply: InitProducerIdResponse = self.ask(request, 4)
        return reply

    def end(self, transactional_id: str, identity: InitProducerIdResponse) -> int:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=True,
        )
        return int(self.ask(request, 3).error_code)

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Plain":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def until(condition: Callable[[], bool], *, within_s: float = WAIT_S) -> None:
    """Wait for something that is about to be true."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)
