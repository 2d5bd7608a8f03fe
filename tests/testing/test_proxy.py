"""The proxy: each fault does what it says, to whom it says, as often as it says."""

import time
from collections.abc import Iterator

import pytest

import oncelog
from oncelog.testing import (
    FaultDidNotHappen,
    ImpossibleFault,
    Proxy,
    black_hole,
    cut,
    delay,
    half_close,
    hold,
    lose_reply,
    refuse,
    repeat,
    short_lives,
    trickle,
)
from oncelog.wire.messages.api_versions import ApiVersionsRequest
from oncelog.wire.messages.init_producer_id import InitProducerIdRequest
from oncelog.wire.messages.metadata import MetadataRequest
from tests.testing.plain import HungUp, NoReply, Plain, until

#: Longer than a reply takes that is not held up.
SHORT_S = 0.3


@pytest.fixture(scope="module")
def broker() -> Iterator[oncelog.Broker]:
    with oncelog.Broker() as running:
        yield running


@pytest.fixture
def proxy(broker: oncelog.Broker) -> Iterator[Proxy]:
    with Proxy(broker.bootstrap_servers) as running:
        yield running


def epoch_of(broker: oncelog.Broker, transactional_id: str) -> int:
    """What the next instance gets: one more for each that the broker knows of."""
    with Plain(broker.bootstrap_servers) as plain:
        return plain.init(transactional_id).producer_epoch


def an_init(transactional_id: str) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)


def test_without_a_fault_everything_passes(proxy: Proxy) -> None:
    with Plain(proxy.address) as plain:
        assert plain.versions().error_code == 0
        assert [each.node_id for each in plain.metadata().brokers] == [1]


def test_a_lost_reply_was_carried_out_and_is_never_heard_of(
    proxy: Proxy, broker: oncelog.Broker
) -> None:
    lost = proxy.fault(lose_reply("InitProducerId"))
    with Plain(proxy.address) as plain:
        plain.versions()
        plain.send(an_init("lost"), 4)
        with pytest.raises(NoReply):
            plain.reply(within_s=SHORT_S)
        assert (lost.hits, lost.remaining) == (1, 0)
        # A stream has no holes: what comes behind the lost reply does not arrive either.
        plain.send(ApiVersionsRequest(), 0)
        with pytest.raises(NoReply):
            plain.reply(within_s=SHORT_S)
        lost.end()
        with pytest.raises(HungUp):
            plain.reply()
    assert epoch_of(broker, "lost") == 1


def test_a_cut_before_a_request_keeps_it_from_the_broker(
    proxy: Proxy, broker: oncelog.Broker
) -> None:
    before = proxy.fault(cut("InitProducerId", when="before"))
    with Plain(proxy.address) as plain:
        plain.send(an_init("before"), 4)
        with pytest.raises(HungUp):
            plain.reply()
    assert before.hits == 1
    assert epoch_of(broker, "before") == 0


def test_a_cut_within_a_request_keeps_it_from_the_broker(
    proxy: Proxy, broker: oncelog.Broker
) -> None:
    proxy.fault(cut("InitProducerId", when="within request"))
    with Plain(proxy.address) as plain:
        plain.send(an_init("within"), 4)
        with pytest.raises(HungUp):
            plain.reply()
    assert epoch_of(broker, "within") == 0


@pytest.mark.parametrize("when", ["after", "within reply"])
def test_a_cut_after_a_request_leaves_it_carried_out(
    when: str, proxy: Proxy, broker: oncelog.Broker
) -> None:
    proxy.fault(cut("InitProducerId", when="after" if when == "after" else "within reply"))
    with Plain(proxy.address) as plain:
        plain.send(an_init(when), 4)
        with pytest.raises(HungUp):
            plain.reply()
    assert epoch_of(broker, when) == 1


@pytest.mark.parametrize("side", ["request", "reply"])
def test_a_delay_holds_each_of_them_up_and_they_travel_side_by_side(
    side: str, proxy: Proxy
) -> None:
    with (
        proxy.fault(
            delay("ApiVersions", seconds=0.4, side="request" if side == "request" else "reply")
        ) as delayed,
        Plain(proxy.address) as plain,
    ):
        began = time.monotonic()
        for _ in range(3):
            plain.send(ApiVersionsRequest(), 0)
        for _ in range(3):
            plain.reply()
        took_s = time.monotonic() - began
    assert delayed.hits == 3
    assert 0.4 <= took_s < 1.1
    assert delayed.remaining == 0


def test_when_a_fault_has_ended_nothing_happens_any_more(proxy: Proxy) -> None:
    with Plain(proxy.address) as plain:
        with proxy.fault(delay(seconds=5)):
            pass
        assert plain.metadata(within_s=4).brokers


def test_a_held_request_arrives_when_it_is_let_go_though_its_client_has_left(
    proxy: Proxy, broker: oncelog.Broker
) -> None:
    held = proxy.fault(hold("InitProducerId"))
    with Plain(proxy.address) as plain:
        plain.send(an_init("held"), 4)
        held.wait()
    assert epoch_of(broker, "held") == 0

    held.end()

    until(lambda: epoch_of(broker, "held") > 1)


def test_a_repeated_request_is_carried_out_twice_and_answered_once(
    proxy: Proxy, broker: oncelog.Broker
) -> None:
    proxy.fault(repeat("InitProducerId"))
    with Plain(proxy.address) as plain:
        assert plain.init("twice").producer_epoch == 0
        assert plain.versions().error_code == 0
    assert epoch_of(broker, "twice") == 2


