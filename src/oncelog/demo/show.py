"""The demo from its first line to its exit code: who is started, killed and asked, and when."""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from oncelog.client.admin import create_topic
from oncelog.client.cluster import Cluster
from oncelog.core.delivery import Delivery
from oncelog.demo import hold
from oncelog.demo.audit import Findings, judge
from oncelog.demo.driver import DemoFailed, Driver
from oncelog.demo.feeder import Fed, feed
from oncelog.demo.job import topic_of
from oncelog.demo.orders import INPUT, PARTITIONS, Order, Output, make_orders
from oncelog.demo.reader import Records, look_on, read_all
from oncelog.observe.terminal import Terminal
from oncelog.testing.broker import Broker

#: Into how many batches the orders are cut at least, so that there are some left for each kill.
_BATCHES: Final = 10
_FEEDING_S: Final = 15.0
#: How long the reader gets to see what it should not.
_SETTLE_S: Final = 0.5
_BROKER_AWAY_S: Final = 0.5
_TICK_S: Final = 0.2
_STEPS: Final = {
    "looked": "taking over",
    "fenced": "looking for orders",
    "planned": "writing",
    "written": "written, not committed",
    "recorded": "committing",
    "mirrored": "committing",
    "committed": "waiting",
    "retried": "trying again",
}


def show(records: int, seed: int, *, keeps: bool = False, is_verbose: bool = False) -> int:
    """Run the demo; 0 if the audit finds what it should."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    terminal = Terminal(sys.stdout)
    began_s = time.monotonic()
    with _directory(keeps=keeps) as directory:
        try:
            stage = Stage(directory, terminal, began_s, is_verbose=is_verbose)
            found = asyncio.run(_show(stage, records, seed))
        except asyncio.CancelledError:
            raise DemoFailed("The demo was told to stop.") from None
        terminal.say(f"\n{_table(found)}\n")
        exact, least = found
        if exact.is_exact and not least.lost:
            words = "Every order exactly once, with the driver, a worker and the broker killed."
        else:
            words = "THE AUDIT FAILED."
        terminal.say(f"{words} {time.monotonic() - began_s:.0f} s.")
        if keeps:
            terminal.say(f"Everything is kept in {directory}.")
    return 0 if exact.is_exact and not least.lost else 1


@contextlib.contextmanager
def _directory(*, keeps: bool) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="oncelog-demo-"))
    try:
        yield directory
    finally:
        if not keeps:
            shutil.rmtree(directory, ignore_errors=True)


class Stage:
    """What all acts share."""

    def __init__(
        self, directory: Path, terminal: Terminal, began_s: float, *, is_verbose: bool
    ) -> None:
        """The broker's files lie in the directory too."""
        self.directory = directory
        self.is_verbose = is_verbose
        self.broker = Broker(data_dir=directory / "broker", process=True)
        self.fed = Fed()
        self._terminal = terminal
        self._began_s = began_s

    def say(self, text: str) -> None:
        """A line with the time."""
        self._terminal.say(f"{self._clock()}  {text}")

    def show(self, text: str) -> None:
        """The line that changes."""
        self._terminal.show(f"{self._clock()}  {text}")

    def end(self) -> None:
        """Nothing changes any more."""
        self._terminal.clear()

    def _clock(self) -> str:
        return f"{time.monotonic() - self._began_s:5.1f} s"


async def _show(stage: Stage, records: int, seed: int) -> tuple[Findings, Findings]:
    this = asyncio.current_task()
    assert this is not None, "a coroutine runs in a task"
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, this.cancel)
    await asyncio.to_thread(stage.broker.start)
    try:
        servers = stage.broker.bootstrap_servers
        stage.say(f"a broker listens on {servers}")
        await _create_topics(servers)
        orders = make_orders(records, seed)
        stage.say(f"{records:,} orders come in, in transactions; some of these are aborted")
        feeding = asyncio.create_task(
            feed(servers, orders, seed, seconds=_FEEDING_S, fed=stage.fed)
        )
        try:
            exact = await Act(stage, Delivery.EXACTLY_ONCE, records, feeding).play()
            least = await Act(stage, Delivery.AT_LEAST_ONCE, records, feeding).play()
        finally:
            feeding.cancel()
    finally:
        stage.end()
        await asyncio.to_thread(stage.broker.close)
    return exact, least


async def _create_topics(servers: str) -> None:
    deliveries = (Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE)
    async with await Cluster.open(servers) as cluster:
        for topic in (INPUT, *(topic_of(each, d) for d in deliveries for each in Output)):
            await create_topic(cluster, topic, partitions=PARTITIONS)


