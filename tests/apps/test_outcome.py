"""A commit whose answer is lost is looked up, and never guessed."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

import oncelog
from oncelog import App
from oncelog.apps import Aborted, Fenced, OutcomeUnknown, Record
from oncelog.testing import Injection, cut, fence, kill, lose_reply, refuse, restart
from tests.apps.conftest import make_topic, running, until, values, write
from tests.client import aftermath

#: Replies that do not come are given up soon.
IMPATIENT = {"reconnect.backoff.max.ms": 100}


@pytest.fixture
def topic(oncelog_broker: oncelog.Broker) -> str:
    return make_topic(oncelog_broker.bootstrap_servers, "orders")


def an_app(broker: oncelog.Broker, *, wait_s: float = 20.0) -> App:
    return App(
        broker.bootstrap_servers,
        transactional_id="shop",
        concurrency=1,
        wait_s=wait_s,
        transaction_timeout_s=3,
        settings=IMPATIENT,
    )


def healing(broker: oncelog.Broker, app: App, topic: str) -> Callable[[], None]:
    """A transactional function that sends `try N`; before its second try all faults end."""
    runs: list[int] = []

    @app.transactional
    def place() -> None:
        runs.append(1)
        if len(runs) == 2:
            broker.heal()
        app.send(topic, f"try {len(runs)}")

    return place


def test_a_commit_whose_reply_is_cut_off_is_done_once(
    oncelog_broker: oncelog.Broker, topic: str
) -> None:
    """librdkafka asks again, and the coordinator knows that it was done."""
    runs: list[int] = []
    with an_app(oncelog_broker) as app:

        @app.transactional
        def place(number: int) -> None:
            runs.append(number)
            app.send(topic, str(number), key=str(number))

        for number, moment in enumerate(("before", "after", "within reply")):
            fault = oncelog_broker.fault(cut("EndTxn", when=moment))  # type: ignore[arg-type]  # one of its words
            place(number)
            assert fault.hits == 1

    assert values(oncelog_broker.bootstrap_servers, topic) == [b"0", b"1", b"2"]
    assert runs == [0, 1, 2]


def test_a_commit_that_nobody_confirms_is_found_in_the_log(
    oncelog_broker: oncelog.Broker, topic: str
) -> None:
    """Every answer to the commit is lost, for longer than we wait: the records themselves tell."""
    hooks: list[str] = []
    with an_app(oncelog_broker, wait_s=1) as app:
        with oncelog_broker.fault(lose_reply("EndTxn", times=None)) as fault:
            with app.transaction() as tx:
                tx.send(topic, "order")
                tx.after_commit(lambda: hooks.append("told"))
            assert fault.hits > 0
        with app.transaction() as tx:
            tx.send(topic, "other")

    assert sorted(values(oncelog_broker.bootstrap_servers, topic)) == [b"order", b"other"]
    assert hooks == ["told"]


def test_a_commit_that_never_arrived_is_run_again(
    oncelog_broker: oncelog.Broker, topic: str
) -> None:
    with an_app(oncelog_broker, wait_s=1) as app:
        oncelog_broker.fault(cut("EndTxn", when="before", times=None))
        healing(oncelog_broker, app, topic)()

    assert values(oncelog_broker.bootstrap_servers, topic) == [b"try 2"]


def test_when_nobody_can_be_asked_the_error_says_so_by_name(
    oncelog_broker: oncelog.Broker, topic: str
) -> None:
    with an_app(oncelog_broker, wait_s=1) as app:

        def place() -> None:
            with app.transaction() as tx:
                tx.send(topic, "order")

        place()
        lost = oncelog_broker.fault(lose_reply("EndTxn", times=None))

        def go_away() -> None:
            lost.wait()
            oncelog_broker.fault(refuse())

        away = threading.Thread(target=go_away)
        away.start()
        with pytest.raises(OutcomeUnknown, match="Look for its records"):
            place()
        away.join()
        oncelog_broker.heal()
        # The app itself goes on: a new producer has ended whatever was left.
        place()
    left = aftermath.settled(oncelog_broker.bootstrap_servers, [topic], prefix="shop")
    assert left.is_settled
    assert len(values(oncelog_broker.bootstrap_servers, topic)) in (2, 3)


def test_a_commit_before_the_take_over_counts_though_its_answer_says_fenced(
    oncelog_broker: oncelog.Broker, topic: str
) -> None:
    """The commit happened, its answer was lost, another instance came: asked again it is fenced."""
    with an_app(oncelog_broker) as app:
        lost = oncelog_broker.fault(lose_reply("EndTxn"))

        def take_over() -> None:
            lost.wait()
            servers = oncelog_broker.bootstrap_servers
            until(
                "the commit is done",
                lambda: (
                    aftermath.describe(servers, "shop-0-0").transaction_state == "CompleteCommit"
                ),
            )
            oncelog_broker.fault(fence("shop-0-0"))

        taking = threading.Thread(target=take_over)
        taking.start()
        with app.transaction() as tx:
            tx.send(topic, "order")
        taking.join()
        with pytest.raises(Fenced, match="instance="), app.transaction() as tx:
            tx.send(topic, "never")

    assert values(oncelog_broker.bootstrap_servers, topic) == [b"order"]


def test_a_fenced_producer_has_written_nothing(oncelog_broker: oncelog.Broker, topic: str) -> None:
    with an_app(oncelog_broker) as app:

        @app.transactional
        def place() -> None:
            app.send(topic, "order")
            oncelog_broker.fault(fence("shop-0-0"))

        with pytest.raises(Fenced, match="The producer shop-0-0 was replaced"):
            place()
        # It stays so: the other one is never fenced back.
        with pytest.raises(Fenced):
            place()

    assert values(oncelog_broker.bootstrap_servers, topic) == []


@pytest.mark.oncelog(process=True)
def test_functions_go_on_when_the_broker_dies(oncelog_broker: oncelog.Broker, topic: str) -> None:
    with an_app(oncelog_broker) as app:

        @app.transactional
        def place(number: int) -> None:
            app.send(topic, str(number), key=str(number))
            if number % 2 == 0:
                app.send(topic, str(number), key=str(number))

        for number in range(8):
            if number in (2, 5):
                oncelog_broker.fault(kill())
            place(number)

    found = values(oncelog_broker.bootstrap_servers, topic)
    assert found == [b"0", b"0", b"1", b"2", b"2", b"3", b"4", b"4", b"5", b"6", b"6", b"7"]


def test_a_listener_is_exact_when_its_commits_are_lost(
    oncelog_broker: oncelog.Broker, topic: str
) -> None:
    servers = oncelog_broker.bootstrap_servers
    target = make_topic(servers, "invoices")
    write(servers, topic, *map(str, range(30)))
    app = an_app(oncelog_broker, wait_s=1)
    told: list[str] = []

    @app.listener(topic, group="billing", max_records=5)
    def bill(record: Record) -> None:
        app.send(target, record.text, key=record.text)
        app.after_commit(lambda: told.append(record.text))

    faults = [
        oncelog_broker.fault(cut("TxnOffsetCommit", when="after")),
        oncelog_broker.fault(lose_reply("EndTxn", nth=2)),
        oncelog_broker.fault(cut("EndTxn", when="before", nth=3)),
    ]
    with running(app):
        for fault in faults:
            fault.wait()
        oncelog_broker.fault(restart())
        until(
            "all is billed",
            lambda: sum(aftermath.committed(servers, "billing", topic).values()) == 30,
        )

    assert sorted(map(int, values(servers, target))) == list(range(30))
    assert sorted(map(int, told)) == list(range(30))


def test_brokers_that_are_away_are_not_the_fault_of_a_record(
    oncelog_broker: oncelog.Broker, topic: str
) -> None:
    """However often a round fails of them, no record becomes a dead letter."""
    servers = oncelog_broker.bootstrap_servers
    target, dead = make_topic(servers, "invoices"), make_topic(servers, "dead")
    write(servers, topic, *map(str, range(6)))
    app = an_app(oncelog_broker, wait_s=1)
    away: list[Injection[Any]] = []

    @app.listener(topic, group="billing", tries=1, dead_letters=dead)
    def bill(record: Record) -> None:
        if not away:
            away.append(oncelog_broker.fault(refuse()))
        app.send(target, record.text, key=record.text)

    with running(app):
        until("a round fails", lambda: app.counts()["bill"].aborts >= 1)
        until("brokers are asked again", lambda: bool(away))
        away[0].end()
        until("all is billed", lambda: app.counts()["bill"].records == 6)

    assert values(servers, target) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert values(servers, dead) == []


def test_offsets_that_are_not_committed_ahead_are_read_again_at_most_once(
    oncelog_broker: oncelog.Broker, topic: str
) -> None:
    servers = oncelog_broker.bootstrap_servers
    write(servers, topic, *map(str, range(6)))
    app = an_app(oncelog_broker)
    seen: list[str] = []

    @app.listener(topic, group="samples", delivery="at_most_once", max_records=2)
    def sample(record: Record) -> None:
        seen.append(record.text)

    fault = oncelog_broker.fault(cut("OffsetCommit", when="before", times=6))
    with running(app):
        fault.wait(3)
        until("all is seen", lambda: len(seen) == 6)

    assert sorted(map(int, seen)) == list(range(6))


def test_an_abortable_error_runs_the_function_again(
    oncelog_broker: oncelog.Broker, topic: str
) -> None:
    with an_app(oncelog_broker, wait_s=1) as app:

        def place_once() -> None:
            with app.transaction() as tx:
                tx.send(topic, "never")

        oncelog_broker.fault(cut("Produce", when="before", times=None))
        healing(oncelog_broker, app, topic)()
        oncelog_broker.fault(cut("Produce", when="before", times=None))
        with pytest.raises(Aborted):
            place_once()
        oncelog_broker.heal()

    assert values(oncelog_broker.bootstrap_servers, topic) == [b"try 2"]
