"""Services that are killed at each step, come and go, are replaced, or lose their broker: all counts once."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

import oncelog
from oncelog.check import Op
from oncelog.testing import kill
from tests.apps.conftest import until
from tests.apps.service import SOURCE, STEPS, TARGET
from tests.apps.world import SHORT_SESSIONS, World, judged, own_world, world
from tests.client import aftermath
from tests.peers.kafka import running_kafka


def is_stopped(service: subprocess.Popen[bytes]) -> bool:
    return psutil.Process(service.pid).status() == psutil.STATUS_STOPPED


def die_at_each(run: World, steps: Sequence[str]) -> None:
    for step in steps:
        run.feed(30)
        run.recorder.note(Op.FAULT, what=step, target="a")
        assert run.start("a", at=step).wait(40) == -signal.SIGKILL
        run.recorder.note(Op.FAULT, what=step, target="a", over=True)
    run.start("a")
    run.finish()


def test_a_service_that_dies_at_any_step_counts_every_record_once(tmp_path: Path) -> None:
    with own_world(tmp_path) as run:
        die_at_each(run, STEPS)

    assert run.copies == run.inputs
    report = judged(tmp_path)
    assert report.counts["faults"] == len(STEPS)
    # Dead before and after the commit: nobody was left to tell, and both are accounted for.
    assert run.server.unknown_count >= 2


@pytest.mark.peers
def test_the_same_on_apache_kafka(tmp_path: Path) -> None:
    steps = ("before-offsets", "before-commit", "after-commit")
    settings = {**SHORT_SESSIONS, "group.initial.rebalance.delay.ms": "0"}
    with running_kafka(settings) as kafka, world(kafka.bootstrap_servers, tmp_path) as run:
        die_at_each(run, steps)

    assert run.copies == run.inputs
    assert judged(tmp_path).counts["faults"] == len(steps)


def test_services_that_come_and_go_count_every_record_once(tmp_path: Path) -> None:
    """A storm of rebalances, in order and by force, each in the middle of somebody's transactions."""
    with own_world(tmp_path) as run:
        services: list[subprocess.Popen[bytes]] = [run.start("a"), run.start("b")]
        for number, instance in enumerate(["c", "a", "b", "c", "a"]):
            run.feed(60)
            before = run.committed()
            services.append(run.start(instance))
            leaving = services.pop(0)
            leaving.send_signal(signal.SIGKILL if number % 2 else signal.SIGTERM)
            leaving.wait(30)
            until("work goes on", lambda: run.committed() > before)  # noqa: B023
        run.finish()

    assert run.copies == run.inputs
    assert judged(tmp_path).counts["confirmed"] > 250


def test_rivals_for_one_id_count_every_record_once(tmp_path: Path) -> None:
    """Each newcomer takes over, the older one stops, and nobody is fenced back."""
    with own_world(tmp_path) as run:
        older = run.start("a")
        for _ in range(3):
            run.feed(40)
            until("the older one works", lambda: run.committed() > 0)
            run.recorder.note(Op.FAULT, what="rival", target="a")
            newer = run.start("a")
            run.until_fenced(older)
            run.recorder.note(Op.FAULT, what="rival", target="a", over=True)
            older = newer
        run.finish()

    assert run.copies == run.inputs
    assert judged(tmp_path).counts["faults"] == 3


def test_a_service_that_stood_still_for_too_long_is_fenced_when_it_wakes(tmp_path: Path) -> None:
    """Its transaction is whole but for the commit when the brokers abort it and a peer does the work."""
    with own_world(tmp_path) as run:
        run.feed(30)
        frozen = run.start("a", at="before-commit", sends=signal.SIGSTOP, timeout_s=2)
        until("it stands still", lambda: is_stopped(frozen))
        run.recorder.note(Op.FAULT, what="pause", target="a")
        run.start("b")
        run.until_copied()
        # The session is shorter than the transaction may last: its peer may be done before that.
        assert aftermath.settled(run.servers, (SOURCE, TARGET), prefix="copy-").is_settled
        frozen.send_signal(signal.SIGCONT)
        run.recorder.note(Op.FAULT, what="pause", target="a", over=True)
        run.until_fenced(frozen)
        run.finish()

    assert run.copies == run.inputs
    assert judged(tmp_path).counts["faults"] == 1


@pytest.mark.parametrize("step", ["after-send", "before-commit"])
def test_ctrl_c_lets_a_transaction_end_before_the_service_does(tmp_path: Path, step: str) -> None:
    with own_world(tmp_path) as run:
        run.feed(30)
        stopping = run.start("a", at=step, sends=signal.SIGINT)
        assert stopping.wait(30) == 0
        # Nothing is open that somebody would have to wait for, and what was begun is committed.
        assert aftermath.settled(
            run.servers, (SOURCE, TARGET), within_s=2, prefix="copy-"
        ).is_settled
        assert run.committed() > 0
        run.start("a")
        run.finish()

    assert run.copies == run.inputs
    assert judged(tmp_path).counts["confirmed"] > 30


def test_a_broker_that_dies_takes_nothing_with_it(tmp_path: Path) -> None:
    with (
        oncelog.Broker(SHORT_SESSIONS, process=True, faults=True) as broker,
        world(broker.bootstrap_servers, tmp_path) as run,
    ):
        run.start("a")
        run.start("b")
        for _ in range(4):
            run.feed(60)
            run.recorder.note(Op.FAULT, what="kill", target="n1")
            broker.fault(kill())
            run.recorder.note(Op.FAULT, what="kill", target="n1", over=True)
        run.finish()

    assert run.copies == run.inputs
    assert judged(tmp_path).counts["confirmed"] > 250


def test_at_least_once_repeats_and_loses_nothing(tmp_path: Path) -> None:
    with own_world(tmp_path) as run:
        run.feed(30)
        dying = run.start("a", at="before-offsets", delivery="at_least_once")
        assert dying.wait(40) == -signal.SIGKILL
        run.start("a", delivery="at_least_once")
        run.finish()

    assert set(run.copies) == set(run.inputs)
    assert run.copies.total() > run.inputs.total()


def test_at_most_once_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with own_world(tmp_path) as run:
        run.feed(30)
        dying = run.start("a", at="handling", delivery="at_most_once")
        assert dying.wait(40) == -signal.SIGKILL
        run.start("a", delivery="at_most_once")
        run.finish()

    assert max(run.copies.values(), default=0) <= 1
    assert run.copies.total() < run.inputs.total()
