"""What is under way after healing, and what cannot be done any more, is written down as such."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

import oncelog
from oncelog.check import Op, Recorder, Report, Run, judge, open_history
from oncelog.check.anomaly import Name
from oncelog.testing import refuse
from oncelog.testing.workload.rest import NEW_ID, come_to_rest, note_state, probe
from tests.spark.logs import make_topics

PARTS = ("a:0", "a:1")
RUN = 5


@pytest.fixture(scope="module")
def broker() -> Iterator[oncelog.Broker]:
    with oncelog.Broker(faults=True) as running:
        make_topics(running.bootstrap_servers, "a", partitions=2)
        yield running


class Notes:
    """A history that is healed at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.recorder = Recorder(path, Run(txn=True))
        self.recorder.note(Op.HEAL)

    def events(self, op: Op) -> list[Any]:
        return [event for event in open_history(self.path).events if event.op is op]

    def judged(self) -> Report:
        return judge(open_history(self.path), with_floors=False)


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Notes]:
    taken = Notes(tmp_path / "history.jsonl")
    with taken.recorder:
        yield taken


def settings(broker: oncelog.Broker, **more: object) -> dict[str, object]:
    dotted = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, **dotted}


def test_an_open_transaction_is_noted_and_is_stuck_and_its_id_can_be_used(
    broker: oncelog.Broker, notes: Notes
) -> None:
    left = Producer(settings(broker, transactional_id="left"))
    left.init_transactions(10)
    left.begin_transaction()
    left.produce("a", b"open", partition=0)
    assert left.flush(10) == 0

    state = come_to_rest(notes.recorder, broker.bootstrap_servers, PARTS, run=RUN, within_s=0.2)

    assert (state.open_txns, state.unstable, state.is_at_rest) == (("left",), ("a-0",), False)
    (event,) = notes.events(Op.STATE)
    assert event.details.open_txns == ("left",)
    report = notes.judged()
    assert report.names == {Name.STUCK}
    assert report.findings[0].count == 1
    ends = [event for event in notes.events(Op.TXN) if event.ref is not None]
    assert {event.details.tid for event in ends} >= {NEW_ID, "left"}
    assert {event.end for event in ends} == {"commit"}


def test_what_rests_is_noted_with_its_groups(broker: oncelog.Broker, notes: Notes) -> None:
    consumer = Consumer(settings(broker, group_id="g", session_timeout_ms=6000))
    consumer.subscribe(["a"])
    while not consumer.assignment():
        consumer.poll(0.1)

    working = note_state(notes.recorder, broker.bootstrap_servers, PARTS, within_s=10)
    consumer.close()

    assert working.is_at_rest
    assert working.groups["g"] == "Stable"
    assert notes.judged().names == set()


def test_a_probe_that_nobody_answers_is_stuck(broker: oncelog.Broker, notes: Notes) -> None:
    with broker.fault(refuse()):
        probe(
            notes.recorder,
            broker.bootstrap_servers,
            PARTS,
            run=RUN,
            transactional_id="unheard",
            within_s=0.3,
        )

    assert notes.judged().names == {Name.STUCK}
