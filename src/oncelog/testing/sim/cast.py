"""Who takes part in a run: a client for each line of its plan, and what that client does."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from oncelog.testing.sim.client import Client, Part, Stage
from oncelog.testing.sim.copier import Copier
from oncelog.testing.sim.ghost import Ghost
from oncelog.testing.sim.housekeeping import Builder, Janitor
from oncelog.testing.sim.member import Member
from oncelog.testing.sim.plan import ClientPlan, Role
from oncelog.testing.sim.producer import IN_FLIGHT, Producer
from oncelog.testing.sim.reading import Watcher
from oncelog.testing.sim.swarm import PARTITIONS
from oncelog.testing.sim.transactional import TxnProducer
from oncelog.testing.sim.world import Disconnected

#: Everybody writes to it.
INPUT: Final = "a"
#: Where copiers write to.
OUTPUT: Final = "b"
#: Written to, and records are deleted from it.
LOSSY: Final = "c"
TOPICS: Final = (INPUT, OUTPUT, LOSSY)
PARTS: Final = tuple((topic, index) for topic in TOPICS for index in range(PARTITIONS))
INPUTS: Final = tuple(part for part in PARTS if part[0] == INPUT)
PLAIN_GROUP: Final = "g"
COPYING_GROUP: Final = "copiers"
#: How likely a producer also sends a batch that leaves sequences out.
SKIPS: Final = 0.1
#: How likely a transaction is committed.
COMMITS: Final = 0.7

#: A source of chance that belongs to a name.
Draw = Callable[[str], Random]


def make_client(stage: Stage, plan: ClientPlan, draw: Draw) -> Client:
    """The client that a plan asks for."""
    rng, name, patience_s = draw(plan.name), plan.name, plan.patience_s
    match plan.role:
        case Role.PRODUCER:
            return Producer(stage, name, rng, patience_s=patience_s)
        case Role.MEMBER:
            return Member(
                stage, name, rng, group=PLAIN_GROUP, parts=[*INPUTS], patience_s=patience_s
            )
        case Role.WRITER:
            return make_writer(stage, plan, rng)
        case Role.COPIER:
            return Copier(
                stage,
                name,
                rng,
                group=COPYING_GROUP,
                parts=[*INPUTS],
                patience_s=patience_s,
                targets=[part for part in PARTS if part[0] == OUTPUT],
                producer=make_writer(stage, plan, rng),
            )
        case Role.WATCHER:
            return Watcher(stage, name, rng, parts=[*PARTS], patience_s=patience_s)
        case Role.JANITOR:
            return Janitor(stage, name, rng, patience_s=patience_s)
        case Role.BUILDER:
            return Builder(stage, name, rng, patience_s=patience_s)
        case Role.GHOST:
            return Ghost(stage, name, rng, patience_s=patience_s)


def make_writer(stage: Stage, plan: ClientPlan, rng: Random) -> TxnProducer:
    """A producer of transactions, alone or inside of a copier."""
    return TxnProducer(
        stage,
        plan.name,
        rng,
        transactional_id=plan.transactional_id,
        is_v2=plan.is_v2,
        timeout_ms=plan.timeout_ms,
        patience_s=plan.patience_s,
        acks=plan.acks,
        is_hasty=plan.is_hasty,
    )


async def work(client: Client, plan: ClientPlan, rng: Random) -> None:
    """Do what the plan says, as often as it says; those who read until the end have nothing here."""
    for number in range(plan.operations):
        match client:
            case Producer():
                await _send(client, number, rng)
                await asyncio.sleep(0 if plan.is_hasty else rng.choice((0, 0, 0.01, 0.5)))
            case TxnProducer():
                is_last = number + 1 == plan.operations
                most = 2 if plan.is_hasty else 4
                await client.transact(
                    [(_written_to(rng), rng.randint(1, 3)) for _ in range(rng.randint(1, most))],
                    commit=rng.random() < COMMITS,
                    is_abandoned=plan.abandons and is_last,
                )
                await asyncio.sleep(0 if plan.is_hasty else rng.choice((0, 0, 0.05, 0.5)))
            case Janitor():
                await asyncio.sleep(rng.uniform(0.5, 5))
                try:
                    await client.delete((LOSSY, rng.randrange(PARTITIONS)))
                except Disconnected:
                    pass  # Whether it was deleted nobody knows, and nobody minds.
            case Builder():
                await client.rebuild("s", number)
            case Ghost():
                await asyncio.sleep(rng.uniform(0, 0.5))
                try:
                    await client.haunt()
                except Disconnected:
                    pass  # It comes again.
            case _:
                return


async def _send(client: Producer, number: int, rng: Random) -> None:
    await client.open()
    sizes = [rng.randint(1, 8) for _ in range(rng.randint(1, IN_FLIGHT))]
    await client.send(_written_to(rng), sizes, number)
    if rng.random() < SKIPS:
        # Not where records are deleted: the producer's state may go with them.
        await client.skip(rng.choice(INPUTS), number)


def _written_to(rng: Random) -> Part:
    return (rng.choice((INPUT, INPUT, INPUT, LOSSY)), rng.randrange(PARTITIONS))