class Act:
    """One run of the job with three kills, watched by a reader of committed records."""

    def __init__(
        self, stage: Stage, delivery: Delivery, records: int, feeding: "asyncio.Task[None]"
    ) -> None:
        """`feeding` may still be going on, or be over."""
        self._stage = stage
        self._delivery = delivery
        self._batch_offsets = max(1, records // _BATCHES)
        self._feeding = feeding
        self._directory = stage.directory / delivery
        self._directory.mkdir()
        self._servers = stage.broker.bootstrap_servers
        self._topics = {output: topic_of(output, delivery) for output in Output}
        self._seen: Records = {}
        self._seen_early = 0
        self._driver: Driver | None = None
        #: What earlier drivers committed.
        self._rows_before = 0
        #: What happens while the pipeline does nothing.
        self._besides = ""

    async def play(self) -> Findings:
        """Run the job to its end, and judge what it wrote."""
        self._stage.say(f"--- the job, {self._delivery}")
        looking_on = asyncio.create_task(
            look_on(self._servers, list(self._topics.values()), self._seen)
        )
        ticking = asyncio.create_task(self._tick())
        try:
            await self._start()
            await self._commits_another()
            await self._kill_worker()
            await self._kill_broker()
            await self._kill_driver()
            await self._finish()
            return await self._audit()
        finally:
            ticking.cancel()
            looking_on.cancel()
            if self._driver is not None:
                await self._driver.kill()

    @property
    def _running(self) -> Driver:
        assert self._driver is not None, "it was started"
        return self._driver

    async def _start(self) -> None:
        self._driver = driver = await Driver.start(
            self._servers,
            delivery=self._delivery,
            directory=self._directory,
            batch_offsets=self._batch_offsets,
            is_verbose=self._stage.is_verbose,
        )
        await driver.until(lambda: driver.is_ready, "Spark to start")

    async def _commits_another(self) -> None:
        driver, before = self._running, self._running.batches
        await driver.until(lambda: driver.batches > before, "a batch to be committed")

    # --- the kills ---

    async def _kill_worker(self) -> None:
        pid = await self._held("task")
        os.kill(pid, signal.SIGKILL)
        self._stage.say(f"KILL  a Python worker (process {pid}), its rows written, not committed")
        hold.release(self._directory, "task")
        await self._commits_another()
        self._stage.say("      Spark tried again, and the batch is committed")

    async def _kill_broker(self) -> None:
        await self._held("task")
        pid = self._stage.broker.pid
        await asyncio.to_thread(self._stage.broker.kill)
        self._stage.say(f"KILL  the broker (process {pid}), in the middle of a batch")
        await asyncio.sleep(_BROKER_AWAY_S)
        await asyncio.to_thread(self._stage.broker.start)
        hold.release(self._directory, "task")
        await self._commits_another()
        self._stage.say("      it came back, and the batch is committed")

    async def _kill_driver(self) -> None:
        pid = await self._held("driver")
        self._rows_before += self._running.rows
        await self._running.kill()
        self._stage.say(f"KILL  the Spark driver (process {pid}), before the commit of a batch")
        hold.release(self._directory, "driver")
        await self._start()
        await self._commits_another()
        self._stage.say("      a new one went on where the last commit was")

    async def _held(self, who: str) -> int:
        """Wait until somebody stands still with a batch in flight, and look what can be seen."""
        hold.arm(self._directory, who)
        await self._running.until(
            lambda: hold.held(self._directory, who) is not None, f"a {who} with a batch"
        )
        await asyncio.sleep(_SETTLE_S)
        self._seen_early += max(0, self._orders_seen() - self._rows_committed())
        pid = hold.held(self._directory, who)
        assert pid is not None, "it stands still until it is released"
        return pid

    # --- what it looks like ---

    def _rows_committed(self) -> int:
        """Each order is in one batch, so these are orders."""
        return self._rows_before + (self._driver.rows if self._driver else 0)

    def _orders_seen(self) -> int:
        revenue = self._topics[Output.REVENUE]
        return len({value for (topic, _, _), value in self._seen.items() if topic != revenue})

    async def _tick(self) -> None:
        while True:
            driver, fed = self._driver, self._stage.fed
            step = self._besides or (driver.step if driver else "starting Spark")
            parts = [f"{fed.count:,} orders in", f"{self._rows_committed():,} committed"]
            if driver is not None and driver.lag is not None:
                parts.append(f"{driver.lag:,} to go")
            parts.append(_STEPS.get(step, step))
            self._stage.show(" · ".join(parts))
            await asyncio.sleep(_TICK_S)

    # --- the end ---

    async def _finish(self) -> None:
        driver = self._running
        await driver.until(self._feeding.done, "the last order")
        await self._feeding
        said = driver.lag_reports
        await driver.until(
            lambda: driver.lag_reports > said and driver.lag == 0, "the pipeline to catch up"
        )
        self._besides = "finishing the sums"
        await driver.stop()
        self._driver = None
        self._rows_before += driver.rows

    async def _audit(self) -> Findings:
        self._besides = "auditing"
        orders = await self._committed_orders()
        final: Records = {}
        by_output: dict[Output, Sequence[bytes]] = {}
        for output, topic in self._topics.items():
            records = await read_all(self._servers, [topic])
            by_output[output] = [records[place] for place in sorted(records)]
            final |= records
        taken_back = sum(final.get(place) != value for place, value in self._seen.items())
        findings = judge(orders, by_output, seen_early=self._seen_early + taken_back)
        self._stage.say("an audit by a plain consumer is done")
        return findings

    async def _committed_orders(self) -> list[Order]:
        records = await read_all(self._servers, [INPUT])
        orders = [Order.decode(value) for value in records.values()]
        numbers, fed = {order.number for order in orders}, self._stage.fed
        if not fed.committed <= numbers or fed.aborted & numbers or len(orders) > len(numbers):
            raise DemoFailed("The topic of orders does not hold what was committed to it.")
        return orders


def _table(found: tuple[Findings, Findings]) -> str:
    rows = [
        ("", *(each.replace("_", " ") for each in (Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE))),
        ("orders in", *(each.orders for each in found)),
        ("out: valid", *(each.valid for each in found)),
        ("out: rejected", *(each.rejected for each in found)),
        ("lost", *(each.lost for each in found)),
        ("duplicated", *(each.duplicated for each in found)),
        ("seen before commit", *(each.seen_early for each in found)),
        ("windows", *(each.windows for each in found)),
        ("windows with a wrong sum", *(each.wrong_windows for each in found)),
        ("sums written twice", *(each.repeated_sums for each in found)),
    ]
    return "\n".join(
        f"  {name:<26}" + "".join(f"{_cell(value):>16}" for value in values)
        for name, *values in rows
    )


def _cell(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
