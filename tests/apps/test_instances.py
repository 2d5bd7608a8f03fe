"""Replicas, rivals and former lives of one service, on both brokers."""

import multiprocessing
import os
import threading

import pytest
from confluent_kafka import Producer

from oncelog import App
from oncelog.apps import Fenced, Misconfigured, Record
from oncelog.apps.orphans import is_beyond
from tests.apps.conftest import make_topic, until, values, write
from tests.client import aftermath


def test_the_newer_of_two_instances_under_one_id_wins_and_the_older_stops(
    servers: str, name: str
) -> None:
    topic = make_topic(servers, name)
    newer = App(servers, transactional_id=name, concurrency=2)

    def place(app: App, text: str) -> None:
        with app.transaction() as tx:
            tx.send(topic, text)

    older = App(servers, transactional_id=name, concurrency=2)
    with older:
        place(older, "older")
        with newer:
            for _ in range(3):
                with pytest.raises(Fenced, match=f"{name}-0-0 was replaced"):
                    place(older, "never")
                # However often the older one tries, the newer is not disturbed.
                place(newer, "newer")

    assert sorted(values(servers, topic)) == [b"newer"] * 3 + [b"older"]


def test_replicas_with_instances_of_their_own_do_not_meet(servers: str, name: str) -> None:
    topic = make_topic(servers, name)
    with (
        App(servers, transactional_id=name, instance="a", concurrency=1) as one,
        App(servers, transactional_id=name, instance="b", concurrency=1) as two,
    ):
        for app in (one, two, one, two):
            with app.transaction() as tx:
                tx.send(topic, app.name)

    assert len(values(servers, topic)) == 4


def test_a_listener_that_was_replaced_stops_with_the_reason(servers: str, name: str) -> None:
    source, target = make_topic(servers, f"{name}-in"), make_topic(servers, f"{name}-out")
    apps = [App(servers, transactional_id=name, concurrency=0) for _ in range(2)]
    errors: list[BaseException] = []
    for app in apps:

        @app.listener(source, group=name)
        def copy(record: Record, app: App = app) -> None:
            app.send(target, record.text)

    def run(app: App) -> None:
        try:
            app.run()
        except Fenced as error:
            errors.append(error)

    def consumed() -> int:
        return sum(aftermath.committed(servers, name, source).values())

    older, newer = (threading.Thread(target=run, args=(app,)) for app in apps)
    older.start()
    write(servers, source, "a", "b")
    until("the older works", lambda: consumed() == 2)
    newer.start()

    def is_fenced() -> bool:
        write(servers, source, "c", "d")
        return bool(errors)

    until("the older is fenced", is_fenced)
    older.join(30)
    wrote = 2 + 2 * len(values(servers, source)[2:]) // 2
    until("the newer does the rest", lambda: consumed() == wrote)
    apps[1].stop()
    newer.join(30)

    assert [type(error) for error in errors] == [Fenced]
    assert sorted(values(servers, target)) == sorted(values(servers, source))
    for app in apps:
        app.close()


def test_what_a_larger_former_pool_left_open_is_ended_at_the_start(servers: str, name: str) -> None:
    topic = make_topic(servers, name)
    left: list[Producer] = []
    for number in (0, 2, 7):
        producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": f"{name}-0-{number}",
                "log_level": 0,
            }
        )
        producer.init_transactions(20)
        producer.begin_transaction()
        producer.produce(topic, "left open")
        assert producer.flush(20) == 0
        left.append(producer)
    assert not aftermath.settled(servers, [topic], within_s=0.1, prefix=name).is_settled

    with App(servers, transactional_id=name, concurrency=1):
        assert aftermath.settled(servers, [topic], prefix=name).is_settled

    assert values(servers, topic) == []


@pytest.mark.parametrize(
    ("transactional_id", "expected"),
    [
        ("shop-0-3", True),
        ("shop-0-12", True),
        ("shop-0-2", False),
        ("shop-0-", False),
        ("shop-0-x", False),
        ("shop-0-1-3", False),
        ("shop-1-3", False),
        ("workshop-0-3", False),
        (f"shop-0-{10**12}", False),
    ],
)
def test_ids_of_a_larger_pool_are_known_by_their_names(
    transactional_id: str, expected: bool
) -> None:
    assert is_beyond(transactional_id, "shop-0-", 3) is expected


def test_an_app_does_not_survive_a_fork(oncelog_servers: str, name: str) -> None:
    with App(oncelog_servers, transactional_id=name, concurrency=1) as app:
        answer, ask = multiprocessing.Pipe(duplex=False)
        child = os.fork()
        if child == 0:
            try:
                app.transaction().__enter__()
            except Misconfigured as error:
                ask.send(str(error))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert answer.poll(1)
        assert "before a fork" in answer.recv()