def test_a_trickle_arrives_whole_and_late(proxy: Proxy) -> None:
    with Plain(proxy.address) as plain:
        quick = plain.versions()
        with proxy.fault(trickle("ApiVersions", bytes_per_second=1000)):
            began = time.monotonic()
            slow = plain.versions()
    assert slow == quick
    assert time.monotonic() - began > 0.2


def test_a_trickle_that_is_ended_arrives_at_once(proxy: Proxy) -> None:
    with Plain(proxy.address) as plain:
        slow = proxy.fault(trickle("Metadata", bytes_per_second=10))
        plain.send(MetadataRequest(topics=None), 9)
        slow.wait()
        slow.end()
        assert plain.reply(within_s=5)


def test_half_a_close_towards_the_broker_ends_the_connection(proxy: Proxy) -> None:
    halved = proxy.fault(half_close("Metadata"))
    with Plain(proxy.address) as plain:
        plain.versions()
        plain.send(MetadataRequest(topics=None), 9)
        with pytest.raises(HungUp):
            plain.reply() and plain.reply()
    assert halved.hits == 1


def test_half_a_close_towards_the_client_lets_it_speak_on(
    proxy: Proxy, broker: oncelog.Broker
) -> None:
    proxy.fault(half_close("Metadata", towards="client"))
    with Plain(proxy.address) as plain:
        plain.send(MetadataRequest(topics=None), 9)
        with pytest.raises(HungUp):
            plain.reply()
        plain.send(an_init("half"), 4)
        until(lambda: epoch_of(broker, "half") > 0)


def test_in_a_black_hole_nothing_is_heard_and_afterwards_everything(proxy: Proxy) -> None:
    with Plain(proxy.address) as old:
        old.versions()
        with proxy.fault(black_hole()), Plain(proxy.address) as new:
            new.send(ApiVersionsRequest(), 0)
            old.send(ApiVersionsRequest(), 0)
            with pytest.raises(NoReply):
                new.reply(within_s=SHORT_S)
            with pytest.raises(NoReply):
                old.reply(within_s=0.01)
        assert old.reply()


def test_who_is_refused_is_cut_off_and_comes_again_afterwards(proxy: Proxy) -> None:
    with Plain(proxy.address) as plain:
        plain.versions()
        with proxy.fault(refuse()) as refused:
            with pytest.raises(HungUp):
                plain.reply()
            with Plain(proxy.address) as other, pytest.raises(HungUp):
                other.reply()
        assert refused.hits == 2
    with Plain(proxy.address) as plain:
        plain.versions()


def test_no_connection_outlives_its_short_life(proxy: Proxy) -> None:
    with (
        Plain(proxy.address) as old,
        proxy.fault(short_lives(seconds=(0.05, 0.1))),
        Plain(proxy.address) as new,
    ):
        for each in (old, new):
            with pytest.raises(HungUp):
                each.reply(within_s=5)


# --- which requests -----------------------------------------------------------------------------


def test_a_fault_is_for_one_client(proxy: Proxy) -> None:
    mine = proxy.fault(cut("ApiVersions", client_id="mine"))
    with Plain(proxy.address, client_id="yours") as yours:
        yours.versions()
    assert mine.hits == 0
    with Plain(proxy.address, client_id="mine") as plain, pytest.raises(HungUp):
        plain.versions()


def test_a_fault_is_for_the_nth_request_and_so_many_after_it(proxy: Proxy) -> None:
    third = proxy.fault(delay("ApiVersions", seconds=0, nth=3, times=2))
    seen = []
    with Plain(proxy.address) as plain:
        for _ in range(6):
            plain.versions()
            seen.append(third.hits)
    assert seen == [0, 0, 1, 2, 2, 2]


def test_chances_come_from_the_seed(proxy: Proxy) -> None:
    def drawn(seed: int) -> list[int]:
        with (
            proxy.fault(delay(seconds=0, probability=0.5, seed=seed)) as often,
            Plain(proxy.address) as plain,
        ):
            return [(plain.versions(), often.hits)[1] for _ in range(30)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert 5 < drawn(1)[-1] < 25


def test_a_fault_that_does_not_happen_is_a_failure_where_it_is_waited_for(proxy: Proxy) -> None:
    never = proxy.fault(cut("EndTxn"))
    with pytest.raises(FaultDidNotHappen, match="cut happened 0 times and not 1 within"):
        never.wait(timeout_s=0.01)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda: cut("EndTransaction"), "There is no request 'EndTransaction'."),
        (lambda: cut("endtxn"), "Did you mean EndTxn?"),
        (lambda: cut("EndTxn", nth=0), "nth counts from 1"),
        (lambda: cut("EndTxn", times=0), "times is at least 1"),
        (lambda: cut("EndTxn", probability=1.5), "between 0 and 1"),
        (lambda: delay(seconds=(2, 1)), "no span of time"),
        (lambda: delay(seconds=-1), "no span of time"),
        (lambda: trickle(bytes_per_second=0), "black_hole"),
    ],
)
def test_what_makes_no_sense_is_said_at_once(wrong: object, sentence: str) -> None:
    assert callable(wrong)
    with pytest.raises(ImpossibleFault) as refused:
        wrong()
    assert sentence in str(refused.value)


# --- peers that do not speak Kafka ----------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", b"\xff" * 64]
)
def test_whoever_does_not_speak_kafka_is_cut_off(words: bytes, proxy: Proxy) -> None:
    with Plain(proxy.address) as plain:
        plain.socket.sendall(words)
        plain.socket.shutdown(1)
        with pytest.raises(HungUp):
            plain.reply()
    with Plain(proxy.address) as plain:
        plain.versions()


def test_without_a_broker_connections_are_closed() -> None:
    with Proxy("127.0.0.1:1") as proxy, Plain(proxy.address) as plain, pytest.raises(HungUp):
        plain.reply()
