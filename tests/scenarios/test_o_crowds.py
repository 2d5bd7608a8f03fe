"""Group O: very many names, and requests that were changed on their way."""

import logging
import os
import socket
import time
from contextlib import closing
from random import Random
from typing import Final

import psutil
import pytest

import oncelog
from oncelog.api.registry import APIS
from oncelog.client.frames import encode_request
from oncelog.wire.codec import is_flexible
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.find_coordinator import FindCoordinatorRequest
from oncelog.wire.messages.list_groups import ListGroupsRequest
from oncelog.wire.messages.list_transactions import ListTransactionsRequest
from tests.scenarios.victim import MIB, Victim, framed, header, read_frame
from tests.txn.markers import describe_producers
from tests.txn.offsets import Committed, commit_plainly, committed
from tests.txn.producer import OK, TOPIC, Producer
from tests.txn.reader import read
from tests.txn.world import World
from tests.wire.golden import goldens

NAMES: Final = 1_000
HOUR_MS: Final = 3_600_000
#: A release runs it with a million.
MUTATIONS: Final = int(os.environ.get("ONCELOG_TEST_MUTATIONS", "2000"))
SEED: Final = int(os.environ.get("ONCELOG_TEST_SEED", "232"))


def test_o231_names_that_nobody_uses_are_forgotten_and_those_in_use_are_not() -> None:
    """Transactional ids, producers of a partition, and groups, a thousand of each."""
    settings = {
        "transactional.id.expiration.ms": str(2 * HOUR_MS),
        "producer.id.expiration.ms": str(2 * HOUR_MS),
        "offsets.retention.minutes": "120",
        "group.max.session.timeout.ms": "1800000",
    }
    with closing(World(settings)) as world:
        world.create(TOPIC)
        world.ask(FindCoordinatorRequest(key="g", key_type=0), 3)
        live = Producer(world, "live").ready()
        for number in range(NAMES):
            Producer(world, f"id-{number}", is_v2=True).ready().begin({0: [b"x"]}).decide(True)
            assert commit_plainly(world, number, group=f"group-{number}") == OK
        known = len(list_transactions(world)), len(describe_producers(world)), len(groups(world))
        for hour in range(6):
            world.pass_ms(HOUR_MS)
            live.begin({0: [b"hour %d" % hour]}).commit()
            assert commit_plainly(world, hour, group="live") == OK

        assert min(known) >= NAMES
        assert list_transactions(world) == ["live"]
        assert [p.producer_id for p in describe_producers(world)] == [live.producer_id]
        assert groups(world) == ["live"]
        assert committed(world, group="live") == [Committed(OK, 5)]
        assert read(world)[-6:] == [b"hour %d" % hour for hour in range(6)]


def list_transactions(world: World) -> list[str]:
    reply = world.ask(ListTransactionsRequest(), 1)
    return sorted(state.transactional_id for state in reply.transaction_states)


def groups(world: World) -> list[str]:
    return sorted(group.group_id for group in world.ask(ListGroupsRequest(), 4).groups)


# --- mutations --------------------------------------------------------------------------------


def requests() -> list[bytes]:
    """A frame, without its size, for every version of every API that is served."""
    found = []
    for key, api in sorted(APIS.items()):
        for golden in goldens(key):
            is_request = golden.cls.__name__.endswith("Request")
            if is_request and api.first <= golden.version <= api.last:
                tags = b"\0" if is_flexible(golden.cls, golden.version) else b""
                found.append(header(key, golden.version, client_id=b"c") + tags + golden.data)
    return found


def mutated(rng: Random, frames: list[bytes]) -> bytes:
    """A request with some bits flipped, cut, or continued with a part of another."""
    frame = bytearray(rng.choice(frames))
    for _ in range(rng.randint(1, 4)):
        # The first eight bytes say what it is: what is in it is more interesting.
        position = rng.randrange(min(8, len(frame) - 1), len(frame))
        match rng.randrange(4):
            case 0:
                frame[position] ^= 1 << rng.randrange(8)
            case 1:
                frame[position : position + 4] = rng.choice(
                    (b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff")
                )
            case 2:
                other = rng.choice(frames)
                frame[position:] = other[rng.randrange(len(other)) :]
            case _:
                del frame[rng.randrange(position, len(frame)) + 1 :]
    return bytes(frame)


class Prober:
    """Asks something simple on a connection of its own."""

    def __init__(self, raw: socket.socket) -> None:
        self._raw = raw

    def seconds(self) -> float:
        """How long the broker takes to answer: as long as its loop is kept busy."""
        began = time.monotonic()
        self._raw.sendall(
            encode_request(ApiVersionsRequest(), version=0, correlation_id=1, client_id="probe")
        )
        assert read_frame(self._raw)
        return time.monotonic() - began


@pytest.mark.slow
def test_o232_mutated_requests_neither_crash_nor_hang_the_broker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No exception that nobody expected, and nobody else waits for a second."""
    rng = Random(SEED)
    frames = requests()
    slowest_s = 0.0
    answered = 0
    caplog.set_level(logging.ERROR)
    rss_bytes = psutil.Process().memory_info().rss
    with oncelog.Broker({"auto.create.topics.enable": "true"}) as broker:
        victim = Victim(broker)
        with victim.socket() as probing:
            prober = Prober(probing)
            for number in range(MUTATIONS):
                data = mutated(rng, frames)
                with victim.socket() as raw:
                    raw.sendall(framed(data))
                    slowest_s = max(slowest_s, prober.seconds())
                    raw.settimeout(
                        0.005
                    )  # Some wait for a reason: a member for others, a fetch for data.
                    try:
                        answered += bool(raw.recv(1 << 16))
                    except (TimeoutError, ConnectionError):
                        pass
                failed = [record for record in caplog.records if record.levelno >= logging.ERROR]
                assert not failed, f"seed {SEED}, number {number}: {data.hex()}\n{caplog.text}"
        with victim.socket() as raw:
            assert Prober(raw).seconds() < 1

    assert slowest_s < 1
    assert answered > MUTATIONS / 10
    assert psutil.Process().memory_info().rss < rss_bytes + 256 * MIB
