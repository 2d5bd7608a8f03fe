"""A transaction as a function: all of it or nothing, on both brokers."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from oncelog import App
from oncelog.apps import (
    Aborted,
    BadRecord,
    Busy,
    Closed,
    Doomed,
    Misconfigured,
    NoTransaction,
    TooSlow,
    Unreachable,
)
from tests.apps.conftest import make_topic, read, until, values


@pytest.fixture
def app(servers: str, name: str) -> Iterator[App]:
    with App(servers, transactional_id=name, concurrency=2, wait_s=20) as app:
        yield app


@pytest.fixture
def two(servers: str, name: str) -> tuple[str, str]:
    return make_topic(servers, f"{name}-orders"), make_topic(servers, f"{name}-payments")


def test_what_a_function_sends_appears_in_all_topics(
    servers: str, app: App, two: tuple[str, str]
) -> None:
    @app.transactional
    def place(number: int, *, total: int) -> str:
        app.send(two[0], {"id": number}, key=number, headers={"by": "ada"})
        app.send(two[1], total, key="k", partition=1)
        return f"order {number}"

    assert place(7, total=30) == "order 7"

    order, payment = read(servers, *two)
    assert (order.key(), order.value(), order.headers()) == (b"7", b'{"id":7}', [("by", b"ada")])
    assert (payment.partition(), payment.value()) == (1, b"30")


def test_an_error_takes_everything_back_and_reaches_the_caller(
    servers: str, app: App, two: tuple[str, str]
) -> None:
    committed: list[str] = []

    @app.transactional
    def place(is_good: bool) -> None:
        app.send(two[0], "order")
        app.after_commit(lambda: committed.append("told"))
        assert not committed
        if not is_good:
            raise LookupError("no such customer")
        app.send(two[1], "payment")

    with pytest.raises(LookupError, match="no such customer"):
        place(False)
    assert committed == []
    place(True)

    assert values(servers, *two) == [b"order", b"payment"]
    assert committed == ["told"]


def test_calls_inside_join_the_transaction_around_them(
    servers: str, app: App, two: tuple[str, str]
) -> None:
    @app.transactional
    def pay() -> None:
        app.send(two[1], "payment")

    @app.transactional
    def place(is_good: bool) -> None:
        pay()
        with app.transaction() as tx:
            tx.send(two[0], "order")
        if not is_good:
            raise LookupError

    with pytest.raises(LookupError):
        place(False)
    assert values(servers, *two) == []
    place(True)
    assert values(servers, *two) == [b"order", b"payment"]


def test_a_joined_call_that_failed_dooms_the_whole_even_if_it_was_caught(
    servers: str, app: App, two: tuple[str, str]
) -> None:
    @app.transactional
    def pay() -> None:
        app.send(two[1], "payment")
        raise LookupError("no account")

    def place() -> None:
        with app.transaction() as tx:
            tx.send(two[0], "order")
            with pytest.raises(LookupError):
                pay()

    with pytest.raises(Doomed, match="no account"):
        place()

    assert values(servers, *two) == []


def test_threads_have_transactions_of_their_own(
    servers: str, app: App, two: tuple[str, str]
) -> None:
    together = threading.Barrier(2)
    failures: list[BaseException] = []

    @app.transactional
    def place(number: int) -> None:
        app.send(two[0], str(number), key=str(number))
        together.wait(10)  # both are open at the same time
        if number % 2:
            raise LookupError
        app.send(two[1], str(number), key=str(number))

    def work(number: int) -> None:
        for _ in range(5):
            try:
                place(number)
            except LookupError as error:
                failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(failures) == 5
    assert values(servers, *two) == [b"0"] * 10


def test_coroutines_have_transactions_of_their_own(
    servers: str, app: App, two: tuple[str, str]
) -> None:
    ticks = 0

    @app.transactional
    async def place(number: int) -> int:
        app.send(two[0], str(number), key=str(number))
        await asyncio.sleep(0)
        async with app.transaction() as tx:
            tx.send(two[1], str(number), key=str(number))
        if number == 3:
            raise LookupError
        return number

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    async def work() -> list[int | BaseException]:
        ticking = asyncio.create_task(tick())
        # Three times as many as there are producers: they wait for each other, and not the loop.
        found = await asyncio.gather(*map(place, range(6)), return_exceptions=True)
        ticking.cancel()
        return found

    found = asyncio.run(work())

    assert [each for each in found if not isinstance(each, LookupError)] == [0, 1, 2, 4, 5]
    assert values(servers, two[0]) == values(servers, two[1]) == [b"0", b"1", b"2", b"4", b"5"]
    assert ticks > 3


def test_a_cancelled_coroutine_leaves_nothing_and_its_producer_serves_on(
    servers: str, app: App, two: tuple[str, str]
) -> None:
    async def place(reached: asyncio.Event) -> None:
        async with app.transaction() as tx:
            tx.send(two[0], "never")
            reached.set()
            await asyncio.sleep(60)

    async def work() -> None:
        for _ in range(3):
            reached = asyncio.Event()
            task = asyncio.create_task(place(reached))
            await asyncio.wait_for(reached.wait(), 20)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        async with app.transaction() as tx:
            tx.send(two[0], "after")

    asyncio.run(work())

    assert values(servers, *two) == [b"after"]


# --- what can go wrong; one broker is enough ---------------------------------------------------


@pytest.fixture
def local(oncelog_servers: str, name: str) -> Iterator[App]:
    with App(
        oncelog_servers, transactional_id=name, concurrency=1, wait_s=5, transaction_timeout_s=2
    ) as app:
        yield app


def test_sending_needs_a_transaction(local: App) -> None:
    with pytest.raises(NoTransaction, match=r"@app\.transactional"):
        local.send("anywhere", "x")
    with local.transaction() as tx:
        pass
    with pytest.raises(NoTransaction, match="is over"):
        tx.send("anywhere", "x")


def test_a_record_that_is_too_large_is_the_callers_error(
    local: App, oncelog_servers: str, name: str
) -> None:
    topic = make_topic(oncelog_servers, name)

    @local.transactional
    def place() -> None:
        local.send(topic, "fits")
        local.send(topic, b"x" * 2_000_000)

    with pytest.raises(BadRecord, match=name):
        place()

    assert values(oncelog_servers, topic) == []


def test_a_record_for_a_partition_that_is_not_there_is_not_tried_again(
    local: App, oncelog_servers: str, name: str
) -> None:
    topic = make_topic(oncelog_servers, name)
    runs = []

    @local.transactional
    def place() -> None:
        runs.append(1)
        local.send(topic, "fits", partition=0)
        local.send(topic, "does not", partition=9)

    with pytest.raises(BadRecord, match="_UNKNOWN_PARTITION"):
        place()
    assert (len(runs), values(oncelog_servers, topic)) == (1, [])


def test_a_transaction_that_lasts_too_long_is_aborted_and_its_producer_lives(
    local: App, oncelog_servers: str, name: str
) -> None:
    topic = make_topic(oncelog_servers, name)

    def is_over() -> bool:
        try:
            local.send(topic, "slow")
        except TooSlow:
            return True
        return False

    @local.transactional
    def place() -> None:
        until("it expires", is_over)

    with pytest.raises(TooSlow, match="transaction_timeout_s"):
        place()
    with local.transaction() as tx:
        tx.send(topic, "quick")

    assert values(oncelog_servers, topic) == [b"quick"]


def test_whoever_waits_too_long_for_a_producer_is_told(oncelog_servers: str, name: str) -> None:
    errors: list[BaseException] = []
    with App(oncelog_servers, transactional_id=name, concurrency=1, wait_s=1) as app:

        def second() -> None:
            try:
                with app.transaction():
                    pass
            except Busy as error:
                errors.append(error)

        with app.transaction():
            thread = threading.Thread(target=second)
            thread.start()
            thread.join()
        with app.transaction():
            pass

    assert "raise concurrency" in str(errors[0])


def test_a_hook_that_fails_does_not_undo_the_commit(
    local: App, oncelog_servers: str, name: str
) -> None:
    topic, told = make_topic(oncelog_servers, name), []

    with local.transaction() as tx:
        tx.send(topic, "sent")
        tx.after_commit(lambda: 1 // 0)  # type: ignore[arg-type]  # it does not return
        tx.after_commit(lambda: told.append(1))

    assert (values(oncelog_servers, topic), told) == ([b"sent"], [1])


def test_what_cannot_work_is_refused_in_a_sentence(oncelog_servers: str, name: str) -> None:
    for given, sentence in {
        "transactional.id": "transactional_id=",
        "isolation.level": "read what is committed",
    }.items():
        with pytest.raises(Misconfigured, match=sentence):
            App(oncelog_servers, transactional_id=name, settings={given: "x"})
    with pytest.raises(Misconfigured, match="instance"):
        App(oncelog_servers, transactional_id=name, instance="a b")
    with pytest.raises(Misconfigured, match="concurrency"):
        App(oncelog_servers, transactional_id=name, concurrency=-1)
    misspelt = App(oncelog_servers, transactional_id=name, settings={"sasl.usrename": "x"})
    with pytest.raises(Misconfigured, match=r"sasl\.usrename"):
        misspelt.start()
    app = App(oncelog_servers, transactional_id=name)

    def numbers() -> Iterator[int]:
        yield 1

    with pytest.raises(Misconfigured, match="is a generator"):
        app.transactional(numbers)
    with pytest.raises(Misconfigured, match="nothing to run"):
        app.run()
    app.close()
    with pytest.raises(Closed):
        app.transaction().__enter__()


def test_a_broker_that_is_not_there_is_named(name: str) -> None:
    app = App("127.0.0.1:1", transactional_id=name, concurrency=1, wait_s=1)

    with pytest.raises(Unreachable, match=f"{name}-0-0 got no answer within 1 s"):
        app.start()


def test_an_aborted_function_is_given_up_after_so_many_tries(
    oncelog_servers: str, name: str
) -> None:
    runs = []
    with App(oncelog_servers, transactional_id=name, concurrency=1, tries=3) as app:

        @app.transactional
        def place() -> None:
            runs.append(1)
            raise Aborted("the brokers do not want it")

        with pytest.raises(Aborted, match=r"place was aborted 3 times.*do not want it"):
            place()
    assert len(runs) == 3
