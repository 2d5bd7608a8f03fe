"""Listeners: consume, process and produce in one transaction, on both brokers."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from oncelog import App
from oncelog.apps import Misconfigured, NotStopped, Poisoned, Record
from tests.apps.conftest import make_topic, read, running, until, values, write
from tests.client import aftermath


@pytest.fixture
def topics(servers: str, name: str) -> tuple[str, str]:
    return make_topic(servers, f"{name}-in"), make_topic(servers, f"{name}-out")


@pytest.fixture
def app(servers: str, name: str) -> App:
    return App(servers, transactional_id=name, concurrency=1, wait_s=20)


def is_consumed(servers: str, name: str, count: int) -> Callable[[], bool]:
    return lambda: sum(aftermath.committed(servers, name, f"{name}-in").values()) == count


def test_every_record_counts_once_and_a_restart_goes_on(
    servers: str, name: str, topics: tuple[str, str], app: App
) -> None:
    source, target = topics
    write(servers, source, *map(str, range(40)))

    def serve(app: App, count: int) -> None:
        @app.listener(source, group=name, workers=2, max_records=7)
        def copy(record: Record) -> None:
            app.send(target, record.text, key=record.text)

        with running(app):
            until("all is copied", is_consumed(servers, name, count))
        done = app.counts()["copy"]
        # When the second worker joins, the first may have to give up a round: it does it again.
        assert done.records == 40
        assert done.transactions >= 40 / 7

    serve(app, 40)
    write(servers, source, *map(str, range(40, 80)))
    serve(App(servers, transactional_id=name, concurrency=1), 80)

    assert sorted(map(int, values(servers, target))) == list(range(80))
    assert aftermath.settled(servers, topics, prefix=name).is_settled


def test_a_failing_handler_is_tried_again_from_what_is_committed(
    servers: str, name: str, topics: tuple[str, str], app: App
) -> None:
    source, target = topics
    write(servers, source, *map(str, range(20)))
    tries: Counter[str] = Counter()
    committed: list[str] = []

    @app.listener(source, group=name)
    def copy(record: Record) -> None:
        tries[record.text] += 1
        app.send(target, record.text, key=record.text)
        app.after_commit(lambda: committed.append(record.text))
        if record.text in ("5", "12") and tries[record.text] < 3:
            raise ConnectionError("the warehouse does not answer")

    with running(app):
        until("all is copied", is_consumed(servers, name, 20))

    assert sorted(map(int, values(servers, target))) == list(range(20))
    assert sorted(map(int, committed)) == list(range(20))
    assert (tries["5"], tries["12"], app.counts()["copy"].aborts) == (3, 3, 4)


def test_a_poisoned_record_becomes_a_dead_letter_in_the_transaction(
    servers: str, name: str, topics: tuple[str, str], app: App
) -> None:
    source, target = topics
    dead = make_topic(servers, f"{name}-dead")
    write(servers, source, '{"n":1}', "no JSON", '{"n":2}', '{"n":3}')

    @app.listener(source, group=name, tries=2, dead_letters=dead)
    def copy(record: Record) -> None:
        app.send(target, record.json()["n"])

    with running(app):
        until("all is copied", is_consumed(servers, name, 4))

    assert sorted(values(servers, target)) == [b"1", b"2", b"3"]
    (letter,) = read(servers, dead)
    headers = letter.headers()
    assert isinstance(headers, list)
    assert (letter.key(), letter.value()) == (b"1", b"no JSON")
    assert dict(headers) == {
        "oncelog.error": b"JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "oncelog.tries": b"2",
        "oncelog.topic": source.encode(),
        "oncelog.partition": b"1",
        "oncelog.offset": b"0",
        "oncelog.group": name.encode(),
    }
    assert app.counts()["copy"].dead_letters == 1


def test_without_dead_letters_a_poisoned_record_stops_the_listener_and_stays(
    servers: str, name: str, topics: tuple[str, str], app: App
) -> None:
    source, target = topics
    write(servers, source, "good", "bad")

    @app.listener(source, group=name, tries=2)
    def copy(record: Record) -> None:
        if record.text == "bad":
            raise LookupError("nobody knows it")
        app.send(target, record.text)

    with pytest.raises(
        Poisoned, match=f"failed 2 times with {source}-1@0: LookupError.*dead_letters="
    ):
        app.run()
    app.close()

    assert values(servers, target) == [b"good"]
    assert aftermath.committed(servers, name, source) == {0: 1}


def test_functions_inside_a_handler_join_its_transaction(
    servers: str, name: str, topics: tuple[str, str], app: App
) -> None:
    source, target = topics
    write(servers, source, "a", "b")
    failed: list[str] = []

    @app.transactional
    def note(text: str) -> None:
        app.send(target, text)

    @app.listener(source, group=name)
    def copy(record: Record) -> None:
        note(record.text)
        if record.text == "b" and not failed:
            failed.append(record.text)
            raise LookupError

    with running(app):
        until("all is copied", is_consumed(servers, name, 2))

    assert sorted(values(servers, target)) == [b"a", b"b"]


def test_coroutines_can_be_handlers(
    servers: str, name: str, topics: tuple[str, str], app: App
) -> None:
    source, target = topics
    write(servers, source, *map(str, range(10)))
    loops: set[asyncio.AbstractEventLoop] = set()

    @app.listener(source, group=name)
    async def copy(record: Record) -> None:
        await asyncio.sleep(0)
        loops.add(asyncio.get_running_loop())
        app.send(target, record.text)

    async def serve() -> None:
        running = asyncio.create_task(app.arun())
        consumed = is_consumed(servers, name, 10)
        while not await asyncio.to_thread(consumed):
            assert not running.done()
        loops.add(asyncio.get_running_loop())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(asyncio.wait_for(serve(), 30))
    app.close()

    assert sorted(map(int, values(servers, target))) == list(range(10))
    assert len(loops) == 1


# --- one broker is enough -----------------------------------------------------------------------


@pytest.fixture
def ours(oncelog_servers: str, name: str) -> tuple[str, str]:
    return make_topic(oncelog_servers, f"{name}-in"), make_topic(oncelog_servers, f"{name}-out")


@pytest.fixture
def local(oncelog_servers: str, name: str) -> App:
    return App(oncelog_servers, transactional_id=name, concurrency=0, wait_s=20, stop_timeout_s=1)


def test_coroutines_run_without_a_loop_of_the_callers(
    oncelog_servers: str, name: str, ours: tuple[str, str], local: App
) -> None:
    source, target = ours
    write(oncelog_servers, source, "a", "b")

    @local.listener(source, group=name)
    async def copy(record: Record) -> None:
        await asyncio.sleep(0)
        local.send(target, record.text)

    with running(local):
        until("all is copied", is_consumed(oncelog_servers, name, 2))

    assert sorted(values(oncelog_servers, target)) == [b"a", b"b"]


def test_a_slow_round_is_committed_before_its_limit_of_records(
    oncelog_servers: str, name: str, ours: tuple[str, str], local: App
) -> None:
    source, _ = ours
    write(oncelog_servers, source, *map(str, range(6)))

    @local.listener(source, group=name, max_records=1000, max_seconds=0.000001)
    def read_only(record: Record) -> None:
        pass

    with running(local):
        until("all is consumed", is_consumed(oncelog_servers, name, 6))

    assert local.counts()["read_only"].transactions == 6


def test_a_bad_output_is_blamed_on_its_record_alone(
    oncelog_servers: str, name: str, ours: tuple[str, str], local: App
) -> None:
    """What the brokers refuse comes out at the commit: rounds of one record find whose it is."""
    source, _ = ours
    target = make_topic(oncelog_servers, f"{name}-small", **{"max.message.bytes": "1000"})
    dead = make_topic(oncelog_servers, f"{name}-dead")
    write(oncelog_servers, source, *map(str, range(8)))

    @local.listener(source, group=name, tries=2, dead_letters=dead)
    def copy(record: Record) -> None:
        text = record.text if record.text != "3" else "x" * 2000
        local.send(target, text, partition=0)

    with running(local):
        until("all is consumed", is_consumed(oncelog_servers, name, 8))

    assert sorted(map(int, values(oncelog_servers, target))) == [0, 1, 2, 4, 5, 6, 7]
    assert values(oncelog_servers, dead) == [b"3"]


def test_a_failed_handler_is_not_repeated_at_most_once(
    oncelog_servers: str, name: str, ours: tuple[str, str], local: App
) -> None:
    source, target = ours
    dead = make_topic(oncelog_servers, f"{name}-dead")
    write(oncelog_servers, source, *map(str, range(6)))
    seen: Counter[str] = Counter()

    @local.listener(source, group=name, delivery="at_most_once", dead_letters=dead)
    def copy(record: Record) -> None:
        seen[record.text] += 1
        if record.text == "2":
            raise LookupError("two")
        local.send(target, record.text)

    with running(local):
        until("all is handled", lambda: seen.total() == 6)
        until("all is sent", lambda: len(values(oncelog_servers, target)) == 5)

    assert max(seen.values()) == 1
    assert values(oncelog_servers, dead) == [b"2"]


def test_a_failed_handler_repeats_what_was_sent_at_least_once(
    oncelog_servers: str, name: str, ours: tuple[str, str], local: App
) -> None:
    source, target = ours
    write(oncelog_servers, source, *map(str, range(6)))
    failed: list[str] = []

    @local.listener(source, group=name, delivery="at_least_once")
    def copy(record: Record) -> None:
        local.send(target, record.text)
        if not failed:
            failed.append(record.text)
            raise LookupError

    with running(local):
        until("all is consumed", is_consumed(oncelog_servers, name, 6))

    found = Counter(values(oncelog_servers, target))
    assert set(found) == {b"0", b"1", b"2", b"3", b"4", b"5"}
    assert found[failed[0].encode()] == 2


def test_a_handler_that_does_not_return_is_named_when_the_app_stops(
    oncelog_servers: str, name: str, ours: tuple[str, str], local: App
) -> None:
    source, target = ours
    write(oncelog_servers, source, "a")
    is_in, may_go = threading.Event(), threading.Event()

    @local.listener(source, group=name)
    def stuck(record: Record) -> None:
        local.send(target, record.text)
        is_in.set()
        may_go.wait(30)

    def stop() -> None:
        is_in.wait(30)
        local.stop()

    threading.Thread(target=stop).start()
    with pytest.raises(NotStopped, match="oncelog-stuck-0 did not stop within 1 s"):
        local.run()
    may_go.set()
    until("the thread ends", lambda: "stuck" not in str(threading.enumerate()))
    local.close()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"workers": 0}, "workers=0"),
        ({"max_records": 0}, "max_records=0"),
        ({"max_seconds": 0}, "max_seconds=0"),
        ({"tries": 0}, "tries=0"),
        ({"start": "middle"}, "earliest or latest"),
        ({"delivery": "twice"}, "at_most_once, at_least_once, exactly_once"),
        ({"dead_letters": "orders"}, "its own dead letters"),
        ({"group": ""}, "no group"),
    ],
)
def test_a_listener_that_cannot_work_is_refused(given: dict[str, object], sentence: str) -> None:
    app = App("127.0.0.1:1", transactional_id="t")

    with pytest.raises(Misconfigured, match=sentence):
        app.listener("orders", **{"group": "billing", **given})(print)  # type: ignore[arg-type]  # wrong on purpose
